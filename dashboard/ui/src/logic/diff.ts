// The difference of two texts, line by line, and of two values, member by member.

export interface Line {
  kind: 'same' | 'removed' | 'added';
  text: string;
}

/** The shortest list of removals and additions (longest common subsequence). */
export function diffLines(before: string, after: string): Line[] {
  const a = before.split('\n');
  const b = after.split('\n');
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const same = (text: string): Line => ({ kind: 'same', text });
  const out = a.slice(0, head).map(same);
  out.push(...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)));
  out.push(...a.slice(a.length - tail).map(same));
  return out;
}

function middle(a: string[], b: string[]): Line[] {
  const removed = (text: string): Line => ({ kind: 'removed', text });
  const added = (text: string): Line => ({ kind: 'added', text });
  if (a.length * b.length > 4_000_000) return [...a.map(removed), ...b.map(added)];
  const width = b.length + 1;
  const best = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      best[i * width + j] = a[i] === b[j] ? best[(i + 1) * width + j + 1]! + 1 : Math.max(best[(i + 1) * width + j]!, best[i * width + j + 1]!);
    }
  }
  const out: Line[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      out.push({ kind: 'same', text: a[i]! });
      i++;
      j++;
    } else if (best[(i + 1) * width + j]! >= best[i * width + j + 1]!) out.push(removed(a[i++]!));
    else out.push(added(b[j++]!));
  }
  return [...out, ...a.slice(i).map(removed), ...b.slice(j).map(added)];
}

export interface Difference {
  path: string;
  values: unknown[];
}

function flatten(v: unknown, path: string, into: Map<string, unknown>): void {
  if (v !== null && typeof v === 'object' && !Array.isArray(v) && Object.keys(v).length > 0) {
    for (const [k, x] of Object.entries(v)) flatten(x, path === '' ? k : `${path}.${k}`, into);
  } else into.set(path, v);
}

/** The members in which values differ; a value without a member has undefined there. */
export function differences(values: unknown[]): Difference[] {
  const flat = values.map((v) => {
    const m = new Map<string, unknown>();
    flatten(v, '', m);
    return m;
  });
  const paths = [...new Set(flat.flatMap((m) => [...m.keys()]))].sort();
  return paths
    .map((path) => ({ path, values: flat.map((m) => m.get(path)) }))
    .filter(({ values: vs }) => vs.some((v) => JSON.stringify(v) !== JSON.stringify(vs[0])));
}
