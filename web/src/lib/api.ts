// Requests to the HTTP API: one function for each method, with the reply's type, and problems as errors.

import { auth } from "./auth.svelte";
import { Problem, problemFrom } from "./problem";
import { API } from "./root";

export type Params = Record<string, string | number | boolean | string[] | null | undefined>;

export function queryOf(params: Params): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) query.append(name, String(each));
  }
  const text = query.toString();
  return text === "" ? "" : `?${text}`;
}

export const at = (strings: TemplateStringsArray, ...names: string[]): string =>
  strings.reduce((path, part, i) => path + encodeURIComponent(names[i - 1] ?? "") + part);

interface Options {
  params?: Params;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

export async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const { params, body, headers, signal } = options;
  const init: RequestInit = {
    method,
    headers: {
      accept: "application/json",
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...auth.headers(),
      ...headers,
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    ...(signal === undefined ? {} : { signal }),
    cache: "no-store",
  };
  let response: Response;
  try {
    response = await fetch(API + path + queryOf(params ?? {}), init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "offline", "the server cannot be reached");
  }
  if (!response.ok) {
    const problem = await problemFrom(response);
    auth.refused(problem);
    throw problem;
  }
  auth.succeeded();
  return response;
}

async function reply<T>(method: string, path: string, options: Options): Promise<T> {
  const response = await send(method, path, options);
  return (response.status === 204 ? undefined : await response.json()) as T;
}

export const get = <T>(path: string, params: Params = {}, signal?: AbortSignal): Promise<T> =>
  reply<T>("GET", path, { params, signal });

export const post = <T>(path: string, body: unknown = {}, headers: Record<string, string> = {}): Promise<T> =>
  reply<T>("POST", path, { body, headers });

export const patch = <T>(path: string, body: unknown): Promise<T> => reply<T>("PATCH", path, { body });

export const remove = <T = void>(path: string, params: Params = {}): Promise<T> => reply<T>("DELETE", path, { params });

/** A key that makes sending the same request again harmless. */
export const onceKey = (): Record<string, string> => ({ "idempotency-key": crypto.randomUUID() });

/** Save what a path gives as a file. The token goes with the request, so a plain link would not do. */
export async function download(path: string, name: string): Promise<void> {
  const response = await send("GET", path, { headers: { accept: "*/*" } });
  saveAs(await response.blob(), name);
}

export function saveAs(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name.replace(/[^\w.-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
