// Characters that cannot be seen, or that change the order of those that can, and what stands for them on a page.
// What a person approves must be what a person sees.

const HIDDEN =
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]|\udb40[\udc00-\udfff]/g;

// eslint-disable-next-line no-control-regex
const TERMINAL = /\u001b\[[0-9;:?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b[@-Z\\-_]/g;

const code = (character: string): string => `⟨${character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}⟩`;

/** The text with each hidden character as its number: `⟨202E⟩`. */
export const revealed = (text: string): string => text.replace(/\r\n/g, "\n").replace(HIDDEN, code);

/** The output of a program, without what moves the cursor or colours of a terminal. */
export const plainOutput = (text: string): string => revealed(text.replace(TERMINAL, ""));
