import { useSyncExternalStore } from 'react';

// One clock for the whole page, which ticks while anybody looks at it.
let now = Date.now() / 1000;
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(f: () => void): () => void {
  listeners.add(f);
  timer ??= setInterval(() => {
    now = Date.now() / 1000;
    listeners.forEach((l) => l());
  }, 5000);
  return () => {
    listeners.delete(f);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The present time in seconds, a few seconds old at the most. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}
