// The tokens of an attempt, and what training sees in them.
import type { ExplainedAttempt, Span } from '../types';
import { isCall } from './conversation';

export interface Token {
  id: number;
  /** What the engine said the token is; without it the id stands for it. */
  text: string;
  logprob: number | null;
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
    answer: ids.map((id, i) => ({ id, text: content[i]?.token ?? `‹${id}›`, logprob: logprobs[i] ?? content[i]?.logprob ?? null })),
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
