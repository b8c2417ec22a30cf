// Filters of the list of sessions: as they are in the address, and as the API takes them.

import type { Params } from "./api";
import type { SessionRow } from "./types";

export const FILTERS = ["q", "state", "asking", "program", "label", "service", "waiting_for", "parent", "forked_from", "id_prefix", "since"] as const;

/** The label of trials: a list without filters shows their evaluation instead. */
const PART = "evaluation.part";

const SINCE_MS: Record<string, number> = { "1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000 };

export function paramsOf(query: URLSearchParams, now: number): Params {
  const params: Params = {};
  for (const name of FILTERS) {
    const values = query.getAll(name);
    if (values.length === 0) continue;
    if (name === "since") params["updated_after"] = sinceOf(values[0] ?? "", now);
    else params[name] = ["state", "label", "service"].includes(name) ? values : (values[0] ?? "");
  }
  if (Object.keys(params).length === 0) params["without_label"] = [PART];
  return params;
}

function sinceOf(word: string, now: number): number {
  if (word === "today") return new Date(now).setHours(0, 0, 0, 0);
  return now - (SINCE_MS[word] ?? 0);
}

/** The filters of an address alone, in their order: the same for two addresses that show the same list. */
export function filterQuery(query: URLSearchParams): string {
  const kept = new URLSearchParams();
  for (const name of FILTERS) for (const value of query.getAll(name)) kept.append(name, value);
  return kept.toString();
}

/** Whether a row that changed belongs to the list, as far as it can be told without asking. */
export function belongs(row: SessionRow, query: URLSearchParams): boolean {
  const { summary } = row;
  const q = query.get("q")?.toLowerCase();
  const states = query.getAll("state");
  if (filterQuery(query) === "" && summary.labels.includes(PART)) return false;
  return (
    (states.length === 0 || states.includes(summary.state)) &&
    (query.get("asking") === null || summary.asks > 0) &&
    [["program", summary.program], ["parent", summary.parent], ["forked_from", summary.forked_from], ["service", summary.service]].every(
      ([name, value]) => query.get(name as string) === null || query.get(name as string) === value,
    ) &&
    query.getAll("label").every((label) => summary.labels.includes(label)) &&
    (query.get("waiting_for") === null || summary.waiting_for.split(",").includes(query.get("waiting_for") ?? "")) &&
    row.session_id.startsWith(query.get("id_prefix") ?? "") &&
    (q === undefined || `${row.session_id} ${summary.title} ${summary.program} ${summary.labels.join(" ")}`.toLowerCase().includes(q))
  );
}
