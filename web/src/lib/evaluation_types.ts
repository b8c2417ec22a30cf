// The shapes of the HTTP API about evaluations, as far as the console reads them.

export interface EvaluationOverview {
  id: string;
  state: string;
  kind: "plan" | "scenario";
  dataset: string;
  cases: number;
  repeat: number;
  arms: string[];
  created_at: number;
}

export interface EvaluationsPage {
  data: EvaluationOverview[];
}

export interface FailureGroup {
  why: string;
  count: number;
}

export interface EvaluationArm {
  arm: string;
  score: number | null;
  low: number | null;
  high: number | null;
  method: string | null;
  n: number;
  pass_rate: number | null;
  errors: number;
  missing: number;
  ungraded: number;
  calls: number;
  tokens: number;
  cost: number | null;
  cost_per_pass: number | null;
  wait_p50_ms: number | null;
  wait_p95_ms: number | null;
  failures: FailureGroup[];
}

export interface EvaluationPair {
  first: string;
  second: string;
  mean: number;
  low: number | null;
  high: number | null;
  p: number | null;
  p_holm: number | null;
  mcnemar: number | null;
  common: number;
  better: number;
  worse: number;
  sentence: string;
}

export interface EvaluationFigures {
  overview: EvaluationOverview;
  total: number;
  done: number;
  running: number;
  clusters: number | null;
  graders: string[];
  grading_cost: number | null;
  arms: EvaluationArm[];
  pairs: EvaluationPair[];
  notes: string[];
}

export interface EvaluationCell {
  arm: string;
  score: number | null;
  tries: number;
  passes: number;
  running: number;
  trouble: string;
  session_id: string;
}

export interface EvaluationCase {
  number: number;
  id: string;
  input: string;
  cells: EvaluationCell[];
}

export interface EvaluationCases {
  data: EvaluationCase[];
  next: number | null;
  total: number;
}

export interface CaseGroup {
  count: number;
  cases: string[];
}

export interface ComparedArms {
  pair: EvaluationPair;
  both: CaseGroup;
  only_left: CaseGroup;
  only_right: CaseGroup;
  neither: CaseGroup;
  left_out: number;
}

export interface StrategyScore {
  strategy: string;
  evaluation: string;
  arm: string;
  pass_rate: number;
  low: number | null;
  high: number | null;
  n: number;
  cost: number | null;
  at: number;
}

export interface StrategyScores {
  data: StrategyScore[];
}

/** A card in a list. */
export interface CardRow {
  card_id: string;
  pkg: string;
  created_at?: string;
  model?: string | null;
  scenario?: string | null;
  pass_rate?: number | null;
}

export interface LineageNode {
  card_id: string;
  depth: number;
  pkg?: string;
  stats?: { pass_rate?: unknown };
  prior_relation?: string;
}

export interface CardReport {
  card: Record<string, unknown>;
  aliases: { name: string; note?: string | null }[];
  lineage: { root: string; nodes: LineageNode[]; edges: { from: string; to: string; relation?: string }[] };
}
