// One stream of events a page keeps everything that is shown up to date.
import type { QueryClient } from '@tanstack/react-query';
import { useSyncExternalStore } from 'react';
import { ApiError, send } from './api';
import { backoff, eventReader } from './logic/sse';

export type LiveState = 'connecting' | 'live' | 'retrying' | 'denied';

interface Changes {
  n: number;
  ids: string[] | null;
}
type Happened = Partial<Record<'rollouts' | 'spans' | 'resources' | 'workers' | 'runs' | 'logs' | 'models', Changes>>;

/** Lists are read again this often at the most, however much happens. */
const calm = 1500;

export class Live {
  state: LiveState = 'connecting';
  /** Changes a second over the last few events, for people to see that it lives. */
  private listeners = new Set<() => void>();
  private stop: AbortController | undefined;
  private pending: Happened = {};
  private timer: ReturnType<typeof setTimeout> | undefined;
  private last = 0;

  constructor(private readonly client: QueryClient) {}

  subscribe = (f: () => void): (() => void) => {
    this.listeners.add(f);
    return () => this.listeners.delete(f);
  };

  private become(state: LiveState): void {
    if (state === this.state) return;
    this.state = state;
    this.listeners.forEach((f) => f());
  }

  start(): void {
    if (this.stop && !this.stop.signal.aborted) return;
    this.stop = new AbortController();
    void this.run(this.stop.signal);
  }

  end(): void {
    this.stop?.abort();
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private async run(signal: AbortSignal): Promise<void> {
    for (let tries = 0; !signal.aborted; tries++) {
      try {
        const res = await send('v1/agl/events', { signal, headers: { accept: 'text/event-stream' } });
        const body = res.body!.pipeThrough(new TextDecoderStream()).getReader();
        const read = eventReader();
        for (;;) {
          const { value, done } = await body.read();
          if (done) break;
          for (const e of read(value)) {
            if (e.event === 'open') {
              tries = 0;
              this.become('live');
              // What happened before, or while nobody listened, was not told.
              // The older lines of a log do not change.
              void this.client.invalidateQueries({ predicate: (q) => q.queryKey[0] !== 'log before' });
            } else if (e.event === 'change') this.gather(JSON.parse(e.data) as Happened);
          }
        }
      } catch (err) {
        if (signal.aborted) return;
        if (err instanceof ApiError && (err.status === 401 || err.status === 403)) {
          this.become('denied');
          return;
        }
      }
      this.become('retrying');
      await new Promise<void>((resolve) => {
        const t = setTimeout(resolve, backoff(tries, Math.random()));
        signal.addEventListener('abort', () => {
          clearTimeout(t);
          resolve();
        });
      });
    }
  }

  private gather(happened: Happened): void {
    for (const [noun, c] of Object.entries(happened) as [keyof Happened, Changes][]) {
      const known = this.pending[noun];
      const ids = known === undefined ? c.ids : known.ids === null || c.ids === null ? null : [...new Set([...known.ids, ...c.ids])];
      this.pending[noun] = { n: (known?.n ?? 0) + c.n, ids };
    }
    if (this.timer !== undefined) return;
    const wait = Math.max(0, this.last + calm - Date.now());
    this.timer = setTimeout(() => this.apply(), wait);
  }

  private apply(): void {
    this.timer = undefined;
    this.last = Date.now();
    const h = this.pending;
    this.pending = {};
    const again = (...key: unknown[]) => void this.client.invalidateQueries({ queryKey: key });
    const each = (c: Changes | undefined, noun: string) => {
      if (!c) return;
      if (c.ids === null) again(noun);
      else c.ids.forEach((id) => again(noun, id));
    };
    if (h.rollouts || h.spans) again('rollouts');
    if (h.rollouts) again('overview');
    each(h.rollouts, 'rollout');
    each(h.spans, 'rollout');
    if (h.workers) again('workers');
    if (h.resources) again('resources');
    if (h.models) again('models');
    if (h.runs) again('runs');
    each(h.runs, 'run');
    each(h.logs, 'log');
  }
}

export function useLive(live: Live): LiveState {
  return useSyncExternalStore(live.subscribe, () => live.state);
}
