// Spans as a tree, in the order of their time.
import type { SpanRow } from '../types';
import { trainedSpan } from './tokens';

export interface Node {
  span: SpanRow;
  depth: number;
  children: number;
  /** The parent is named but not among the spans. */
  orphan: boolean;
}

/** Flattens the forest of spans, parents before children. */
export function tree(spans: SpanRow[]): Node[] {
  const byID = new Map(spans.map((s) => [s.span_id, s]));
  const children = new Map<string | undefined, SpanRow[]>();
  for (const s of spans) {
    const parent = s.parent_id !== undefined && byID.has(s.parent_id) && s.parent_id !== s.span_id ? s.parent_id : undefined;
    const list = children.get(parent);
    if (list) list.push(s);
    else children.set(parent, [s]);
  }
  for (const list of children.values()) list.sort((a, b) => a.sequence_id - b.sequence_id || (a.start_time ?? 0) - (b.start_time ?? 0));
  const out: Node[] = [];
  const seen = new Set<string>();
  const stack = (children.get(undefined) ?? []).map((span) => ({ span, depth: 0 })).reverse();
  while (stack.length > 0) {
    const { span, depth } = stack.pop()!;
    if (seen.has(span.span_id)) continue;
    seen.add(span.span_id);
    const below = children.get(span.span_id) ?? [];
    out.push({ span, depth, children: below.length, orphan: span.parent_id !== undefined && !byID.has(span.parent_id) });
    for (let i = below.length - 1; i >= 0; i--) stack.push({ span: below[i]!, depth: depth + 1 });
  }
  // Spans whose parents go round in a circle belong to no root.
  for (const span of spans) if (!seen.has(span.span_id)) out.push({ span, depth: 0, children: 0, orphan: true });
  return out;
}

function quote(s: string): string {
  return `"${s.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;
}

/** The tree in the language of Graphviz. */
export function asDot(spans: SpanRow[]): string {
  const lines = tree(spans).map(({ span }) => {
    const label = quote(`${span.sequence_id} ${span.name}`);
    const colour = span.status === 'ERROR' ? ', color=red' : '';
    return `  ${quote(span.span_id)} [label=${label}${colour}];`;
  });
  const edges = spans.filter((s) => s.parent_id !== undefined).map((s) => `  ${quote(s.parent_id!)} -> ${quote(s.span_id)};`);
  return ['digraph attempt {', '  node [shape=box, fontname="sans-serif"];', ...lines, ...edges, '}', ''].join('\n');
}

function escape(s: string): string {
  return s.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}

/** The tree beside its time line, as a picture. */
export function asSVG(spans: SpanRow[]): string {
  const nodes = tree(spans);
  const [from, to] = spanOfTime(spans);
  const width = 960;
  const left = 340;
  const x = (t: number | null) => left + Math.min(1, ((t ?? from) - from) / Math.max(to - from, 1e-9)) * (width - left - 20);
  const rows = nodes.map(({ span, depth }, i) => {
    const y = i * 22 + 8;
    const colour = span.status === 'ERROR' ? '#c92a2a' : '#1971c2';
    return (
      `<text x="${8 + depth * 14}" y="${y + 12}" font-size="12">${escape(`${span.sequence_id} ${span.name}`)}</text>` +
      `<rect x="${x(span.start_time).toFixed(1)}" y="${y + 2}" width="${Math.max(2, x(span.end_time ?? span.start_time) - x(span.start_time)).toFixed(1)}" height="12" fill="${colour}"/>`
    );
  });
  const height = nodes.length * 22 + 16;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-family="sans-serif"><rect width="100%" height="100%" fill="#fff"/>${rows.join('')}</svg>\n`;
}

/**
 * When an attempt began and ended. What was computed of it afterwards, rewards of
 * other sets and what training kept, would make its own time a dot.
 */
export function spanOfTime(spans: SpanRow[]): [number, number] {
  let from = Infinity;
  let to = -Infinity;
  for (const s of spans) {
    if (s.name === trainedSpan || s.reward_set !== undefined) continue;
    if (s.start_time !== null) from = Math.min(from, s.start_time);
    to = Math.max(to, s.end_time ?? s.start_time ?? to);
  }
  return from > to ? [0, 1e-6] : [from, Math.max(to, from + 1e-6)];
}
