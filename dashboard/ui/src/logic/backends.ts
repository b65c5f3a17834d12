// How model backends fare, in words.
import type { Backend, BackendChange, BackendHistory, History } from '../types';
import { bytes, duration, number } from './format';

/** How a backend fares, in a word or two. */
export const conditions: Record<Backend['condition'], string> = {
  fine: 'ok',
  unseen: 'not called yet',
  paused: 'paused',
  failing: 'failing',
  unreachable: 'cannot be reached',
  key_missing: 'key missing',
};

/** What happened, in a few words. */
export const events: Record<BackendChange['event'], string> = {
  paused: 'paused',
  drained: 'drained: no open call',
  resumed: 'resumed',
  unreachable: 'could not be reached, and was avoided',
  failing: 'failed three calls in a row',
  recovered: 'answers again',
};

function last(values: (number | null)[], most: number): number[] {
  return values.slice(-most).filter((v): v is number => v !== null);
}

function mean(values: number[]): number | null {
  return values.length === 0 ? null : values.reduce((a, b) => a + b, 0) / values.length;
}

function median(values: number[]): number | null {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? null;
}

export interface Pace {
  calls: number | null;
  failures: number | null;
  promptTokens: number | null;
  answerTokens: number | null;
  p50: number | null;
  p95: number | null;
}

/** What a backend did in the last minute: means of rates, the middle one of latencies. */
export function pace(h: History | undefined, model: string, endpoint: string): Pace {
  const b = h?.backends.find((b) => b.model === model && b.endpoint === endpoint);
  if (!h || !b) return { calls: null, failures: null, promptTokens: null, answerTokens: null, p50: null, p95: null };
  const n = Math.max(1, Math.round(60 / h.step));
  return {
    calls: mean(last(b.calls_per_second, n)),
    failures: mean(last(b.failures_per_second, n)),
    promptTokens: mean(last(b.prompt_tokens_per_second, n)),
    answerTokens: mean(last(b.answer_tokens_per_second, n)),
    p50: median(last(b.latency_p50, n)),
    p95: median(last(b.latency_p95, n)),
  };
}

/** The sum of a series over all backends; null where none is known. */
export function total(h: History, of: (b: BackendHistory) => (number | null)[]): (number | null)[] {
  return h.times.map((_, i) => {
    const known = h.backends.map((b) => of(b)[i] ?? null).filter((v): v is number => v !== null);
    return known.length === 0 ? null : known.reduce((a, b) => a + b, 0);
  });
}

/** How many times the median of the others, or of its own time before, makes a backend slow. */
const slower = 3;
/** Below so many seconds nothing is slow. */
const slowFrom = 1;

export interface Trouble {
  model: string;
  endpoint: string;
  what: string;
  /** Unix seconds; null when nobody knows. */
  since: number | null;
  why: string;
}

/** Which backend is failing or slow, since when, and why; the worst first. */
export function troubles(backends: Backend[], h: History | undefined): Trouble[] {
  const out: Trouble[] = [];
  for (const b of backends) {
    if (b.condition === 'unreachable' || b.condition === 'failing' || b.condition === 'key_missing') {
      out.push({ model: b.model, endpoint: b.endpoint, what: conditions[b.condition], since: b.since, why: b.reason });
    }
  }
  for (const b of backends) if (b.condition === 'paused') out.push({ model: b.model, endpoint: b.endpoint, what: 'paused', since: b.since, why: b.reason });
  for (const b of backends) {
    if (h === undefined || b.condition !== 'fine') continue;
    const slow = slowness(h, b);
    if (slow) out.push({ model: b.model, endpoint: b.endpoint, what: 'slow', ...slow });
  }
  for (const b of backends) {
    if (b.waiting > 0) out.push({ model: b.model, endpoint: b.endpoint, what: 'full', since: null, why: `${number(b.waiting)} call${b.waiting === 1 ? ' waits' : 's wait'} for its limits` });
  }
  return out;
}

function slowness(h: History, b: Backend): { since: number | null; why: string } | null {
  const now = pace(h, b.model, b.endpoint).p50;
  if (now === null || now < slowFrom) return null;
  const others = h.backends.filter((o) => o.model === b.model && o.endpoint !== b.endpoint);
  const theirs = median(others.map((o) => pace(h, o.model, o.endpoint).p50).filter((v): v is number => v !== null));
  const own = h.backends.find((o) => o.model === b.model && o.endpoint === b.endpoint)!.latency_p50;
  const n = Math.max(1, Math.round(60 / h.step));
  const before = median(own.slice(0, -n).filter((v): v is number => v !== null));
  const [usual, whose] = theirs !== null && now >= slower * theirs ? [theirs, 'the other backends of the model take'] : before !== null && now >= slower * before ? [before, 'it took before'] : [null, ''];
  if (usual === null) return null;
  // It began after the last time at which it was not slow.
  let at = own.length - 1;
  while (at > 0 && (own[at - 1] === null || own[at - 1]! >= slower * usual)) at--;
  while (at < own.length - 1 && own[at] === null) at++;
  return { since: h.times[at] ?? null, why: `half of its calls take more than ${duration(now)}; ${whose} ${duration(usual)}` };
}

/** How fast the store grew over a history, in words. */
export function growth(h: History): string {
  const ends = (values: (number | null)[]) => {
    const first = values.findIndex((v) => v !== null);
    const lastAt = values.findLastIndex((v) => v !== null);
    return first < 0 || lastAt === first ? null : (values[lastAt]! - values[first]!) / (h.times[lastAt]! - h.times[first]!);
  };
  const size = ends(h.store.bytes);
  const spans = ends(h.store.spans);
  const parts: string[] = [];
  if (spans !== null) parts.push(`${number(spans)} spans / s`);
  if (size !== null) parts.push(`${size < 0 ? '−' : ''}${bytes(Math.abs(Math.round(size * 3600)))} / h`);
  return parts.join(', ');
}
