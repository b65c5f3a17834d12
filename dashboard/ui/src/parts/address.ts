import { useSearchParams } from 'react-router-dom';

/** What the address says after the question mark, and how to change some of it without a step back to each change. Null takes a value out. */
export function useAddress(): [URLSearchParams, (values: Record<string, string | null>) => void] {
  const [q, setQ] = useSearchParams();
  const set = (values: Record<string, string | null>) =>
    setQ(
      (old) => {
        const next = new URLSearchParams(old);
        for (const [k, v] of Object.entries(values)) {
          if (v === null) next.delete(k);
          else next.set(k, v);
        }
        return next;
      },
      { replace: true },
    );
  return [q, set];
}
