// What belongs to whoever is signed in: sessions that have their name as a label. What they begin here gets it.

import { auth } from "./auth.svelte";

/** The label of one's own sessions, or null if nobody is signed in whose name can be one. */
export function ownLabel(): string | null {
  const name = auth.me?.name.trim() ?? "";
  return name === "" || name.length > 64 || name.includes(",") ? null : name;
}

/** The labels that something begun here is given. */
export const ownLabels = (): string[] => [ownLabel()].filter((label) => label !== null);
