// Numbers and times as people read them.

const dash = '–';

export function number(n: number | null | undefined, digits = 3): string {
  if (n === null || n === undefined || !Number.isFinite(n)) return dash;
  if (Number.isInteger(n)) return n.toLocaleString('en-GB');
  const size = Math.abs(n);
  if (size >= 1000) return Math.round(n).toLocaleString('en-GB');
  if (size < 0.001) return n.toExponential(1);
  return String(Number(n.toPrecision(digits)));
}

export function bytes(n: number | null | undefined): string {
  if (n === null || n === undefined) return dash;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 ? n : n.toFixed(n < 10 ? 1 : 0)} ${units[i]}`;
}

/** A time of so many seconds: 8 ms, 1.5 s, 2 m 05 s, 3 h 10 m, 2 d 4 h. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return dash;
  if (seconds < 0) seconds = 0;
  if (seconds < 0.001) return seconds === 0 ? '0 ms' : `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Number(seconds.toFixed(1))} s`;
  const s = Math.round(seconds);
  if (s < 3600) return `${Math.floor(s / 60)} m ${String(s % 60).padStart(2, '0')} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, '0')} m`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

const units: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };

/** The seconds of an age that a person writes: 12h, 1.5d, 2w; null when it is none. */
export function age(text: string): number | null {
  const m = /^\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*$/.exec(text);
  return m ? Number(m[1]) * units[m[2]!]! : null;
}

export function moment(t: number | null | undefined): string {
  if (t === null || t === undefined) return dash;
  const d = new Date(t * 1000);
  const two = (n: number) => String(n).padStart(2, '0');
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** A time beside a curve whose marks are so many seconds apart. */
export function tickTime(t: number, step: number): string {
  const all = moment(t);
  if (step >= units['d']!) return all.slice(0, 10);
  return all.slice(11, step < units['m']! ? 19 : 16);
}

/** How long ago a time was. */
export function ago(t: number | null | undefined, now: number): string {
  if (t === null || t === undefined) return dash;
  const s = now - t;
  if (s < 5) return 'just now';
  return `${duration(Math.round(s))} ago`;
}

/** One line of a value: a text as it is, anything else as JSON. */
export function oneLine(v: unknown, most = 300): string {
  const text = (typeof v === 'string' ? v : (JSON.stringify(v) ?? dash)).replace(/\s+/g, ' ');
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** The part of a task that says what is asked, when it is one of the usual members. */
export function task(input: unknown, most = 300): string {
  if (input !== null && typeof input === 'object' && !Array.isArray(input)) {
    for (const key of ['question', 'prompt', 'task', 'instruction', 'query', 'input', 'problem', 'text']) {
      const v = (input as Record<string, unknown>)[key];
      if (typeof v === 'string' && v !== '') return oneLine(v, most);
    }
  }
  return oneLine(input, most);
}

/** A name of the protocol in words: no_token_ids is "no token ids". */
export function words(name: string): string {
  return name.replaceAll('_', ' ');
}

/** A member of metadata as a text: a string as it is, anything else as JSON. */
export function member(metadata: Record<string, unknown> | null | undefined, key: string): string | undefined {
  const v = metadata?.[key];
  if (v === undefined || v === null) return undefined;
  return typeof v === 'string' ? v : JSON.stringify(v);
}

/** How many rollouts a list has, and among which they were found when the server did not look at all of them. */
export function summary(page: { total: number; examined: number; complete: boolean }, sort: string | null): string {
  if (page.complete) return `${number(page.total)} rollout${page.total === 1 ? '' : 's'}`;
  const end = sort === 'start_time' ? 'oldest' : 'newest';
  const found = page.total === page.examined ? `The ${number(page.examined)} ${end}` : `${number(page.total)} found among the ${number(page.examined)} ${end} that were looked at`;
  const sorted = sort !== null && !sort.endsWith('start_time');
  return `${found}${sorted ? ', sorted among themselves' : ''}: narrow by run, time or status to reach the rest`;
}
