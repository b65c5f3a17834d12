// The difference of two texts, line by line, and of two values, member by member.

export interface Line {
  kind: 'same' | 'removed' | 'added';
  text: string;
}

/** The shortest list of removals and additions (longest common subsequence). */
export function diffLines(before: string, after: string): Line[] {
  return diffTexts(before.split('\n'), after.split('\n'));
}

function diffTexts(a: string[], b: string[]): Line[] {
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

export interface Part {
  text: string;
  changed: boolean;
}

/** Two texts, each with the words marked that the other does not have in this place. */
export function diffWords(before: string, after: string): { before: Part[]; after: Part[] } {
  const cut = (text: string) => text.split(/([^\p{L}\p{N}_]+)/u).filter((w) => w !== '');
  const out = { before: [] as Part[], after: [] as Part[] };
  const add = (to: Part[], text: string, changed: boolean) => {
    const last = to.at(-1);
    if (last?.changed === changed) last.text += text;
    else to.push({ text, changed });
  };
  for (const { kind, text } of diffTexts(cut(before), cut(after))) {
    if (kind !== 'added') add(out.before, text, kind === 'removed');
    if (kind !== 'removed') add(out.after, text, kind === 'added');
  }
  return out;
}

/** One line of two lists side by side; a side without an item is undefined. */
export interface Beside<T> {
  before?: T;
  after?: T;
  same: boolean;
}

/**
 * Puts two lists side by side: what is in both in the same line, and between
 * that, what differs beside its counterpart of the same kind.
 */
export function sideBySide<T>(before: T[], after: T[], text: (t: T) => string, kind: (t: T) => string): Beside<T>[] {
  const out: Beside<T>[] = [];
  let i = 0;
  let j = 0;
  let removed: T[] = [];
  let added: T[] = [];
  const pair = () => {
    for (const a of removed) {
      const at = added.findIndex((b) => kind(b) === kind(a));
      if (at < 0) {
        out.push({ before: a, same: false });
        continue;
      }
      added.slice(0, at).forEach((b) => out.push({ after: b, same: false }));
      out.push({ before: a, after: added[at], same: false });
      added = added.slice(at + 1);
    }
    added.forEach((b) => out.push({ after: b, same: false }));
    removed = [];
    added = [];
  };
  for (const { kind: what } of diffTexts(before.map(text), after.map(text))) {
    if (what === 'removed') removed.push(before[i++]!);
    else if (what === 'added') added.push(after[j++]!);
    else {
      pair();
      out.push({ before: before[i++], after: after[j++], same: true });
    }
  }
  pair();
  return out;
}
