// Questions that wait for a person or a host: what they are called, and what their answers look like.

import type { IconName } from "../components/Icon.svelte";
import { oneLine } from "./format";
import type { Json, JsonObject, QueryJson } from "./types";

export type Answer = { response: Json } | { error: string };

export interface QuestionKind {
  name: string;
  icon: IconName;
}

export function kindOf(query: QueryJson): QuestionKind {
  if (query.approves !== undefined) return { name: "Approval", icon: "check" };
  switch (query.kind) {
    case "human":
      return query.choices?.length ? { name: "Choice", icon: "person" } : { name: "Question", icon: "person" };
    case "tool":
      return { name: "Tool", icon: "tool" };
    case "llm":
      return { name: "Model call", icon: "model" };
    default:
      return { name: query.kind, icon: "more" };
  }
}

/** What is asked, in one line. */
export function headline(query: QueryJson): string {
  if (query.approves !== undefined) return `Run ${query.approves.tool}?`;
  if (query.kind === "tool" && query.name !== undefined) return `Run ${query.name} and give its result`;
  return oneLine(query.prompt ?? query.kind, 160);
}

/** The arguments of a call, in one line. */
export function callLine(call: JsonObject): string {
  return oneLine(Object.values(call).map((value) => (typeof value === "string" ? value : JSON.stringify(value))).join("  "), 160);
}

export const keyOf = (sessionId: string, queryId: string): string => `${sessionId} ${queryId}`;

/** An argument as rules compare it: a text as it is, anything else as JSON with sorted keys. */
export function argumentText(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(sorted(value));
}

function sorted(value: Json): Json {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, each]) => [name, sorted(each)]));
}

/** A pattern that matches a text and nothing else. */
export const exactPattern = (text: string): string => text.replace(/[*?[]/g, "[$&]");

/** An answer in words. */
export function answerText(answer: unknown): string {
  if (answer === null || answer === undefined) return "null";
  if (typeof answer === "string") return decisionIn(answer);
  if (typeof answer === "object") {
    const fields = answer as Record<string, unknown>;
    if (fields["is"] === "value" && "value" in fields) return answerText(fields["value"]);
    if ("response" in fields) return answerText(fields["response"]);
    if (typeof fields["error"] === "string") return `failed: ${fields["error"]}`;
    if (fields["is"] === "failure") return `failed: ${String(fields["message"] ?? "")}`;
    if (typeof fields["decision"] === "string") {
      const more = fields["reason"] ?? (fields["arguments"] === undefined ? undefined : "with edits");
      return more ? `${fields["decision"]}: ${String(more)}` : fields["decision"];
    }
  }
  return JSON.stringify(answer);
}

/** A decision that was recorded as JSON text, in words; any other text as it is. */
function decisionIn(text: string): string {
  if (!text.startsWith('{"decision"')) return text;
  try {
    return answerText(JSON.parse(text));
  } catch {
    return text;
  }
}
