// Where the console and its API are: the server writes the path that it is mounted below into the document.

const written = document.querySelector<HTMLMetaElement>('meta[name="root"]')?.content ?? "";

export const ROOT = written.replace(/\/$/, "");
export const API = `${ROOT}/api/v1`;
