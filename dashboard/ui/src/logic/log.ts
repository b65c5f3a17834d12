// The log of a run as a page holds it: parts that come one by one, what of them
// is shown, and where in it something went wrong.
import type { LogLevel, LogLine, LogPage } from '../types';

export const logLevels: readonly LogLevel[] = ['debug', 'info', 'warn', 'error'];

/** What a page has of a log: lines without a gap up to the newest one. */
export interface Log {
  lines: LogLine[];
  /** Position of the oldest line that the server keeps. */
  first: number;
  last: number;
}

/** Whether a part goes on from what is known. Otherwise the run is another one, or lines went before they were read. */
export function goesOn(known: Log, part: LogPage): boolean {
  return part.last >= known.last && part.first <= known.last + 1;
}

/** Adds a part that goes on; what the server no longer keeps goes. */
export function append(known: Log, part: LogPage): Log {
  if (part.lines.length === 0 && part.first === known.first && part.last === known.last) return known;
  const lines = [...known.lines, ...part.lines];
  const gone = lines.findIndex((l) => l.position >= part.first);
  return { lines: gone > 0 ? lines.slice(gone) : gone < 0 ? [] : lines, first: part.first, last: part.lines.at(-1)?.position ?? known.last };
}

/** Older lines and the newer ones, each position once, as far as the server keeps them. */
export function join(older: LogLine[], log: Log): LogLine[] {
  const from = log.lines[0]?.position ?? log.last + 1;
  const kept = older.filter((l) => l.position >= log.first && l.position < from);
  return kept.length === 0 ? log.lines : [...kept, ...log.lines];
}

const rank = (l: LogLevel) => logLevels.indexOf(l);

/** Lines of a level and above with a text in the message or the attributes, whatever its case. */
export function matching(lines: LogLine[], level: LogLevel, text: string): LogLine[] {
  const part = text.trim().toLowerCase();
  if (part === '' && level === 'debug') return lines;
  return lines.filter((l) => rank(l.level) >= rank(level) && (part === '' || l.message.toLowerCase().includes(part) || attributesText(l).toLowerCase().includes(part)));
}

/** The attributes as key=value, texts with blanks in quotes, numbers to six digits. That a line is of the run whose log it is in goes without saying. */
export function attributesText(l: LogLine, run?: string): string {
  return Object.entries(l.attributes)
    .filter(([k, v]) => k !== 'run_id' || v !== run)
    .map(([k, v]) => `${k}=${attributeText(v)}`)
    .join(' ');
}

function attributeText(v: unknown): string {
  if (typeof v === 'number' && !Number.isInteger(v)) return String(Number(v.toPrecision(6)));
  return typeof v === 'string' && v !== '' && !/[\s"=]/.test(v) ? v : JSON.stringify(v);
}

export function counts(lines: LogLine[]): Record<LogLevel, number> {
  const n = { debug: 0, info: 0, warn: 0, error: 0 };
  for (const l of lines) n[l.level]++;
  return n;
}

/** Where warnings and errors are, by parts of the whole; of a part the worst counts. */
export function marks(lines: LogLine[], parts: number): { at: number; row: number; level: 'warn' | 'error' }[] {
  const worst = new Map<number, { row: number; level: 'warn' | 'error' }>();
  lines.forEach((l, row) => {
    if (l.level !== 'warn' && l.level !== 'error') return;
    const part = Math.floor((row * parts) / lines.length);
    const known = worst.get(part);
    if (known === undefined || (known.level === 'warn' && l.level === 'error')) worst.set(part, { row, level: l.level });
  });
  return [...worst].map(([, m]) => ({ at: (m.row + 0.5) / lines.length, ...m }));
}

/** The next row of a level from a row on, in a direction; after the last comes the first. */
export function nextOf(lines: LogLine[], level: LogLevel, from: number, step: 1 | -1): number | null {
  for (let i = 1; i <= lines.length; i++) {
    const row = (((from + i * step) % lines.length) + lines.length) % lines.length;
    if (lines[row]!.level === level) return row;
  }
  return null;
}

/** A text in parts, those that are looked for marked. */
export function found(text: string, part: string): { text: string; hit: boolean }[] {
  const wanted = part.trim().toLowerCase();
  if (wanted === '') return [{ text, hit: false }];
  const lower = text.toLowerCase();
  const out: { text: string; hit: boolean }[] = [];
  let at = 0;
  // Letters whose lower case has another length would shift the marks.
  for (let i = lower.length === text.length ? lower.indexOf(wanted) : -1; i >= 0; i = lower.indexOf(wanted, at)) {
    if (i > at) out.push({ text: text.slice(at, i), hit: false });
    out.push({ text: text.slice(i, i + wanted.length), hit: true });
    at = i + wanted.length;
  }
  if (at < text.length) out.push({ text: text.slice(at), hit: false });
  return out;
}

/** The clock of a time with milliseconds. */
export function clock(t: number): string {
  const d = new Date(t * 1000);
  const two = (n: number) => String(n).padStart(2, '0');
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, '0')}`;
}

/** The page where the log of a run is. */
export function logPath(run: string): string {
  return `/runs/${encodeURIComponent(run)}?tab=log`;
}
