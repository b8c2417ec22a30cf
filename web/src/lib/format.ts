// Numbers, times and texts as people read them.

const counts = new Intl.NumberFormat("en");
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
  return `$${value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
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

export function absolute(at: number, zone: "local" | "utc"): string {
  return new Intl.DateTimeFormat("en-GB", {
    dateStyle: "medium",
    timeStyle: "medium",
    ...(zone === "utc" ? { timeZone: "UTC" } : {}),
  }).format(at) + (zone === "utc" ? " UTC" : "");
}

export function clock(at: number, zone: "local" | "utc"): string {
  const options: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };
  return new Intl.DateTimeFormat("en-GB", zone === "utc" ? { ...options, timeZone: "UTC" } : options).format(at);
}

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
