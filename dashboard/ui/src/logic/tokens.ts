// The tokens of an attempt, and what training sees in them.
import type { Browsed, ExplainedAttempt, Rollout, Run, Span, StepMetrics } from '../types';
import { isCall } from './conversation';

export interface Token {
  id: number;
  /** What the engine said the token is; without it the id stands for it. */
  text: string;
  logprob: number | null;
  /** Log-probability under the policy in training; null when it was not trained on, or not kept. */
  trained: number | null;
  /** Log-probability when sampled less the trained one, in nats. */
  gap: number | null;
}

export interface CallTokens {
  span: Span;
  prompt: number[];
  answer: Token[];
  used: boolean;
  why: string;
  row: number | null;
}

export function numbers(v: unknown): number[] {
  return Array.isArray(v) ? v.filter((n): n is number => typeof n === 'number') : [];
}

export function callTokens(span: Span): { prompt: number[]; answer: Token[] } {
  const ids = numbers(span.attributes['response_token_ids']);
  const logprobs = numbers(span.attributes['response_logprobs']);
  let content: { token?: string; logprob?: number }[] = [];
  try {
    content = JSON.parse(typeof span.attributes['logprobs.content'] === 'string' ? span.attributes['logprobs.content'] : '[]') as typeof content;
  } catch {
    // ids are enough
  }
  return {
    prompt: numbers(span.attributes['prompt_token_ids']),
    answer: ids.map((id, i) => ({ id, text: content[i]?.token ?? `‹${id}›`, logprob: logprobs[i] ?? content[i]?.logprob ?? null, trained: null, gap: null })),
  };
}

/** The calls with their tokens, and whether training uses them. */
export function tokensOf(spans: Span[], explained: ExplainedAttempt | undefined): CallTokens[] {
  const calls = new Map(explained?.calls.map((c) => [c.span_id, c]));
  return spans
    .filter((s) => isCall(s))
    .sort((a, b) => a.sequence_id - b.sequence_id)
    .map((span) => {
      const c = calls.get(span.span_id);
      const used = c?.used === true && !explained?.reason;
      return { span, ...callTokens(span), used, why: c?.detail ?? c?.reason ?? explained?.detail ?? explained?.reason ?? '', row: c?.row ?? null };
    });
}

/** A colour for a log-probability: certain tokens are plain, surprising ones warm. */
export function logprobColour(logprob: number | null): string {
  if (logprob === null) return 'transparent';
  const surprise = Math.min(1, -logprob / 4);
  return `rgba(224, 100, 30, ${(surprise * 0.7).toFixed(3)})`;
}

/** Green for what is made more likely, red for less. */
export function advantageColour(advantage: number | null): string {
  if (advantage === null || advantage === 0) return 'transparent';
  const strength = (Math.min(1, Math.abs(advantage) / 2) * 0.55 + 0.08).toFixed(3);
  return advantage > 0 ? `rgba(30, 150, 80, ${strength})` : `rgba(210, 50, 50, ${strength})`;
}

/**
 * What a member of a group is worth beside the others: reward less mean, divided
 * by the standard deviation (GRPO, DeepSeekMath, equation for outcome rewards).
 * Null when there is nothing to compare with; 0 when all rewards are one.
 */
export function groupAdvantage(rewards: (number | null)[], i: number): number | null {
  const known = rewards.filter((r): r is number => r !== null);
  const own = rewards[i];
  if (own === null || own === undefined || known.length < 2) return null;
  const mean = known.reduce((a, b) => a + b, 0) / known.length;
  const spread = Math.sqrt(known.reduce((a, b) => a + (b - mean) ** 2, 0) / known.length);
  return spread < 1e-9 ? 0 : (own - mean) / spread;
}

/** The name of the spans in which steps keep what they computed of tokens. */
export const trainedSpan = 'agentlightning.trained';
const prefix = `${trainedSpan}.`;

/** What one step of a run kept of the tokens of an attempt. */
export interface Trained {
  spanID: string;
  run: string;
  step: number;
  tokens: number;
  /** Tokens that it trained on and did not list. */
  omitted: number;
  sum: number;
  /** Log-probabilities of a call's answer, by place. */
  calls: Map<string, Map<number, number>>;
}

export function trainedOf(span: Span): Trained {
  const a = span.attributes;
  const value = (name: string) => (typeof a[prefix + name] === 'number' ? (a[prefix + name] as number) : 0);
  const out: Trained = { spanID: span.span_id, run: typeof a[`${prefix}run_id`] === 'string' ? (a[`${prefix}run_id`] as string) : '', step: value('step'), tokens: value('tokens'), omitted: value('omitted'), sum: value('gap'), calls: new Map() };
  for (let i = 0; ; i++) {
    const call = a[`${prefix}call.${i}.span_id`];
    if (typeof call !== 'string') return out;
    const logprobs = numbers(a[`${prefix}call.${i}.logprobs`]);
    const positions = a[`${prefix}call.${i}.positions`] === undefined ? logprobs.map((_, j) => j) : numbers(a[`${prefix}call.${i}.positions`]);
    out.calls.set(call, new Map(positions.map((at, j) => [at, logprobs[j]!])));
  }
}

/** The calls with what a step computed of their tokens. */
export function withTrained(calls: CallTokens[], trained: Trained | undefined): CallTokens[] {
  if (trained === undefined) return calls;
  return calls.map((c) => {
    const known = trained.calls.get(c.span.span_id);
    if (known === undefined) return c;
    return {
      ...c,
      answer: c.answer.map((t, i) => {
        const v = known.get(i) ?? null;
        return { ...t, trained: v, gap: v === null || t.logprob === null ? null : t.logprob - v };
      }),
    };
  });
}

export interface Far {
  call: Span;
  position: number;
  token: Token;
}

/** The tokens with the largest gaps, the furthest from 0 first. */
export function furthest(calls: CallTokens[], most: number): Far[] {
  return calls
    .flatMap((c) => c.answer.map((token, position) => ({ call: c.span, position, token })))
    .filter((f) => f.token.gap !== null && f.token.gap !== 0)
    .sort((a, b) => Math.abs(b.token.gap!) - Math.abs(a.token.gap!))
    .slice(0, most);
}

/** Warm where the policy that sampled was surer of a token than the one in training, blue where it was less. */
export function gapColour(gap: number | null): string {
  if (gap === null || gap === 0) return 'transparent';
  const strength = (Math.min(1, Math.abs(gap)) * 0.6 + 0.06).toFixed(3);
  return gap > 0 ? `rgba(224, 100, 30, ${strength})` : `rgba(40, 120, 220, ${strength})`;
}

/** The metric that counts the tokens of which a step kept something. */
const gapTokens = 'logprob_gap/tokens';

/** Why the learner of a run keeps nothing of tokens; undefined when it does. */
export function learnerSilence(run: Pick<Run, 'algorithm' | 'status'>, metrics: StepMetrics[]): string | undefined {
  if (run.algorithm !== 'pg') return `The algorithm ${run.algorithm} does not compare the policy in training with the one that sampled; policy gradients (pg) do.`;
  const trained = metrics.filter((m) => m.step > 0);
  if (trained.length === 0) return run.status === 'running' ? 'No step of the run has ended yet.' : 'The run ended before its first step.';
  if (trained.some((m) => (m.values[gapTokens] ?? 0) > 0)) return undefined;
  if (trained.every((m) => m.values[gapTokens] === undefined)) return 'No step of the run kept the log-probabilities of its learner: nothing was trained on, or an older version recorded it.';
  return 'The learner of the run does not tell the log-probabilities of tokens. The built-in model does; a trainer command may write them to AGL_TRAIN_LOGPROBS; fine-tuning services do not say.';
}

/** Why there is no gap to show of a rollout. */
export function whyNoGap(rollout: Pick<Rollout, 'mode' | 'metadata'>, run: Pick<Run, 'algorithm' | 'status'> | null | undefined, metrics: StepMetrics[], left: string): string {
  if (rollout.mode === 'val' || rollout.mode === 'test') return 'Rollouts for validation and tests are not trained on, so there is no policy in training to compare with.';
  if (!run) return 'No step of a run has trained on this rollout, so there is no policy in training to compare with.';
  return learnerSilence(run, metrics) ?? `No step has trained on this rollout${left === '' ? ': its step has not ended, its group taught nothing, or it was left out' : `: ${left}`}.`;
}

/** The gap over rollouts that a run has trained on, and those with the largest of a token; null when nothing was kept. */
export function gapOf(items: Browsed[], run: string): { sum: number; tokens: number; mean: number; largest: Browsed[] } | null {
  const known = items.filter((r) => r.digest.gap?.run_id === run && r.digest.gap.tokens > 0);
  if (known.length === 0) return null;
  const sum = known.reduce((a, r) => a + r.digest.gap!.sum, 0);
  const tokens = known.reduce((a, r) => a + r.digest.gap!.tokens, 0);
  const largest = [...known].sort((a, b) => Math.abs(b.digest.gap!.largest) - Math.abs(a.digest.gap!.largest)).slice(0, 5);
  return { sum, tokens, mean: sum / tokens, largest };
}
