// Is it learning, and if not, why? Read off the metrics that algorithms record.
import type { StepMetrics } from '../types';
import { number, words } from './format';

export interface Point {
  step: number;
  time: number;
  value: number;
}

/** Names of trackers, under which runs record, and the short ones that are used here. */
const shortNames: Record<string, string> = {
  'val/reward': 'validation_reward',
  'val/n_rollouts_failed': 'validation_failed',
  'training/n_rollouts': 'rollouts',
  'training/n_rollouts_failed': 'rollouts_failed',
  'training/n_sample': 'rows',
  'training/n_turns': 'calls',
  'training/n_trace_merge_mismatch_rows': 'prefix_mismatches',
  'training/n_sampled_tokens': 'sampled_tokens',
  'training/n_groups': 'groups',
  'training/n_zero_adv_groups': 'groups_constant',
  'perf/total_num_tokens': 'tokens',
  'timing_s/step': 'seconds',
  'timing_s/gen': 'seconds_rollouts',
  'actor/grad_norm': 'grad_norm',
  'actor/entropy_loss': 'entropy',
  'actor/pg_clipfrac': 'clip_fraction',
  'actor/ppo_kl': 'approx_kl',
  'actor/pg_loss': 'loss',
};

/** The same metrics under short names. */
export function shorten(metrics: StepMetrics[]): StepMetrics[] {
  return metrics.map((m) => ({
    ...m,
    values: Object.fromEntries(Object.entries(m.values).map(([k, v]) => [shortNames[k] ?? k.replace(/^training\//, ''), v])),
  }));
}

export function series(metrics: StepMetrics[], key: string): Point[] {
  return metrics.flatMap((m) => {
    const value = m.values[key];
    return value === undefined ? [] : [{ step: m.step, time: m.time, value }];
  });
}

/** Metrics that say how good the agent is, the most telling one first. */
const goals = ['reward', 'reward_mean', 'score', 'best_score', 'validation_reward', 'accuracy', 'validation_score'];
/** Those that are measured on tasks that are not trained on. */
const validations = ['validation_reward', 'accuracy', 'validation_accuracy', 'validation_score', 'validation'];
const losses = ['loss', 'validation_loss'];

export function keysOf(metrics: StepMetrics[]): string[] {
  const keys = new Set<string>();
  for (const m of metrics) for (const k of Object.keys(m.values)) keys.add(k);
  return [...keys].sort();
}

/** The curve that answers whether a run learns, and the one on unseen tasks. */
export function mainKeys(metrics: StepMetrics[]): { goal: string | undefined; validation: string | undefined; lowerIsBetter: boolean } {
  const keys = new Set(keysOf(metrics));
  const validation = validations.find((k) => keys.has(k) && series(metrics, k).length > 0);
  const goal = goals.find((k) => keys.has(k) && series(metrics, k).length > 0);
  if (goal !== undefined) return { goal, validation: validation === goal ? undefined : validation, lowerIsBetter: false };
  return { goal: losses.find((k) => keys.has(k)), validation, lowerIsBetter: true };
}

export interface Verdict {
  word: 'learning' | 'flat' | 'getting worse' | 'too early to say' | 'learned' | 'no curve';
  sentence: string;
}

function mean(values: number[]): number {
  return values.reduce((a, b) => a + b, 0) / values.length;
}

/** The standard deviation of what is left of a curve when its trend is taken off, by its second differences. */
function noiseOf(values: number[]): number {
  const bends = values.slice(1, -1).map((v, i) => values[i]! - 2 * v + values[i + 2]!);
  return Math.sqrt(mean(bends.map((b) => b * b)) / 6);
}

/**
 * Compares the first quarter of the curve with the last one. A difference counts
 * when it is more than twice its standard error and more than 2 % of the range
 * that a curve between 0 and 1 has.
 */
export function verdict(metrics: StepMetrics[], running: boolean): Verdict {
  const { goal, lowerIsBetter } = mainKeys(metrics);
  if (goal === undefined) return { word: 'no curve', sentence: 'This run has recorded no reward, score or loss yet.' };
  const curve = series(metrics, goal);
  const name = words(goal);
  const last = curve.at(-1)!;
  if (curve.length < 4) {
    return { word: 'too early to say', sentence: `${begin(name)} is ${number(last.value)} after ${curve.length} measured step${curve.length === 1 ? '' : 's'}.` };
  }
  const quarter = Math.max(2, Math.floor(curve.length / 4));
  const first = curve.slice(0, quarter).map((p) => p.value);
  const late = curve.slice(-quarter).map((p) => p.value);
  const from = mean(first);
  const to = mean(late);
  const noise = noiseOf(curve.map((p) => p.value)) * Math.sqrt(2 / quarter);
  const gain = lowerIsBetter ? from - to : to - from;
  const sentence = `${begin(name)} went from ${number(from)} to ${number(to)} (first and last quarter of ${curve.length} steps).`;
  const counts = Math.abs(gain) > Math.max(2 * noise, 0.02 * Math.max(Math.abs(from), Math.abs(to), 0.1));
  if (!counts) return { word: 'flat', sentence };
  if (gain < 0) return { word: 'getting worse', sentence };
  return { word: running ? 'learning' : 'learned', sentence };
}

/** How much something matters, the worst first. A note is too small to hold a run back. */
const severities = ['bad', 'warn', 'note'] as const;
export type Severity = (typeof severities)[number];

/** The share of calls or rollouts below which their loss is a note. */
const small = 0.01;

export interface Hint {
  severity: Severity;
  text: string;
  /** Filter of the list of rollouts that shows it. */
  filter?: Record<string, string>;
}

/** A number with what it is a part of, so that a few are not taken for many. */
function shareOf(part: number, all: number, what: string): string {
  if (all < part) return `${number(part)} ${what}`;
  const percent = (100 * part) / all;
  return `${number(part)} of ${number(all)} ${what} (${percent < 0.1 ? 'less than 0.1' : number(percent, 2)} %)`;
}

/** The first letter of a sentence. */
function begin(sentence: string): string {
  return sentence.charAt(0).toUpperCase() + sentence.slice(1);
}

/** What in the newest metrics may keep a run from learning, the worst first. */
export function hints(metrics: StepMetrics[], runID: string): Hint[] {
  const recent = metrics.slice(-5);
  const sum = (key: string) => series(recent, key).reduce((a, p) => a + p.value, 0);
  const latest = (key: string) => series(metrics, key).at(-1)?.value;
  const out: Hint[] = [];
  const bad = (text: string, filter?: Record<string, string>) => out.push({ severity: 'bad', text, filter });
  const warn = (text: string, filter?: Record<string, string>) => out.push({ severity: 'warn', text, filter });
  const lost = (part: number, all: number, what: string, became: string, filter: Record<string, string>) =>
    out.push({ severity: part < small * all ? 'note' : part >= all / 2 && part <= all ? 'bad' : 'warn', text: `${shareOf(part, all, what)} of ${span} ${became}.`, filter });
  const span = recent.length === 1 ? 'the last step' : `the last ${recent.length} steps`;

  const calls = sum('calls');
  const left = sum('calls_left_out');
  if (left > 0) lost(left, calls, 'model calls', 'were left out of training', { run_id: runID, problem: 'any' });
  const failed = sum('rollouts_failed') + sum('validation_failed');
  if (failed > 0) lost(failed, sum('rollouts'), 'rollouts', 'failed', { run_id: runID, status: 'failed' });
  const groups = sum('groups');
  const constant = sum('groups_constant');
  if (groups > 0 && constant / groups > 0.6) {
    const reward = latest('reward');
    const easy = reward !== undefined && reward > 0.8;
    (easy ? warn : bad)(
      `${Math.round((100 * constant) / groups)} % of the groups of ${span} have one reward for all members and teach nothing: ` +
        (easy ? 'the tasks are too easy by now.' : 'the tasks are too hard, or the reward does not tell answers apart.'),
      { run_id: runID, reward_max: '0' },
    );
  }
  if (sum('rewards_not_finite') > 0) bad(`${number(sum('rewards_not_finite'))} rewards of ${span} were not finite numbers.`, { run_id: runID });
  if (sum('rows_without_logprobs') > 0) bad(`${number(sum('rows_without_logprobs'))} rows of ${span} had no log-probabilities: ask the model backend for them.`, { run_id: runID });
  if (sum('prefix_mismatches') > 0) warn(`${number(sum('prefix_mismatches'))} calls of ${span} did not continue the one before token by token.`, { run_id: runID });
  const kl = latest('approx_kl');
  if (kl !== undefined && kl > 0.1) bad(`The policy moves far in one step (approx. KL ${number(kl)}): lower the learning rate.`);
  const clip = latest('clip_fraction');
  if (clip !== undefined && clip > 0.3) warn(`${Math.round(clip * 100)} % of the tokens are clipped: the update is larger than the method trusts.`);
  const entropy = series(metrics, 'entropy');
  if (entropy.length > 3 && entropy.at(-1)!.value < 0.02 && (latest('reward') ?? 1) < 0.8) {
    bad(`Entropy fell to ${number(entropy.at(-1)!.value)}: the policy always answers the same.`);
  }
  if (latest('grad_norm') === 0) bad('The gradient of the last step was zero: nothing was learned from it.');
  return out.sort((a, b) => severities.indexOf(a.severity) - severities.indexOf(b.severity));
}

/** Exponential smoothing: 0 leaves values alone, towards 1 they follow slowly. */
export function smooth(values: (number | null)[], factor: number): (number | null)[] {
  let s: number | null = null;
  return values.map((v) => {
    if (v === null) return null;
    s = s === null ? v : factor * s + (1 - factor) * v;
    return s;
  });
}
