// Keys: what each does on the page that is shown, so that one list serves both the keyboard and the page of keys.

import { onDestroy } from "svelte";
import { settings } from "./settings.svelte";

export interface Key {
  /** As the event names it, with `mod+` for ⌘ or Ctrl, and a space between the two of a chord: `j`, `mod+k`, `g i`. */
  keys: string;
  does: string;
  run: (event: KeyboardEvent) => void;
  /** Whether it works while somebody types. */
  inFields?: boolean;
}

interface Group {
  name: string;
  keys: Key[];
}

const CHORD_MS = 1_200;

class Keyboard {
  /** No state of Svelte: while a component is taken down, that reads as it was before, and a new group would be lost. */
  groups: Group[] = [];
  private begun = "";
  private begunAt = 0;

  constructor() {
    window.addEventListener("keydown", (event) => this.press(event));
  }

  add(name: string, keys: Key[]): () => void {
    const group = { name, keys };
    this.groups = [...this.groups, group];
    return () => (this.groups = this.groups.filter((each) => each !== group));
  }

  private press(event: KeyboardEvent): void {
    if (event.defaultPrevented || event.isComposing) return;
    const isModified = event.metaKey || event.ctrlKey;
    if (event.altKey || ["Shift", "Meta", "Control"].includes(event.key)) return;
    const isTyping = inField(event.target);
    const isInDialog = document.querySelector("dialog[open]") !== null;
    const isLetter = event.key.length === 1 && !isModified;
    if (isLetter && (!settings.letterKeys || isTyping)) return;
    const pressed = isModified ? `mod+${event.key}` : event.key;
    const chord = this.begun !== "" && event.timeStamp - this.begunAt < CHORD_MS ? `${this.begun} ${pressed}` : "";
    this.begun = "";
    for (const wanted of [chord, pressed]) {
      if (wanted === "") continue;
      const found = this.find(wanted, isTyping, isInDialog);
      if (found !== undefined) {
        event.preventDefault();
        found.run(event);
        return;
      }
    }
    if (this.groups.some((group) => group.keys.some((key) => key.keys.startsWith(`${pressed} `)))) {
      this.begun = pressed;
      this.begunAt = event.timeStamp; // when it was pressed: a busy page may hear of it later
    }
  }

  private find(wanted: string, isTyping: boolean, isInDialog: boolean): Key | undefined {
    for (const group of this.groups.toReversed()) {
      if (isInDialog && group.name !== "Dialog") continue;
      const found = group.keys.find((key) => key.keys === wanted && (!isTyping || key.inFields === true));
      if (found !== undefined) return found;
    }
    return undefined;
  }
}

function inField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(input|textarea|select)$/i.test(target.tagName));
}

export const keyboard = new Keyboard();

/** Let keys work for as long as a component is shown. */
export function useKeys(name: string, keys: Key[]): void {
  onDestroy(keyboard.add(name, keys));
}
