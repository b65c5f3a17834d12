import { useRef, useState } from 'react';

export interface Sample {
  at: number;
  values: Record<string, number>;
}

const most = 720;

/** What a page has seen of some numbers since it was opened, the newest last. */
export function useHistory(at: number | undefined, values: Record<string, number>): Sample[] {
  const [list, setList] = useState<Sample[]>([]);
  const seen = useRef(0);
  // A new look at the server is what adds to the history, so it is added while
  // drawing, before anything of it is shown.
  /* eslint-disable react-hooks/refs */
  if (at !== undefined && at > seen.current) {
    seen.current = at;
    setList([...list.slice(1 - most), { at, values }]);
  }
  /* eslint-enable react-hooks/refs */
  return list;
}
