// The shapes of the HTTP API, as far as the console reads them.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export type State = "running" | "paused" | "imported" | "completed" | "failed" | "cancelled" | "expired";

export interface Page<T> {
  data: T[];
  next: string | null;
}

export interface Me {
  name: string;
  token_id: string;
  scopes: string[];
  id_prefix: string;
  expires_at: number | null;
}

export interface Server {
  version: string;
  store: string;
  now: number;
  services: string[];
  agents: string[];
  scopes: string[];
  features?: string[];
}

export interface Summary {
  state: State;
  program_kind: string;
  program: string;
  parent: string | null;
  service: string;
  created_at: number;
  updated_at: number;
  pending: number;
  waiting_for: string;
  due_at: number | null;
  needs: string;
  title: string;
  labels: string[];
  turns: number;
  tokens: number;
  cost: number;
  asks: number;
  forked_from: string | null;
  failure: string;
}

export interface SessionRow {
  session_id: string;
  position: number;
  epoch: number;
  owner: string | null;
  lease_until: number | null;
  summary: Summary;
}

export interface SessionsPage extends Page<SessionRow> {
  damaged: string[];
}

export interface Counts {
  sessions: number;
  by_state: Partial<Record<State, number>>;
  by_waiting_for: Record<string, number>;
  asks: number;
  tokens: number;
  cost: number;
  more: boolean;
}

export interface Waits {
  why: string;
  since: number | null;
  /** Queries that wait for somebody outside. */
  answers: string[] | null;
  missing: string[] | string | null;
  served_by: string[] | null;
  is_stuck: boolean;
  is_between_turns: boolean;
}

export interface Status {
  session_id: string;
  state: string;
  phase: State;
  started_at: number;
  last_activity_at: number;
  metrics: JsonObject;
  strategy?: string;
  pending?: QueryJson[];
  position: number;
  owner: string | null;
  waits?: Waits | null;
  outcome: Json;
  summary: Summary;
}

export interface Approves {
  id: string;
  tool: string;
  arguments: JsonObject;
  reason?: string;
}

export interface QueryJson {
  id: string;
  kind: string;
  prompt?: string;
  system?: string | null;
  choices?: string[];
  approves?: Approves;
  name?: string;
  arguments?: JsonObject;
  max_tokens?: number;
  timeout_ms?: number;
  [field: string]: unknown;
}

export interface WaitingQuery {
  session_id: string;
  program: string;
  program_kind: string;
  service: string;
  title: string;
  labels: string[];
  parent: string | null;
  position: number;
  query: QueryJson;
  asked_at: number;
  due_at: number | null;
}

export interface AnsweredQuery {
  session_id: string;
  title: string;
  query_id: string;
  by: string | null;
  at: number;
  answer: Json;
  text: string;
}

export interface AnswerReport {
  session_id: string;
  query_id: string;
  status: "accepted" | "replayed" | "refused";
  problem?: { type: string; detail: string; status: number } | null;
}

export interface LinkedQuery {
  session_id: string;
  title: string;
  /** Null once nobody can answer it any more. */
  query: QueryJson | null;
  asked_at: number | null;
  expires_at: number;
  answered: { by: string | null; at: number; answer: Json } | null;
}

export interface Entry {
  position: number;
  at: number;
  record: { type: string; [field: string]: Json };
}

export interface JournalPage {
  data: Entry[];
  next: number | null;
  position: number;
  ended: boolean;
}

export type Block =
  | { type: "text"; text: string }
  | { type: "reasoning"; text: string; signature?: string | null }
  | { type: "image"; image: { media_type: string; data: string } }
  | { type: "tool_use"; id: string; name: string; input: Json }
  | { type: "tool_result"; tool_use_id: string; content: Json; is_error?: boolean };

export interface Message {
  id: string;
  role: "system" | "user" | "assistant" | "tool" | "signal";
  content: Block[];
  at: number;
}

export interface Frame {
  id: string;
  key: string;
  reason: string;
  task: string;
  summary: string;
  begins: number;
  kept: string | null;
  at: number;
}

export interface ConversationPage {
  messages: Message[];
  before: string | null;
  running: string | null;
}

export interface TokenUsage {
  input: number;
  output: number;
  cache_read: number;
  cache_write: number;
  reasoning: number;
  cost: number;
  calls: number;
}

export interface UsageReport {
  total: TokenUsage;
  by_source: Record<string, TokenUsage>;
  by_model: Record<string, TokenUsage>;
  calls: number;
  unsettled: number;
}

export interface TurnRow {
  turn: string;
  position: number;
  at: number;
  ended_at: number | null;
  outcome: string | null;
  text: string;
  tool_calls: number;
  usage: TokenUsage;
}

export interface TurnsPage {
  data: TurnRow[];
  next: number | null;
}

/** Where a program does something else than its journal says. */
export interface Divergence {
  position: number;
  recorded: string;
  asked: string;
  where: string;
  began_with: string | null;
  here: string | null;
}

export interface ReplayReport {
  state: "ok" | "diverges" | "unchecked";
  records: number;
  why: string;
  divergence: Divergence | null;
}

export interface Item {
  id: string;
  content?: Block[];
  command?: { name: string; arguments?: JsonObject };
  delivery?: string;
  slot?: string;
  merge_key?: string;
  available_at?: number;
}

/** What has left an inbox. */
export interface PastItem {
  id: string;
  at: number;
  text: string;
  status: "waiting" | "running" | "done" | "cancelled";
  turn: string | null;
  cancelled: { at: number; reason: string | null; by: string | null } | null;
}

export interface PastItemsPage {
  data: PastItem[];
  next: number | null;
}

export interface Draft {
  turn: string;
  call: string;
  text: string;
  reasoning: string;
  iteration: number;
  model: string;
  attempt: number;
}

export interface Rule {
  tool: string;
  verdict: string;
  match?: Record<string, string>;
  reason?: string;
}

export interface Policy {
  provider?: string;
  model?: string;
  mode?: string;
  instructions?: string;
  limits?: JsonObject;
  generation?: JsonObject;
  tools?: string[] | null;
  deny?: string[];
  approval?: { rules?: Rule[]; default?: string; origin?: string; timeout_ms?: number | null }[];
  prompt?: Json[];
  plugins?: JsonObject;
  window?: number | null;
  compaction?: JsonObject;
  delegation?: JsonObject;
  [field: string]: unknown;
}

export interface Observation {
  view: {
    session_id: string;
    position: number;
    messages: Message[];
    frames: Frame[];
    policy: Policy;
    running: string | null;
    approvals: QueryJson[];
  };
  cursor: string;
  usage: UsageReport;
  calls: { id: string; name: string; input: Json }[];
  waiting: QueryJson[];
  queue: Item[];
  drafts: Draft[];
  ended: string | null;
}

export interface Tool {
  name: string;
  description: string;
}

export interface TreeNode {
  session_id: string;
  parent: string | null;
  depth: number;
  relation: "root" | "child" | "fork";
  row: SessionRow;
}

export interface Tree {
  root: string;
  nodes: TreeNode[];
  tokens: number;
  cost: number;
  more: boolean;
}

export interface ForkPoint {
  position: number;
  kind: string;
  id: string;
  text: string;
}

export interface ComparedStep {
  position: number;
  kind: string;
  text: string;
  id?: string;
}

export interface ComparedRow {
  left: ComparedStep | null;
  right: ComparedStep | null;
  same?: boolean;
}

export interface ModelUsage {
  llm_calls: number;
  tokens: number;
  cost: number;
}

export interface ComparedSession {
  session_id: string;
  state: State;
  position: number;
  common: number;
  total: ModelUsage;
  branch: ModelUsage;
  forked_from?: { session_id: string; position: number } | null;
}

export interface Comparison {
  left: ComparedSession;
  right: ComparedSession;
  descent?: { session_id: string; position: number } | null;
  difference?: string | null;
  rows?: ComparedRow[];
  more?: boolean;
}

export interface Agent {
  name: string;
  model: string;
  provider: string;
  tools: string[];
  modes: string[];
}

export interface Parameter {
  type?: string;
  description?: string;
  default?: Json;
  required?: boolean;
  choices?: Json[];
  min?: number | null;
  max?: number | null;
}

export interface DiagramBox {
  label: string;
  kind: string;
  times: number;
  prompt: string;
  is_same: boolean;
  answer: string;
}

export interface DiagramPause {
  is: "pause";
  pause: number;
  boxes: DiagramBox[];
}

export type DiagramPart = DiagramPause | { is: "loop"; times: number; steps: DiagramPause[] };

export interface DryRun {
  program: string;
  assumed: JsonObject;
  totals: { pauses: number; llm_calls: number; other_calls: number; prompt_tokens: number; most_llm_calls: number | null };
  diagram: DiagramPart[];
  result?: Json;
  error?: string;
}

export interface Strategy {
  name: string;
  origin: string;
  category: string;
  description?: string;
  parameters?: Record<string, Parameter>;
  result?: Json;
  paper?: { title: string; authors: string; year: number; url: string };
  calls?: { formula: string; by_default: number | null } | null;
  doc?: string;
  error?: string;
}

export interface Worker {
  name: string;
  host: string;
  since: number;
  seen_at: number;
  offers: {
    services: string[];
    strategies?: string[];
    providers?: string[];
    models?: string[];
    tools?: string[];
    agents?: string[];
    has_model?: boolean;
    answers_people?: boolean;
  };
  troubles: { name: string; failures: number; error: string }[];
  sessions: number;
  /** Its turns, if it works through inboxes. */
  work: { under_way: number; most: number; is_draining: boolean } | null;
}

export interface WorkersReport {
  data: Worker[];
  unowned: number;
  inbox: { waiting: number; oldest_at: number | null };
  leases_ending: number;
}

export interface DoctorReport {
  troubles: { name: string; failures: number; error: string }[];
  damaged: string[];
  processes: number;
}

export interface CostRow {
  key: Record<string, string>;
  sessions: number;
  tokens: number;
  cost: number;
}

export interface CostsReport {
  data: CostRow[];
  total: { sessions: number; tokens: number; cost: number };
  top: SessionRow[];
  budgets: { session_id: string; title: string; used: JsonObject; limits: JsonObject; share: number }[];
  more: boolean;
}

export interface Token {
  id: string;
  name: string;
  scopes: string[];
  id_prefix: string;
  created_at: number;
  expires_at: number | null;
  used_at: number | null;
  token?: string;
}

export interface Webhook {
  id: string;
  url: string;
  types: string[];
  include: string | null;
  enabled: boolean;
  why_disabled: string | null;
  created_at: number;
  failures: number;
  last_ok_at: number | null;
  secret?: string;
}

export interface Delivery {
  id: string;
  type: string;
  session_id: string | null;
  at: number;
  tries: number;
  status: number | null;
  why: string | null;
  next_at: number | null;
  done: boolean;
}
