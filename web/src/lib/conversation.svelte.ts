// A conversation as a fold of what is observed: a view that is true at a cursor, and the events after it. Text that is
// still being said is a draft; the settled message replaces it.

import type { Block, Draft, Frame, Item, Json, Message, Observation, Policy, QueryJson, TokenUsage } from "./types";

export interface Outcome {
  type: string;
  reason?: string;
  detail?: string;
  by?: string | null;
  command?: string;
  value?: Json;
  tool?: string;
}

export interface SessionEvent {
  type: string;
  position?: number;
  at?: number;
  turn?: string | null;
  call?: string;
  name?: string;
  arguments?: Json;
  query?: QueryJson | string;
  by?: string | null;
  message?: Message;
  node?: string;
  frame?: { key: string; reason: string; task?: string; summary?: string; kept?: string | null };
  added?: Item[];
  removed?: string[];
  policy?: Policy;
  outcome?: Outcome;
  usage?: TokenUsage;
  how?: string;
  text?: string;
  reasoning?: string;
  attempt?: number;
  model?: string;
  iteration?: number;
  outputs?: Record<string, string>;
  begins_anew?: boolean;
  result?: Json;
  is_error?: boolean;
  why?: string;
  delay_s?: number;
  cell?: number;
  code?: string;
  told?: string;
  observation?: Observation;
  entry?: { position: number; at: number };
  problem?: { detail: string };
}

export interface LiveCell {
  cell: number;
  code: string;
  printed: string;
  told: string | null;
}

export interface CallState {
  id: string;
  name: string;
  state: "asked" | "running" | "done";
}

/** The words of queries in the journal, as the API's lists have them. */
const KINDS: Record<string, string> = { approval: "human", call: "tool", reply: "llm", summary: "llm", delegate: "child" };

export function plainQuery(query: QueryJson): QueryJson {
  return { ...query, kind: KINDS[query.kind] ?? query.kind };
}

export class Conversation {
  messages = $state.raw<Message[]>([]);
  frames = $state.raw<Frame[]>([]);
  drafts = $state.raw<Draft[]>([]);
  /** What running tools have put out so far, by call. */
  outputs = $state.raw<Record<string, string>>({});
  calls = $state.raw<Record<string, CallState>>({});
  waiting = $state.raw<QueryJson[]>([]);
  queue = $state.raw<Item[]>([]);
  cells = $state.raw<LiveCell[]>([]);
  policy = $state.raw<Policy | null>(null);
  running = $state<string | null>(null);
  ended = $state<string | null>(null);
  /** How the last turns ended, by the message after which they did. */
  outcomes = $state.raw<Record<string, { turn: string; outcome: Outcome }>>({});
  /** What the runtime says about the reply under way: that it tries again, or makes room. */
  remark = $state("");

  load(observation: Observation): void {
    const { view } = observation;
    this.messages = view.messages;
    this.frames = view.frames;
    this.policy = view.policy;
    this.running = view.running;
    this.waiting = observation.waiting.map(plainQuery);
    this.queue = observation.queue;
    this.calls = Object.fromEntries(observation.calls.map((call) => [call.id, { id: call.id, name: call.name, state: "asked" }]));
    this.ended = observation.ended;
    this.loadDrafts(observation.drafts);
    this.remark = "";
  }

  private loadDrafts(drafts: Draft[]): void {
    this.drafts = drafts.filter((draft) => draft.call === "");
    this.outputs = Object.fromEntries(drafts.filter((draft) => draft.call !== "").map((draft) => [draft.call, draft.text]));
  }

  apply(event: SessionEvent): void {
    const turn = event.turn ?? this.running ?? "";
    switch (event.type) {
      case "turn_began":
        this.running = event.turn ?? null;
        this.drafts = [];
        this.cells = [];
        if (event.begins_anew === true) {
          this.messages = [];
          this.frames = [];
          this.outcomes = {};
        }
        break;
      case "message":
        if (event.message !== undefined) this.settle(event.message);
        break;
      case "call_asked":
      case "call_started":
      case "call_settled":
        this.call(event.call ?? "", event.name ?? "", event.type === "call_asked" ? "asked" : event.type === "call_started" ? "running" : "done");
        break;
      case "asked":
        if (typeof event.query === "object") this.waiting = [...this.waiting.filter((each) => each.id !== (event.query as QueryJson).id), plainQuery(event.query)];
        break;
      case "answered":
        this.waiting = this.waiting.filter((each) => each.id !== event.query);
        break;
      case "frame":
        if (event.frame !== undefined) this.frame(event);
        break;
      case "queue":
        this.queue = [...this.queue.filter((item) => !(event.removed ?? []).includes(item.id)), ...(event.added ?? [])];
        break;
      case "policy":
        this.policy = event.policy ?? this.policy;
        break;
      case "turn_ended":
        this.endTurn(event);
        break;
      case "session_ended":
        this.ended = event.how ?? "ended";
        this.waiting = [];
        this.queue = [];
        break;
      case "model_started":
        this.remark = "";
        this.drafts = [{ turn, call: "", text: "", reasoning: "", iteration: event.iteration ?? 1, model: event.model ?? "", attempt: 1 }];
        break;
      case "text":
        this.draft(turn, event.attempt ?? 1, { text: event.text ?? "" });
        break;
      case "reasoning":
        this.draft(turn, event.attempt ?? 1, { reasoning: event.text ?? "" });
        break;
      case "retracted":
        this.drafts = this.drafts.filter((each) => each.attempt !== event.attempt);
        break;
      case "retrying":
        this.remark = `Attempt ${event.attempt} failed (${event.why}); the next follows in ${Math.ceil(event.delay_s ?? 0)} s.`;
        break;
      case "summing_up":
        this.remark = "The conversation is being summed up, to make room.";
        break;
      case "summed_up":
        this.remark = "";
        break;
      case "so_far":
        this.drafts = [{ turn, call: "", text: event.text ?? "", reasoning: event.reasoning ?? "", iteration: event.iteration ?? 0, model: event.model ?? "", attempt: event.attempt ?? 1 }];
        this.outputs = { ...this.outputs, ...event.outputs };
        break;
      case "tool_output":
        this.outputs = { ...this.outputs, [event.call ?? ""]: (this.outputs[event.call ?? ""] ?? "") + (event.text ?? "") };
        break;
      case "cell_started":
        this.cells = [...this.cells.filter((each) => each.cell !== event.cell), { cell: event.cell ?? 0, code: event.code ?? "", printed: "", told: null }];
        break;
      case "cell_printed":
        this.cells = this.cells.map((each) => (each.cell === event.cell ? { ...each, printed: each.printed + (event.text ?? "") } : each));
        break;
      case "cell_finished":
        this.cells = this.cells.map((each) => (each.cell === event.cell ? { ...each, told: event.told ?? "" } : each));
        break;
      case "redraw":
        // Nothing durable was missed: only the drafts are replaced.
        if (event.observation !== undefined) this.loadDrafts(event.observation.drafts);
        break;
      case "gap":
        if (event.observation !== undefined) this.load(event.observation);
        break;
    }
  }

  private settle(message: Message): void {
    const index = this.messages.findIndex((each) => each.id === message.id);
    this.messages = index < 0 ? [...this.messages, message] : this.messages.with(index, message);
    if (message.role === "assistant") this.drafts = [];
    const results = message.content.filter((block) => block.type === "tool_result").map((block) => block.tool_use_id);
    if (results.length > 0) this.outputs = Object.fromEntries(Object.entries(this.outputs).filter(([call]) => !results.includes(call)));
  }

  private call(id: string, name: string, state: CallState["state"]): void {
    this.calls = { ...this.calls, [id]: { id, name, state } };
  }

  private frame(event: SessionEvent): void {
    const { key, reason, task, summary, kept } = event.frame ?? { key: "", reason: "" };
    const frame: Frame = {
      id: event.node ?? "", key, reason, task: task ?? "", summary: summary ?? "", begins: this.messages.length, kept: kept ?? null, at: event.at ?? 0,
    };
    this.frames = [...this.frames.filter((each) => each.id !== frame.id), frame];
  }

  private endTurn(event: SessionEvent): void {
    this.running = null;
    this.drafts = [];
    this.outputs = {};
    this.calls = {};
    this.cells = [];
    this.remark = "";
    const last = this.messages[this.messages.length - 1];
    if (event.outcome !== undefined && last !== undefined) this.outcomes = { ...this.outcomes, [last.id]: { turn: event.turn ?? "", outcome: event.outcome } };
  }

  private draft(turn: string, attempt: number, added: { text?: string; reasoning?: string }): void {
    const last = this.drafts[this.drafts.length - 1];
    const draft = last !== undefined && last.attempt === attempt ? last : { turn, call: "", text: "", reasoning: "", iteration: 1, model: last?.model ?? "", attempt };
    const grown = { ...draft, text: draft.text + (added.text ?? ""), reasoning: draft.reasoning + (added.reasoning ?? "") };
    this.drafts = [...this.drafts.filter((each) => each !== last || each.attempt !== attempt), grown];
    this.remark = "";
  }
}

export interface ToolResult {
  content: Json;
  is_error: boolean;
  at: number;
}

/** The results of tool calls, by call. */
export function resultsOf(messages: Message[]): Map<string, ToolResult> {
  const found = new Map<string, ToolResult>();
  for (const message of messages) {
    for (const block of message.content) {
      if (block.type === "tool_result") found.set(block.tool_use_id, { content: block.content, is_error: block.is_error === true, at: message.at });
    }
  }
  return found;
}

/** Whether a message is nothing but results, which are shown with their calls. */
export const isResults = (message: Message): boolean => message.content.length > 0 && message.content.every((block) => block.type === "tool_result");

export const textOf = (content: Block[]): string => content.map((block) => (block.type === "text" ? block.text : "")).join("");
