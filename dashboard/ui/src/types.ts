// What the server answers, as far as the page reads it.

export type RolloutStatus = 'queuing' | 'preparing' | 'running' | 'failed' | 'succeeded' | 'cancelled' | 'requeuing';
export const rolloutStatuses: RolloutStatus[] = ['queuing', 'preparing', 'running', 'requeuing', 'succeeded', 'failed', 'cancelled'];
export const attemptStatuses = ['preparing', 'running', 'succeeded', 'failed', 'timeout', 'unresponsive'] as const;

export interface Attempt {
  rollout_id: string;
  attempt_id: string;
  sequence_id: number;
  start_time: number;
  end_time: number | null;
  status: string;
  worker_id: string | null;
  last_heartbeat_time: number | null;
  metadata: unknown;
}

export interface Rollout {
  rollout_id: string;
  input: unknown;
  start_time: number;
  end_time: number | null;
  mode: 'train' | 'val' | 'test' | null;
  resources_id: string | null;
  status: RolloutStatus;
  config: Record<string, unknown>;
  metadata: Record<string, unknown> | null;
  attempt?: Attempt | null;
}

export interface Digest {
  reward: number | null;
  rewards: Record<string, number>;
  calls: number;
  tokens: number;
  spans: number;
  model: string;
  problem: string;
  /** Of the step that trained on it last; absent when nothing was kept. */
  gap?: TokenGap;
  large: boolean;
}

/** Log-probability when sampled less that under the policy in training, in nats. */
export interface TokenGap {
  run_id: string;
  step: number;
  tokens: number;
  sum: number;
  /** The gap that is the furthest from 0, in this call at this token. */
  largest: number;
  span_id: string;
  position: number;
}

export interface Browsed extends Rollout {
  digest: Digest;
}

export interface BrowsePage {
  items: Browsed[];
  total: number;
  examined: number;
  complete: boolean;
}

export type SampleOrder = 'improved' | 'worsened' | 'unchanged' | 'unrewarded';

export interface Sample {
  rollout_id: string;
  attempt_id: string;
  status: RolloutStatus;
  reward: number | null;
}

/** How a task went at a step. */
export interface TaskTried {
  step: number;
  reward: number | null;
  tried: number;
  rewarded: number;
  rollouts: Sample[];
}

export interface TaskChange {
  task: unknown;
  before: TaskTried;
  after: TaskTried;
  change: number | null;
}

export interface SamplesPage {
  mode: string;
  items: TaskChange[];
  total: number;
  improved: number;
  worsened: number;
  unchanged: number;
  unrewarded: number;
  /** Tasks that there is nothing to compare of. */
  once: number;
  stepless: number;
  steps: number[];
  modes: string[];
  before: number | null;
  after: number | null;
  examined: number;
  complete: boolean;
}

export interface Page<T> {
  items: T[];
  limit: number;
  offset: number;
  total: number;
}

export interface Span {
  rollout_id: string;
  attempt_id: string;
  sequence_id: number;
  trace_id: string;
  span_id: string;
  parent_id: string | null;
  name: string;
  status: { status_code: 'UNSET' | 'OK' | 'ERROR'; description: string | null };
  attributes: Record<string, unknown>;
  events: { name: string; attributes: Record<string, unknown>; timestamp: number | null }[];
  links: { context: { trace_id: string; span_id: string } }[];
  start_time: number | null;
  end_time: number | null;
}

export type SpanKind = 'call' | 'reward' | 'message' | 'exception' | 'span';

/** What a list shows of a span; the rest comes when it is opened. */
export interface SpanRow {
  sequence_id: number;
  span_id: string;
  trace_id: string;
  parent_id?: string;
  name: string;
  start_time: number | null;
  end_time: number | null;
  status: 'UNSET' | 'OK' | 'ERROR';
  kind: SpanKind;
  prompt_tokens?: number;
  answer_tokens?: number;
  /** Of rewards that were computed later; those of the agent have none. */
  reward_set?: string;
  rewards?: { name: string; value: number }[];
  events?: { name: string; timestamp: number | null }[];
}

export interface Run {
  run_id: string;
  algorithm: string;
  config: Record<string, unknown>;
  seed: number;
  status: 'running' | 'succeeded' | 'failed' | 'interrupted';
  start_time: number;
  end_time: number | null;
  error: string;
}

export interface StepMetrics {
  step: number;
  time: number;
  values: Record<string, number>;
}

export interface Checkpoint {
  step: number;
  time: number;
  path: string;
  score: number | null;
  state: unknown;
}

export interface ExplainedCall {
  span_id: string;
  sequence_id: number;
  source: string;
  agent?: string;
  model?: string;
  version: number;
  finish_reason?: string;
  prompt_tokens: number;
  response_tokens: number;
  logprobs: boolean;
  reward: number | null;
  used: boolean;
  reason?: string;
  detail?: string;
  row: number | null;
  mismatch?: { with_span_id: string; with_sequence_id: number; position: number; want: number; got: number; where: string };
}

export interface ExplainedAttempt {
  attempt_id: string;
  sequence_id: number;
  status: string;
  reason?: string;
  detail?: string;
  reward: number | null;
  reward_span?: string;
  rewards: number;
  spans: number;
  rows: number;
  tokens: number;
  calls: ExplainedCall[];
}

export interface Explanation {
  rollout_id: string;
  status: string;
  models: { name: string; kind: string; url: string; model: string }[];
  attempts: ExplainedAttempt[];
  sums: { calls: number; calls_used: number; rows: number; tokens: number; mismatches: number; reasons: Record<string, number>; attempt_reasons: Record<string, number> };
  advice: string[];
}

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

export interface LogLine {
  position: number;
  time: number;
  level: LogLevel;
  message: string;
  attributes: Record<string, unknown>;
}

export interface LogPage {
  lines: LogLine[];
  first: number;
  last: number;
  /** How many lines at the beginning the server no longer has. */
  dropped: number;
  more: boolean;
}

export interface Worker {
  worker_id: string;
  status: 'idle' | 'busy' | 'unknown';
  heartbeat_stats: Record<string, unknown> | null;
  last_heartbeat_time: number | null;
  last_dequeue_time: number | null;
  last_busy_time: number | null;
  last_idle_time: number | null;
  current_rollout_id: string | null;
  current_attempt_id: string | null;
}

export interface ResourcesUpdate {
  resources_id: string;
  create_time: number;
  update_time: number;
  version: number;
  resources: Record<string, Record<string, unknown>>;
}

export interface Model {
  model: string;
  endpoint: string;
  version?: number;
  target?: string;
  kind?: string;
  weight?: number;
  concurrency?: number;
  rpm?: number;
  tpm?: number;
  key_given?: boolean;
  api_key_env?: string;
}

export interface PauseState {
  paused: boolean;
  retry_after_seconds: number;
  reason: string | null;
  inflight: number;
  owner?: string;
  lease_seconds?: number;
  hold?: boolean;
  held?: number;
}

export interface Statistics {
  name: string;
  total_rollouts: number;
  total_attempts: number;
  total_spans: number;
  total_resources: number;
  total_workers: number;
  uptime: number;
  total_span_bytes?: number;
  eviction_threshold_bytes?: number;
  safe_threshold_bytes?: number;
  memory_capacity_bytes?: number;
}

export interface Overview {
  time: number;
  rollouts: Record<RolloutStatus, number>;
  queue: { length: number; waiting_seconds: number };
}

export interface Capabilities {
  browse: boolean;
  events: boolean;
  delete: boolean;
  sorts: string[];
  browse_limit: number;
  browse_spans_limit: number;
  /** What can score rollouts again on the server. */
  rescore: string[];
  checks: boolean;
  prune: boolean;
  history: boolean;
  backends: boolean;
  version: string;
}

export interface Rescoring {
  rescore_id: string;
  set: string;
  scorer: string;
  status: 'running' | 'succeeded' | 'failed' | 'stopped';
  done: number;
  of: number;
  scored: number;
  already: number;
  failed: number;
  skipped: Record<string, number>;
  last_failure: string;
  error: string;
  mean_new: number | null;
  mean_old: number | null;
  start_time: number;
  end_time: number | null;
}

/** How a model backend fares; counts are since the server started. */
export interface Backend {
  model: string;
  endpoint: string;
  condition: 'paused' | 'key_missing' | 'unreachable' | 'failing' | 'unseen' | 'fine';
  since: number | null;
  reason: string;
  avoided: boolean;
  open: number;
  waiting: number;
  calls: number;
  failures: number;
  prompt_tokens: number;
  answer_tokens: number;
}

export interface BackendChange {
  time: number;
  /** Empty with the endpoint: all model calls. */
  model: string;
  endpoint: string;
  event: 'paused' | 'drained' | 'resumed' | 'unreachable' | 'failing' | 'recovered';
  reason: string;
  seconds: number | null;
}

export interface BackendReport {
  time: number;
  started: number;
  backends: Backend[];
  changes: BackendChange[];
}

type Series = (number | null)[];

export interface BackendHistory {
  model: string;
  endpoint: string;
  calls_per_second: Series;
  failures_per_second: Series;
  prompt_tokens_per_second: Series;
  answer_tokens_per_second: Series;
  latency_p50: Series;
  latency_p95: Series;
  open: Series;
}

/** How the server fared, at times that all series share. */
export interface History {
  started: number;
  step: number;
  times: number[];
  store: { bytes: Series; rollouts: Series; spans: Series; queue: Series; commits_per_second: Series };
  backends: BackendHistory[];
}

export interface PrunedCounts {
  rollouts: number;
  attempts: number;
  spans: number;
  log_lines: number;
  /** About. */
  bytes: number;
}

/** What deleting what ended before a moment would delete. */
export interface Prunable extends PrunedCounts {
  before: number;
  oldest: number | null;
  newest: number | null;
  complete: boolean;
  looked: number;
  stays: { open: number; later: number; runs: number; resources: number; workers: number };
}

export interface Pruning extends PrunedCounts {
  prune_id: string;
  before: number;
  status: 'running' | 'succeeded' | 'failed' | 'stopped';
  of: number | null;
  error: string;
  start_time: number;
  end_time: number | null;
}

/** What was seen of one thing that the server needs. */
export interface Check {
  level: 'ok' | 'warn' | 'bad';
  name: string;
  text: string;
  fix: string;
}
