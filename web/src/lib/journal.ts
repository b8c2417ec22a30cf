// The journal as rows for people: a query with its attempts and its answer is one row.

import type { IconName } from "../components/Icon.svelte";
import { oneLine } from "./format";
import type { Entry, Json, JsonObject, QueryJson } from "./types";

export interface JournalRow {
  key: string;
  position: number;
  at: number;
  /** When it was over; null while it is not, and the beginning for what takes no time. */
  until: number | null;
  type: string;
  icon: IconName;
  title: string;
  text: string;
  tone: "plain" | "bad" | "good" | "open";
  by: string | null;
  entries: Entry[];
  queryId: string | null;
}

const object = (value: Json | undefined): JsonObject => (value !== null && typeof value === "object" && !Array.isArray(value) ? value : {});
const text = (value: Json | undefined): string => (typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value));

const QUERY_NAMES: Record<string, { icon: IconName; title: string }> = {
  llm: { icon: "model", title: "Model" },
  reply: { icon: "model", title: "Model" },
  summary: { icon: "model", title: "Summary" },
  tool: { icon: "tool", title: "Tool" },
  call: { icon: "tool", title: "Tool" },
  human: { icon: "person", title: "Question" },
  approval: { icon: "person", title: "Approval" },
  timer: { icon: "clock", title: "Timer" },
  child: { icon: "child", title: "Child" },
  delegate: { icon: "child", title: "Subagent" },
  input: { icon: "chat", title: "Input" },
};

const RECORD_NAMES: Record<string, { icon: IconName; title: string; tone?: JournalRow["tone"] }> = {
  started: { icon: "play", title: "Started" },
  completed: { icon: "check", title: "Completed", tone: "good" },
  failed: { icon: "alert", title: "Failed", tone: "bad" },
  cancelled: { icon: "cross", title: "Cancelled", tone: "bad" },
  expired: { icon: "clock", title: "Expired", tone: "bad" },
  refused: { icon: "alert", title: "Refused", tone: "bad" },
  logged: { icon: "sessions", title: "Log" },
  progressed: { icon: "right", title: "Progress" },
  stat: { icon: "costs", title: "Figure" },
  turn: { icon: "chat", title: "Turn ended" },
  call: { icon: "tool", title: "Call refused", tone: "bad" },
  frame: { icon: "box", title: "New frame" },
  bound: { icon: "code", title: "Cell" },
  leaves: { icon: "code", title: "Large variables" },
  spent: { icon: "costs", title: "Background work ended" },
  interrupted: { icon: "stop", title: "Interrupted" },
  enqueued: { icon: "inbox", title: "Queued" },
  joined: { icon: "inbox", title: "Joined the turn" },
  dequeued: { icon: "inbox", title: "Withdrawn" },
  stop: { icon: "stop", title: "Stopped", tone: "bad" },
  configured: { icon: "settings", title: "Policy changed" },
  labelled: { icon: "settings", title: "Labelled" },
  assigned: { icon: "model", title: "Assigned" },
  adopted: { icon: "box", title: "Adopted" },
  patched: { icon: "code", title: "Patched" },
};

export function grouped(entries: Entry[]): JournalRow[] {
  const rows: JournalRow[] = [];
  const open = new Map<string, JournalRow>();
  for (const entry of entries) {
    const { record } = entry;
    const queryId = typeof record["query_id"] === "string" ? record["query_id"] : null;
    if (record.type === "paused") {
      for (const query of (record["queries"] ?? []) as unknown as QueryJson[]) {
        const row = asked(entry, query);
        open.set(query.id, row);
        rows.push(row);
      }
      for (const id of (record["withdrawn"] ?? []) as string[]) close(open, id, entry, "withdrawn");
    } else if (queryId !== null && ["attempted", "interrupted", "answered"].includes(record.type)) {
      const row = open.get(queryId);
      if (row === undefined) rows.push(single(entry)); // its question is on an earlier page
      else if (record.type === "answered") settle(open, row, entry);
      else row.entries = [...row.entries, entry];
    } else {
      rows.push(single(entry));
    }
  }
  return rows;
}

export const ungrouped = (entries: Entry[]): JournalRow[] => entries.map(single);

function asked(entry: Entry, query: QueryJson): JournalRow {
  const look = QUERY_NAMES[query.kind] ?? { icon: "more" as const, title: query.kind };
  return {
    key: `${entry.position}-${query.id}`, position: entry.position, at: entry.at, until: null, type: query.kind, icon: look.icon,
    title: look.title, text: oneLine(queryText(query)), tone: "open", by: null, entries: [entry], queryId: query.id,
  };
}

export function queryText(query: QueryJson): string {
  if (query.approves !== undefined) return `${query.approves.tool} ${JSON.stringify(query.approves.arguments)}`;
  if (query.name !== undefined) return `${query.name} ${JSON.stringify(query.arguments ?? {})}`;
  const task = query["task"] ?? query["program"];
  if (task !== undefined) return String(task);
  if (query.kind === "timer") return `${Number(query["delay_ms"] ?? 0) / 1_000} s`;
  return query.prompt ?? "";
}

function settle(open: Map<string, JournalRow>, row: JournalRow, entry: Entry): void {
  const answer = object(entry.record["answer"]);
  const isFailure = answer["is"] === "failure";
  row.entries = [...row.entries, entry];
  row.until = entry.at;
  row.by = typeof entry.record["by"] === "string" ? entry.record["by"] : null;
  row.tone = isFailure ? "bad" : "plain";
  const said = oneLine(isFailure ? text(answer["message"]) : valueText(answer["value"] ?? null));
  row.text = row.text === "" ? said : `${row.text}  →  ${said}`;
  open.delete(row.queryId ?? "");
}

function close(open: Map<string, JournalRow>, id: string, entry: Entry, word: string): void {
  const row = open.get(id);
  if (row === undefined) return;
  row.entries = [...row.entries, entry];
  row.until = entry.at;
  row.tone = "plain";
  row.text = `${row.text}  (${word})`;
  open.delete(id);
}

/** A value in words: the text of a reply or an input, where it is one. */
function valueText(value: Json): string {
  const fields = object(value);
  const content = fields["content"] ?? fields["input"];
  if (typeof content === "string") return content;
  if (Array.isArray(content)) {
    return content.map((block) => object(block)).map((block) => text(block["text"]) || (block["type"] === "tool_use" ? `${text(block["name"])} ${text(block["input"])}` : text(block["content"]))).join(" ");
  }
  return text(value);
}

function single(entry: Entry): JournalRow {
  const { record } = entry;
  const look = RECORD_NAMES[record.type] ?? { icon: "more" as const, title: record.type };
  return {
    key: String(entry.position), position: entry.position, at: entry.at, until: entry.at, type: record.type, icon: look.icon,
    title: look.title, text: oneLine(recordText(entry)), tone: look.tone ?? "plain",
    by: typeof record["by"] === "string" ? record["by"] : null, entries: [entry],
    queryId: typeof record["query_id"] === "string" ? record["query_id"] : null,
  };
}

function recordText({ record }: Entry): string {
  switch (record.type) {
    case "started":
      return [text(object(record["program"])["name"]), record["forked_from"] ? `fork of ${text(object(record["forked_from"])["session_id"])}` : ""].filter(Boolean).join(" · ");
    case "paused":
      return ((record["queries"] ?? []) as unknown as QueryJson[]).map((query) => `${query.id} ${query.kind}`).join(", ");
    case "answered":
      return `${text(record["query_id"])} ${valueText(object(record["answer"])["value"] ?? object(record["answer"])["message"] ?? null)}`;
    case "attempted":
      return `${text(record["query_id"])} by ${text(record["driver"])}`;
    case "logged":
      return text(record["message"]);
    case "progressed":
      return `${text(record["step"])} of ${text(record["total"])} ${text(record["message"])}`;
    case "stat":
      return `${text(record["key"])} = ${text(record["value"])}`;
    case "completed":
      return text(record["result"]);
    case "failed":
      return text(record["error"]);
    case "cancelled":
    case "expired":
    case "stop":
    case "dequeued":
      return text(record["reason"]);
    case "turn": {
      const outcome = object(record["outcome"]);
      return [text(outcome["type"]), text(outcome["reason"]), text(outcome["detail"])].filter(Boolean).join(": ");
    }
    case "bound":
      return text(record["remark"]);
    case "leaves":
      return Object.keys(object(record["values"])).join(", ");
    case "spent":
      return text(record["process"]);
    case "interrupted":
      return text(record["query_id"]);
    case "frame":
      return text(record["summary"]);
    case "enqueued":
      return valueText(record["item"] ?? null);
    case "labelled":
      return [text(record["title"]), ...((record["labels"] ?? []) as string[])].filter(Boolean).join(", ");
    case "configured":
      return text(record["change"]);
    default: {
      const { type: _, ...rest } = record;
      return JSON.stringify(rest);
    }
  }
}
