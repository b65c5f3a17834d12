// Spans of an attempt as the conversation that people would read.
import type { Span } from '../types';

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

export type Part = { type: 'text'; text: string } | { type: 'image'; url: string } | { type: 'other'; json: string };

export interface Message {
  role: string;
  parts: Part[];
  reasoning: string;
  toolCalls: ToolCall[];
  toolCallID: string;
  name: string;
}

export interface Turn {
  kind: 'message' | 'reward' | 'note' | 'exception' | 'thread';
  key: string;
  time: number | null;
  /** The span that it comes from; of an answer the model call. */
  span: Span;
  message?: Message;
  /** True for what the model wrote in this call, false for what it was given. */
  answer?: boolean;
  text?: string;
  rewards?: [string, number][];
}

const indexed = /^gen_ai\.(prompt|completion)\.(\d+)\.(.+)$/;
const called = /^tool_calls\.(\d+)\.(id|name|arguments)$/;

/** Messages of a call: what it was given and what it answered. */
export function messagesOf(span: Span): { prompt: Message[]; completion: Message[] } {
  const out = { prompt: [] as Message[], completion: [] as Message[] };
  for (const [key, value] of Object.entries(span.attributes)) {
    const m = indexed.exec(key);
    if (!m) continue;
    const list = out[m[1] as 'prompt' | 'completion'];
    const i = Number(m[2]);
    const field = m[3]!;
    list[i] ??= { role: m[1] === 'prompt' ? 'user' : 'assistant', parts: [], reasoning: '', toolCalls: [], toolCallID: '', name: '' };
    const msg = list[i];
    const call = called.exec(field);
    if (call) {
      const j = Number(call[1]);
      msg.toolCalls[j] ??= { id: '', name: '', arguments: '' };
      msg.toolCalls[j][call[2] as keyof ToolCall] = text(value);
    } else if (field === 'content') msg.parts = partsOf(value);
    else if (field === 'role') msg.role = text(value);
    else if (field === 'reasoning_content') msg.reasoning = text(value);
    else if (field === 'refusal' && value) msg.parts.push({ type: 'text', text: text(value) });
    else if (field === 'tool_call_id') msg.toolCallID = text(value);
    else if (field === 'name') msg.name = text(value);
  }
  // Indices may have holes when a recorder left a message out.
  out.prompt = out.prompt.filter(Boolean);
  out.completion = out.completion.filter(Boolean);
  for (const m of [...out.prompt, ...out.completion]) m.toolCalls = m.toolCalls.filter(Boolean);
  return out;
}

function text(v: unknown): string {
  return typeof v === 'string' ? v : JSON.stringify(v);
}

/** Content is a text, or the JSON of a list of parts. */
export function partsOf(content: unknown): Part[] {
  if (typeof content === 'string' && content.startsWith('[{')) {
    try {
      return (JSON.parse(content) as unknown[]).map(partOf);
    } catch {
      // a text that only begins like a list
    }
  }
  const s = text(content);
  return s === '' ? [] : [{ type: 'text', text: s }];
}

function partOf(p: unknown): Part {
  const part = p as { type?: string; text?: string; image_url?: { url?: string } | string };
  if (typeof part.text === 'string') return { type: 'text', text: part.text };
  const image = typeof part.image_url === 'string' ? part.image_url : part.image_url?.url;
  if (image !== undefined) return { type: 'image', url: image };
  return { type: 'other', json: JSON.stringify(p) };
}

export function isCall(s: Span): boolean {
  return s.name === 'openai.chat.completion' || 'gen_ai.completion.0.role' in s.attributes || 'gen_ai.completion.0.content' in s.attributes;
}

function fingerprint(m: Message): string {
  return JSON.stringify([m.role, m.parts, m.toolCalls.map((c) => [c.name, c.arguments])]);
}

/** Rewards that a span carries, the primary one first. */
export function rewardsOf(s: Span): [string, number][] {
  const out: [string, number][] = [];
  for (let i = 0; ; i++) {
    const value = s.attributes[`agentlightning.reward.${i}.value`];
    if (typeof value !== 'number') break;
    out.push([text(s.attributes[`agentlightning.reward.${i}.name`] ?? `reward ${i}`), value]);
  }
  if (out.length === 0) {
    const old = s.attributes['reward'];
    if (s.name === 'agentlightning.annotation' && typeof old === 'number') out.push(['primary', old]);
    const ops = s.attributes['agentops.task.output'] ?? s.attributes['agentops.entity.output'];
    if (typeof ops === 'string') {
      try {
        const w = JSON.parse(ops) as { type?: string; value?: number };
        if (w.type === 'reward' && typeof w.value === 'number') out.push(['primary', w.value]);
      } catch {
        // some other output
      }
    }
  }
  return out;
}

/**
 * Puts the spans in the order in which they happened. A call that goes on from
 * what was said before adds only what is new; one that does not begins a thread.
 */
export function conversation(spans: Span[]): Turn[] {
  const turns: Turn[] = [];
  let said: string[] = [];
  for (const span of [...spans].sort((a, b) => a.sequence_id - b.sequence_id || (a.start_time ?? 0) - (b.start_time ?? 0))) {
    const at = { time: span.start_time, span };
    if (isCall(span)) {
      const { prompt, completion } = messagesOf(span);
      const given = prompt.map(fingerprint);
      let known = 0;
      while (known < given.length && known < said.length && given[known] === said[known]) known++;
      if (known < said.length && said.length > 0) {
        turns.push({ kind: 'thread', key: `${span.span_id}-t`, ...at });
        known = 0;
      }
      prompt.slice(known).forEach((message, i) => turns.push({ kind: 'message', key: `${span.span_id}-p${known + i}`, ...at, message, answer: false }));
      completion.forEach((message, i) => turns.push({ kind: 'message', key: `${span.span_id}-c${i}`, ...at, time: span.end_time, message, answer: true }));
      said = [...given, ...completion.slice(0, 1).map(fingerprint)];
      continue;
    }
    const rewards = rewardsOf(span);
    if (rewards.length > 0) turns.push({ kind: 'reward', key: span.span_id, ...at, rewards });
    else if (span.name === 'agentlightning.message') turns.push({ kind: 'note', key: span.span_id, ...at, text: text(span.attributes['agentlightning.message.body'] ?? '') });
    else if (span.name === 'agentlightning.exception' || span.status.status_code === 'ERROR') {
      const what = [span.attributes['exception.type'], span.attributes['exception.message'] ?? span.status.description].filter(Boolean).map(text).join(': ');
      turns.push({ kind: 'exception', key: span.span_id, ...at, text: what === '' ? span.name : what });
    }
  }
  return turns;
}

/** Who speaks in a turn. */
export function speaker(t: Turn): string {
  return t.message?.role ?? t.kind;
}

/** All that a turn says, as a text to compare and to show. */
export function said(t: Turn): string {
  if (!t.message) return t.text ?? (t.rewards ?? []).map(([n, v]) => `${n} ${v}`).join(' ');
  const { reasoning, parts, toolCalls } = t.message;
  return [reasoning === '' ? '' : `(reasoning) ${reasoning}`, ...parts.map((p) => (p.type === 'text' ? p.text : p.type)), ...toolCalls.map((c) => `${c.name}(${c.arguments})`)].filter((x) => x !== '').join(' ');
}
