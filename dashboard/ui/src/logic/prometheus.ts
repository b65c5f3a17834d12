// Numbers out of the text that Prometheus reads.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const line = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const label = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** The samples whose names begin with a prefix. */
export function samples(text: string, prefix: string): Sample[] {
  const out: Sample[] = [];
  for (const l of text.split('\n')) {
    if (!l.startsWith(prefix)) continue;
    const m = line.exec(l);
    if (!m) continue;
    const labels: Record<string, string> = {};
    for (const [, key, value] of (m[2] ?? '').matchAll(label)) labels[key!] = value!.replace(/\\(["\\])/g, '$1').replaceAll('\\n', '\n');
    const value = m[3] === '+Inf' ? Infinity : Number(m[3]);
    if (!Number.isNaN(value)) out.push({ name: m[1]!, labels, value });
  }
  return out;
}

export function sum(list: Sample[], name: string, labels: Record<string, string> = {}): number {
  return list.filter((s) => s.name === name && Object.entries(labels).every(([k, v]) => s.labels[k] === v)).reduce((a, s) => a + s.value, 0);
}

/** A quantile out of the buckets of a histogram, between bounds as if values were spread evenly. */
export function quantile(list: Sample[], name: string, q: number, labels: Record<string, string> = {}): number | null {
  const byBound = new Map<number, number>();
  for (const s of list) {
    if (s.name !== `${name}_bucket` || !Object.entries(labels).every(([k, v]) => s.labels[k] === v)) continue;
    const bound = s.labels['le'] === '+Inf' ? Infinity : Number(s.labels['le']);
    byBound.set(bound, (byBound.get(bound) ?? 0) + s.value);
  }
  const buckets = [...byBound].sort((a, b) => a[0] - b[0]);
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total === 0) return null;
  let before = 0;
  let low = 0;
  for (const [bound, count] of buckets) {
    if (count >= q * total) {
      if (bound === Infinity) return low;
      return low + ((bound - low) * (q * total - before)) / Math.max(count - before, 1);
    }
    before = count;
    low = bound;
  }
  return low;
}
