// Numbers, times and texts as people read them.

import type { Zone } from "./settings.svelte";

const counts = new Intl.NumberFormat("en");
const dollars = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value: number): string => counts.format(value);

/** A number of tokens in little room: `5.1K`. */
export const short = (value: number): string => (value < 10_000 ? counts.format(value) : compact.format(value));

export const plural = (n: number, one: string, many = `${one}s`): string => `${counts.format(n)} ${n === 1 ? one : many}`;

/** Dollars: with as many digits as say something. */
export function cost(value: number): string {
  if (value === 0) return "$0";
  if (value < 0.01) return `$${value.toFixed(4)}`;
  if (value < 1) return `$${value.toFixed(3)}`;
  return `$${dollars.format(value)}`;
}

const UNITS: [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1_000, "s"],
];

/** A length of time, in its largest unit: `4 min`. */
export function duration(ms: number): string {
  const [size, unit] = UNITS.find(([each]) => Math.abs(ms) >= each) ?? [1, "ms"];
  return `${Math.floor(Math.abs(ms) / size)} ${unit}`;
}

/** A short length of time with its fraction: `1.4 s`. */
export function span(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  return duration(ms);
}

export function ago(at: number, now: number): string {
  const ms = now - at;
  if (Math.abs(ms) < 5_000) return "now";
  return ms > 0 ? `${duration(ms)} ago` : `in ${duration(ms)}`;
}

// To make a formatter takes a hundred times as long as to use it, and a list shows many times: one is kept for each zone.
const formats = (options: Intl.DateTimeFormatOptions) => ({
  local: new Intl.DateTimeFormat("en-GB", options),
  utc: new Intl.DateTimeFormat("en-GB", { ...options, timeZone: "UTC" }),
});
const moments = formats({ dateStyle: "medium", timeStyle: "medium" });
const clocks = formats({ hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export const absolute = (at: number, zone: Zone): string => moments[zone].format(at) + (zone === "utc" ? " UTC" : "");

export const clock = (at: number, zone: Zone): string => clocks[zone].format(at);

export function bytes(n: number): string {
  if (n < 1_024) return `${n} B`;
  if (n < 1_048_576) return `${(n / 1_024).toFixed(1)} KiB`;
  return `${(n / 1_048_576).toFixed(1)} MiB`;
}

export const cut = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export const oneLine = (text: string, most = 200): string => cut(text.slice(0, most * 4).replace(/\s+/g, " ").trim(), most);

/** Words of the API as words of a page: `after_turn` → `after turn`. */
export const words = (name: string): string => name.replaceAll("_", " ");

export const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

const WAITS: Record<string, string> = {
  human: "a person", llm: "a model", tool: "a tool", timer: "the time", child: "a child", inbox: "a worker", input: "",
};

/** What a session waits for, in words. */
export const waitWords = (kinds: string): string => kinds.split(",").map((kind) => WAITS[kind] ?? kind).filter(Boolean).join(", ");
