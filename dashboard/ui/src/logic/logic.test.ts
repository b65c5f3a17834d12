import { describe, expect, it } from 'vitest';
import type { Backend, Browsed, History, LogLevel, LogLine, LogPage, SamplesPage, Span, SpanRow, StepMetrics, TaskTried } from '../types';
import { applies } from './actions';
import { growth, pace, total, troubles } from './backends';
import { candidatesOf, depths } from './candidates';
import { conversation, messagesOf, partsOf, rewardsOf, said } from './conversation';
import { diffLines, differences, diffWords, sideBySide } from './diff';
import { activeFilters, nextSort, pagesOf, readFilters } from './filters';
import { age, ago, bytes, duration, member, number, oneLine, summary, task, tickTime } from './format';
import { append, attributesText, clock, counts, found, goesOn, join, type Log, marks, matching, nextOf } from './log';
import { quantile, samples, sum } from './prometheus';
import { acrossSteps, rewardOf, signed, stepsOf, typical, whyNothing } from './samples';
import { asDot, asSVG, spanOfTime, tree } from './spantree';
import { backoff, eventReader } from './sse';
import { advantageColour, furthest, gapColour, gapOf, groupAdvantage, logprobColour, tokensOf, trainedOf, whyNoGap, withTrained } from './tokens';
import { hints, mainKeys, shorten, smooth, verdict } from './verdict';

function span(id: string, sequence: number, more: Partial<Span> = {}): Span {
  return {
    rollout_id: 'ro',
    attempt_id: 'at',
    sequence_id: sequence,
    trace_id: 't',
    span_id: id,
    parent_id: null,
    name: 'step',
    status: { status_code: 'OK', description: null },
    attributes: {},
    events: [],
    links: [],
    start_time: sequence,
    end_time: sequence + 1,
    ...more,
  };
}

function row(id: string, sequence: number, more: Partial<SpanRow> = {}): SpanRow {
  return { sequence_id: sequence, span_id: id, trace_id: 't', name: 'step', start_time: sequence, end_time: sequence + 1, status: 'OK', kind: 'span', ...more };
}

describe('backends', () => {
  const backend = (endpoint: string, more: Partial<Backend> = {}): Backend => ({
    model: 'm', endpoint, condition: 'fine', since: null, reason: '', avoided: false, open: 0, waiting: 0, calls: 9, failures: 0, prompt_tokens: 0, answer_tokens: 0, ...more,
  });
  const times = Array.from({ length: 36 }, (_, i) => 1000 + 5 * i);
  const flat = (v: number | null) => times.map(() => v);
  const history = (latency: Record<string, (number | null)[]>, bytes = flat(0), spans = flat(0)): History => ({
    started: 900, step: 5, times,
    store: { bytes, rollouts: flat(0), spans, queue: flat(0), commits_per_second: flat(0) },
    backends: Object.entries(latency).map(([endpoint, p50]) => ({
      model: 'm', endpoint, calls_per_second: flat(2), failures_per_second: flat(0), prompt_tokens_per_second: flat(10), answer_tokens_per_second: flat(30), latency_p50: p50, latency_p95: p50, open: flat(1),
    })),
  });

  it('says which is failing, since when and why, the worst first', () => {
    const list = troubles([backend('a', { condition: 'paused', since: 5, reason: 'swap' }), backend('b', { condition: 'failing', since: 7, reason: 'no room' }), backend('c', { waiting: 2 }), backend('d', { condition: 'unseen' })], undefined);
    expect(list).toEqual([
      { model: 'm', endpoint: 'b', what: 'failing', since: 7, why: 'no room' },
      { model: 'm', endpoint: 'a', what: 'paused', since: 5, why: 'swap' },
      { model: 'm', endpoint: 'c', what: 'full', since: null, why: '2 calls wait for its limits' },
    ]);
  });

  it('finds what is slower than the others, and than before', () => {
    const two = [backend('a'), backend('b')];
    expect(troubles(two, history({ a: flat(2), b: flat(2.5) }))).toEqual([]);
    const beside = troubles(two, history({ a: flat(2), b: flat(9) }));
    expect(beside.map((t) => [t.endpoint, t.what, t.since])).toEqual([['b', 'slow', 1000]]);
    expect(beside[0]!.why).toContain('the other backends of the model take 2 s');
    const later = times.map((_, i) => (i < 20 ? 1 : 8));
    const alone = troubles([backend('a')], history({ a: later }));
    expect(alone.map((t) => [t.what, t.since])).toEqual([['slow', 1000 + 5 * 20]]);
    expect(alone[0]!.why).toContain('it took before 1 s');
    // Fast is never slow, however much faster it was.
    expect(troubles([backend('a')], history({ a: times.map((_, i) => (i < 20 ? 0.01 : 0.5)) }))).toEqual([]);
    expect(troubles([backend('a')], history({ a: flat(null) }))).toEqual([]);
  });

  it('sums up the last minute and all backends', () => {
    const h = history({ a: flat(2), b: flat(null) });
    expect(pace(h, 'm', 'a')).toEqual({ calls: 2, failures: 0, promptTokens: 10, answerTokens: 30, p50: 2, p95: 2 });
    expect(pace(h, 'm', 'b').p50).toBeNull();
    expect(pace(h, 'm', 'none').calls).toBeNull();
    expect(total(h, (b) => b.calls_per_second)[0]).toBe(4);
    expect(total(h, (b) => b.latency_p50)[3]).toBe(2);
    expect(total(history({}), (b) => b.open)[0]).toBeNull();
  });

  it('says how fast a store grows', () => {
    const rising = times.map((_, i) => (i === 0 ? null : 1024 * i));
    expect(growth(history({}, rising, rising.map((v) => v && v / 1024)))).toBe('0.2 spans / s, 720 KiB / h');
    expect(growth(history({}, flat(null), flat(null)))).toBe('');
  });
});

describe('format', () => {
  it('reads ages as people write them', () => {
    expect([age('12h'), age(' 1.5 d '), age('2w'), age('0s'), age('90m')]).toEqual([43200, 129600, 1209600, 0, 5400]);
    expect([age(''), age('30'), age('d'), age('-1d'), age('1d2h')]).toEqual([null, null, null, null, null]);
  });

  it('reads durations', () => {
    expect([null, 0, 0.0000123, 0.25, 59.94, 60, 3599.6, 3600, 90000].map(duration)).toEqual(['–', '0 ms', '12 µs', '250 ms', '59.9 s', '1 m 00 s', '1 h 00 m', '1 h 00 m', '1 d 1 h']);
  });
  it('reads numbers', () => {
    expect([null, 0, 1234567, 0.12345, 12345.6, 0.00001, NaN].map((n) => number(n))).toEqual(['–', '0', '1,234,567', '0.123', '12,346', '1.0e-5', '–']);
  });
  it('reads sizes and ages', () => {
    expect([bytes(0), bytes(1536), bytes(5 * 2 ** 30)]).toEqual(['0 B', '1.5 KiB', '5.0 GiB']);
    expect([ago(99, 100), ago(40, 100), ago(null, 1)]).toEqual(['just now', '1 m 00 s ago', '–']);
  });
  it('finds what a task asks', () => {
    expect(task({ id: 1, question: 'How  many?' })).toBe('How many?');
    expect(task('plain')).toBe('plain');
    expect(task({ a: 1 })).toBe('{"a":1}');
    expect(oneLine('x'.repeat(10), 5)).toBe('xxxx…');
    expect([member({ a: 'x', b: 2 }, 'a'), member({ b: 2 }, 'b'), member(null, 'a')]).toEqual(['x', '2', undefined]);
  });
});

const curve = (values: number[], key = 'reward'): StepMetrics[] => values.map((v, i) => ({ step: i, time: i, values: { [key]: v } }));

describe('summary of a list', () => {
  it('says among what was found and sorted when that is not all', () => {
    expect(summary({ total: 1, examined: 1, complete: true }, '-reward')).toBe('1 rollout');
    expect(summary({ total: 2000, examined: 3000, complete: true }, null)).toBe('2,000 rollouts');
    expect(summary({ total: 7, examined: 20_000, complete: false }, null)).toMatch(/^7 found among the 20,000 newest that were looked at: narrow by/);
    expect(summary({ total: 7, examined: 20_000, complete: false }, 'start_time')).toMatch(/^7 found among the 20,000 oldest that were looked at: narrow by/);
    expect(summary({ total: 10_000, examined: 10_000, complete: false }, '-reward')).toMatch(/^The 10,000 newest, sorted among themselves: narrow by/);
  });
});

describe('verdict', () => {
  it('says learning when the end is better than the beginning', () => {
    expect(verdict(curve([0.1, 0.2, 0.3, 0.5, 0.6, 0.8, 0.9, 0.9]), true).word).toBe('learning');
    expect(verdict(curve([0.1, 0.2, 0.3, 0.5, 0.6, 0.8, 0.9, 0.9]), false).word).toBe('learned');
  });
  it('takes a steep rise for what it is', () => {
    expect(verdict(curve([0.03, 0.34, 0.49, 0.49, 0.49, 0.49]), false).word).toBe('learned');
  });
  it('says flat when noise explains it', () => {
    expect(verdict(curve([0.5, 0.4, 0.6, 0.5, 0.45, 0.55, 0.6, 0.45]), true).word).toBe('flat');
  });
  it('says when it gets worse, and knows that a loss should fall', () => {
    expect(verdict(curve([0.9, 0.9, 0.8, 0.5, 0.3, 0.2, 0.2, 0.1]), true).word).toBe('getting worse');
    expect(verdict(curve([3, 2.9, 2, 1.5, 1, 0.8, 0.5, 0.4], 'loss'), false).word).toBe('learned');
  });
  it('does not guess', () => {
    expect(verdict(curve([0.1, 0.9]), true).word).toBe('too early to say');
    expect(verdict([], true).word).toBe('no curve');
  });
  it('finds the curve of unseen tasks', () => {
    const m: StepMetrics[] = [{ step: 0, time: 0, values: { reward: 1, accuracy: 0.5, loss: 1 } }];
    expect(mainKeys(m)).toEqual({ goal: 'reward', validation: 'accuracy', lowerIsBetter: false });
  });
  it('reads the names of trackers', () => {
    const m: StepMetrics[] = [{ step: 0, time: 0, values: { 'training/reward': 1, 'val/reward': 0.5, 'actor/pg_loss': 1, 'training/n_groups': 3 } }];
    expect(mainKeys(shorten(m))).toEqual({ goal: 'reward', validation: 'validation_reward', lowerIsBetter: false });
    expect(Object.keys(shorten(m)[0]!.values)).toEqual(['reward', 'validation_reward', 'loss', 'groups']);
  });
  it('says why not, the worst first', () => {
    const values = { reward: 0.01, groups: 10, groups_constant: 9, calls: 100, calls_left_out: 5, rollouts_failed: 2, rows_without_logprobs: 3, grad_norm: 0, approx_kl: 0.5 };
    const found = hints([{ step: 1, time: 1, values }], 'run-1');
    expect(found[0]!.severity).toBe('bad');
    expect(found.at(-1)!.severity).toBe('warn');
    const all = found.map((h) => h.text).join('\n');
    for (const part of ['90 % of the groups', 'too hard', '5 of 100 model calls (5 %)', '2 rollouts', 'log-probabilities', 'gradient', 'KL 0.5']) expect(all).toContain(part);
    expect(hints(curve([0.5, 0.6]), 'run-1')).toEqual([]);
  });
  it('marks times as finely as their distance', () => {
    const t = new Date(2026, 0, 2, 13, 4, 5).getTime() / 1000;
    expect([1, 60, 3600, 86400].map((step) => tickTime(t, step))).toEqual(['13:04:05', '13:04', '13:04', '2026-01-02']);
  });
  it('does not take a small loss for what holds a run back', () => {
    const of = (values: Record<string, number>) => hints([{ step: 1, time: 1, values }], 'run-1').map((h) => h.severity);
    expect(of({ calls: 1000, calls_left_out: 9, rollouts: 1000, rollouts_failed: 10 })).toEqual(['warn', 'note']);
    expect(of({ calls: 10, calls_left_out: 5 })).toEqual(['bad']);
    expect(of({ calls_left_out: 5 })).toEqual(['warn']); // of how many is not known
  });
  it('smooths', () => {
    expect(smooth([1, null, 0], 0.5)).toEqual([1, null, 0.5]);
    expect(smooth([1, 0], 0)).toEqual([1, 0]);
  });
});

const call = (id: string, sequence: number, prompt: [string, string][], answer: string) =>
  span(id, sequence, {
    name: 'openai.chat.completion',
    attributes: {
      ...Object.fromEntries(prompt.flatMap(([role, content], i) => [[`gen_ai.prompt.${i}.role`, role], [`gen_ai.prompt.${i}.content`, content]])),
      'gen_ai.completion.0.role': 'assistant',
      'gen_ai.completion.0.content': answer,
    },
  });

describe('conversation', () => {
  it('shows what is new of a call that goes on', () => {
    const turns = conversation([call('a', 1, [['user', 'hi']], 'hello'), call('b', 2, [['user', 'hi'], ['assistant', 'hello'], ['user', 'more']], 'yes')]);
    expect(turns.map((t) => [t.kind, t.message?.parts[0]])).toEqual([
      ['message', { type: 'text', text: 'hi' }],
      ['message', { type: 'text', text: 'hello' }],
      ['message', { type: 'text', text: 'more' }],
      ['message', { type: 'text', text: 'yes' }],
    ]);
  });
  it('begins a thread where a call does not go on', () => {
    const turns = conversation([call('a', 1, [['user', 'hi']], 'hello'), call('b', 2, [['user', 'other']], 'x')]);
    expect(turns.map((t) => t.kind)).toEqual(['message', 'message', 'thread', 'message', 'message']);
  });
  it('reads tool calls, reasoning and pictures', () => {
    const { prompt, completion } = messagesOf(
      span('a', 1, {
        attributes: {
          'gen_ai.prompt.0.content': '[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}},{"type":"odd"}]',
          'gen_ai.prompt.0.role': 'user',
          'gen_ai.prompt.2.role': 'tool',
          'gen_ai.prompt.2.tool_call_id': 'c1',
          'gen_ai.completion.0.reasoning_content': 'hm',
          'gen_ai.completion.0.tool_calls.0.name': 'calc',
          'gen_ai.completion.0.tool_calls.0.arguments': '{"x":1}',
        },
      }),
    );
    expect(prompt).toHaveLength(2);
    expect(prompt[0]!.parts.map((p) => p.type)).toEqual(['text', 'image', 'other']);
    expect(prompt[1]!.toolCallID).toBe('c1');
    expect(completion[0]).toMatchObject({ reasoning: 'hm', toolCalls: [{ name: 'calc', arguments: '{"x":1}' }] });
    expect(partsOf('[{not json')).toEqual([{ type: 'text', text: '[{not json' }]);
  });
  it('finds rewards of every format', () => {
    expect(rewardsOf(span('a', 1, { attributes: { 'agentlightning.reward.0.name': 'primary', 'agentlightning.reward.0.value': 1, 'agentlightning.reward.1.name': 'form', 'agentlightning.reward.1.value': 0.5 } }))).toEqual([
      ['primary', 1],
      ['form', 0.5],
    ]);
    expect(rewardsOf(span('a', 1, { name: 'agentlightning.annotation', attributes: { reward: 2 } }))).toEqual([['primary', 2]]);
    expect(rewardsOf(span('a', 1, { attributes: { 'agentops.task.output': '{"type":"reward","value":3}' } }))).toEqual([['primary', 3]]);
  });
  it('shows errors', () => {
    const turns = conversation([span('a', 1, { status: { status_code: 'ERROR', description: 'boom' } })]);
    expect(turns[0]).toMatchObject({ kind: 'exception', text: 'boom' });
  });
});

describe('tokens', () => {
  it('puts ids, texts and log-probabilities together', () => {
    const s = span('a', 1, {
      name: 'openai.chat.completion',
      attributes: { prompt_token_ids: [1, 2], response_token_ids: [3, 4], response_logprobs: [-0.5, -1], 'logprobs.content': '[{"token":"x","logprob":-0.5}]' },
    });
    const [c] = tokensOf([s], undefined);
    expect(c).toMatchObject({ prompt: [1, 2], used: false, answer: [{ id: 3, text: 'x', logprob: -0.5 }, { id: 4, text: '‹4›', logprob: -1 }] });
  });
  it('computes the advantage of GRPO', () => {
    expect(groupAdvantage([1, 0, 0, 1], 0)).toBeCloseTo(1);
    expect(groupAdvantage([1, 1], 0)).toBe(0);
    expect(groupAdvantage([1, null], 0)).toBeNull();
    expect(groupAdvantage([1, 0], 5)).toBeNull();
  });
  it('colours', () => {
    expect(logprobColour(0)).toContain('0.000');
    expect(logprobColour(-9)).toContain('0.700');
    expect([advantageColour(0), advantageColour(null)]).toEqual(['transparent', 'transparent']);
    expect(advantageColour(1)).not.toBe(advantageColour(-1));
  });
});

describe('spantree', () => {
  const spans = [row('c', 3, { parent_id: 'a' }), row('a', 1), row('b', 2, { parent_id: 'a', status: 'ERROR' }), row('d', 4, { parent_id: 'gone', name: 'a "b"' })];
  it('puts parents before children', () => {
    expect(tree(spans).map((n) => [n.span.span_id, n.depth, n.orphan])).toEqual([
      ['a', 0, false],
      ['b', 1, false],
      ['c', 1, false],
      ['d', 0, true],
    ]);
  });
  it('survives circles', () => {
    expect(tree([row('a', 1, { parent_id: 'b' }), row('b', 2, { parent_id: 'a' })])).toHaveLength(2);
  });
  it('is fast with many spans', () => {
    const many = Array.from({ length: 20_000 }, (_, i) => row(`s${i}`, i, { parent_id: i === 0 ? undefined : `s${i - 1}` }));
    expect(tree(many)).toHaveLength(20_000);
  });
  it('writes DOT and SVG', () => {
    expect(asDot(spans)).toContain('"a" -> "b"');
    expect(asDot(spans)).toContain('4 a \\"b\\"');
    expect(asSVG(spans)).toContain('&quot;b&quot;');
  });
});

describe('diff', () => {
  it('compares lines', () => {
    expect(diffLines('a\nb\nc', 'a\nx\nc').map((l) => [l.kind, l.text])).toEqual([
      ['same', 'a'],
      ['removed', 'b'],
      ['added', 'x'],
      ['same', 'c'],
    ]);
    expect(diffLines('same', 'same')).toEqual([{ kind: 'same', text: 'same' }]);
  });
  it('marks the words that differ', () => {
    expect(diffWords('the answer is 12.', 'the answer is 13, or 14.')).toEqual({
      before: [
        { text: 'the answer is ', changed: false },
        { text: '12', changed: true },
        { text: '.', changed: false },
      ],
      after: [
        { text: 'the answer is ', changed: false },
        { text: '13, or 14', changed: true },
        { text: '.', changed: false },
      ],
    });
    expect(diffWords('', 'é x').after).toEqual([{ text: 'é x', changed: true }]);
  });
  it('puts lists side by side, what differs beside its own kind', () => {
    const of = (list: string[]) => list.map((x) => ({ kind: x[0]!, text: x }));
    const beside = (a: string[], b: string[]) =>
      sideBySide(
        of(a),
        of(b),
        (t) => t.text,
        (t) => t.kind,
      ).map((l) => [l.before?.text, l.after?.text, l.same]);
    expect(beside(['u1', 'a1', 'r0'], ['u1', 'a2', 't2', 'a3', 'r0'])).toEqual([
      ['u1', 'u1', true],
      ['a1', 'a2', false],
      [undefined, 't2', false],
      [undefined, 'a3', false],
      ['r0', 'r0', true],
    ]);
    expect(beside(['a1', 't1'], ['t2', 'x'])).toEqual([
      ['a1', undefined, false],
      ['t1', 't2', false],
      [undefined, 'x', false],
    ]);
    expect(beside([], ['a'])).toEqual([[undefined, 'a', false]]);
  });
  it('compares values', () => {
    expect(differences([{ a: 1, b: { c: 2 } }, { a: 1, b: { c: 3, d: 4 } }])).toEqual([
      { path: 'b.c', values: [2, 3] },
      { path: 'b.d', values: [undefined, 4] },
    ]);
  });
});

describe('events', () => {
  it('reads a stream in any pieces', () => {
    const text = ': hello\n\nevent: change\ndata: {"a":1}\n\ndata: x\ndata: y\n\n';
    for (const size of [1, 3, 1000]) {
      const read = eventReader();
      const out = [];
      for (let i = 0; i < text.length; i += size) out.push(...read(text.slice(i, i + size)));
      expect(out).toEqual([
        { event: 'change', data: '{"a":1}' },
        { event: 'message', data: 'x\ny' },
      ]);
    }
  });
  it('waits longer each time, to a limit', () => {
    expect(backoff(0, 0.5)).toBe(400);
    expect(backoff(20, 1)).toBe(12_500);
  });
});

describe('prometheus', () => {
  const text = '# TYPE x counter\nx_total{model="a",outcome="ok"} 3\nx_total{model="a",outcome="bad \\"q\\""} 1\nx_bucket{le="1"} 2\nx_bucket{le="2"} 4\nx_bucket{le="+Inf"} 4\n';
  it('sums', () => {
    const s = samples(text, 'x');
    expect(sum(s, 'x_total')).toBe(4);
    expect(sum(s, 'x_total', { outcome: 'bad "q"' })).toBe(1);
  });
  it('finds quantiles', () => {
    expect(quantile(samples(text, 'x'), 'x', 0.75)).toBe(1.5);
    expect(quantile([], 'x', 0.5)).toBeNull();
  });
});

describe('filters', () => {
  it('reads an address', () => {
    const q = new URLSearchParams('status=failed&status=running&text=a&since=3600&sort=-reward&nonsense=1');
    expect(readFilters(q, 10_000)).toEqual({ status_in: ['failed', 'running'], text: 'a', from: '6360', sort_by: 'reward', sort_order: 'desc' });
    expect(activeFilters(q)).toHaveLength(4);
  });
  it('turns a sort around', () => {
    expect(nextSort(null, 'a')).toBe('-a');
    expect(nextSort('-a', 'a')).toBe('a');
    expect(nextSort('a', 'a')).toBeNull();
    expect(nextSort('a', 'b')).toBe('-b');
  });
  it('knows which pages are on the screen', () => {
    expect(pagesOf(95, 205, 100)).toEqual([0, 1, 2]);
  });
  it('knows what an action applies to', () => {
    expect([applies('retry', 'failed'), applies('retry', 'running'), applies('cancel', 'running'), applies('cancel', 'failed'), applies('delete', 'running')]).toEqual([true, false, true, false, true]);
  });
});

describe('candidates', () => {
  const templates = (text: string) => ({ prompt: text });
  it('reads those of GEPA by their numbers', () => {
    const list = candidatesOf({ state: { candidates: [{ id: 0, parents: null, templates: { ask: { Template: 'a', Engine: 'f-string' } }, scores: [0, 1] }, { id: 1, parents: [0], templates: { ask: 'b' }, scores: [[1], [1]] }] } });
    expect(list).toEqual([
      { id: '0', parents: [], score: 0.5, templates: { ask: 'a' } },
      { id: '1', parents: ['0'], score: 1, templates: { ask: 'b' } },
    ]);
  });
  it('reads all prompts of APO with their parents', () => {
    const list = candidatesOf({ state: {
      beam: [{ version: 'v2', template: 'c', score: 1 }],
      prompts: [{ version: 'v0', template: { Template: 'a', Engine: 'f-string' }, score: 0.5 }, { version: 'v1', parent: 'v0', template: 'b', score: null }, { version: 'v2', parent: 'v1', template: 'c', score: 1 }],
    } });
    expect(list).toEqual([
      { id: 'v0', parents: [], score: 0.5, templates: templates('a') },
      { id: 'v1', parents: ['v0'], score: null, templates: templates('b') },
      { id: 'v2', parents: ['v1'], score: 1, templates: templates('c') },
    ]);
    expect([...depths(list)]).toEqual([['v0', 0], ['v1', 1], ['v2', 2]]);
  });
  it('reads the beam of a search that kept nothing else', () => {
    const list = candidatesOf({ state: { beam: [{ version: 'v3', template: 'x', score: 0.2 }], best: { version: 'v1', template: 'y', score: 0.9 } } });
    expect(list.map((c) => [c.id, c.score])).toEqual([['v3', 0.2], ['v1', 0.9]]);
    expect(candidatesOf({ weights: 'x' })).toEqual([]);
  });
});

describe('samples', () => {
  const tried = (reward: number | null, rewards: (number | null)[], more: Partial<TaskTried> = {}): TaskTried => ({
    step: 1,
    reward,
    tried: rewards.length,
    rewarded: rewards.filter((r) => r !== null).length,
    rollouts: rewards.map((r, i) => ({ rollout_id: `ro-${i}`, attempt_id: 'at', status: 'succeeded', reward: r })),
    ...more,
  });
  const page = (more: Partial<SamplesPage> = {}): SamplesPage => ({
    mode: 'train',
    items: [],
    total: 0,
    improved: 0,
    worsened: 0,
    unchanged: 0,
    unrewarded: 0,
    once: 0,
    stepless: 0,
    steps: [],
    modes: ['train'],
    before: null,
    after: null,
    examined: 0,
    complete: true,
    ...more,
  });
  it('takes the rollout closest to the mean for the others', () => {
    expect(typical(tried(0.25, [null, 1, 0, 0, 0]))?.rollout_id).toBe('ro-2');
    expect(typical(tried(null, [null, null]))?.rollout_id).toBe('ro-0');
    expect(typical(tried(null, []))).toBeUndefined();
  });
  it('says rewards with how many they are of', () => {
    expect([tried(1, [1]), tried(0.5, [0, 1]), tried(0.5, [0, 1, null]), tried(null, [null]), tried(null, [null, null])].map(rewardOf)).toEqual(['1', '0.5 (2)', '0.5 (2 of 3)', 'none', 'none (of 2)']);
    expect([0.5, -0.25, -0.00012, 0, null].map(signed)).toEqual(['+0.5', '−0.25', '−1.2e−4', '0', '–']);
  });
  it('says why there is nothing to compare', () => {
    const run = { status: 'succeeded', algorithm: 'sft' } as const;
    expect(whyNothing(page({ improved: 1 }), run, false)).toBeUndefined();
    expect(whyNothing(page({ modes: [] }), run, false)?.title).toBe('This run asked for no rollouts');
    expect(whyNothing(page({ modes: [] }), { ...run, status: 'running' }, false)?.title).toBe('This run has no rollout yet');
    expect(whyNothing(page({ modes: [], stepless: 3 }), run, false)?.title).toMatch(/None of its 3/);
    expect(whyNothing(page({ once: 384 }), run, false)?.title).toBe('Each of the 384 training tasks was tried at one step only');
    expect(whyNothing(page({ once: 1 }), run, false)?.title).toBe('The training task was tried at one step only');
    expect(whyNothing(page({ once: 384 }), run, true)?.title).toBe('No task was tried at both steps');
    expect(whyNothing(page({ mode: 'test' }), run, true)?.title).toBe('No test task was tried');
  });
  it('knows the steps that can be compared', () => {
    const metrics = [0, 1, 2].map((step): StepMetrics => ({ step, time: 0, values: step === 1 ? {} : { accuracy: 1 } }));
    expect(stepsOf(page({ steps: [9], mode: 'val' }), metrics)).toEqual([0, 2, 9]);
    expect(stepsOf(page(), metrics)).toEqual([1, 2]);
  });
  it('gathers one task across steps', () => {
    const of = (step: unknown, reward: number | null) => ({ metadata: { 'agl.step': step, 'agl.group': '4' }, digest: { reward } }) as unknown as Browsed;
    expect(acrossSteps([of(10, 1), of(2, 0), of(2, 1), of(10, null), of(3, null), of(undefined, 1)])).toEqual([
      { step: 2, group: '4', mean: 0.5, tried: 2, rewarded: 2 },
      { step: 3, group: '4', mean: null, tried: 1, rewarded: 0 },
      { step: 10, group: '4', mean: 1, tried: 2, rewarded: 1 },
    ]);
  });
  it('reads what a turn says', () => {
    const turn = (message: object) => said({ kind: 'message', key: 'k', time: null, span: span('a', 1), message: { role: 'assistant', parts: [], reasoning: '', toolCalls: [], toolCallID: '', name: '', ...message } });
    expect(turn({ reasoning: 'hm', parts: [{ type: 'text', text: 'yes' }, { type: 'image', url: 'x' }], toolCalls: [{ id: '1', name: 'f', arguments: '{}' }] })).toBe('(reasoning) hm yes image f({})');
  });
});

describe('the log of a run', () => {
  const line = (position: number, level: LogLevel = 'info', message = `m${position}`, attributes: Record<string, unknown> = {}): LogLine => ({ position, time: position, level, message, attributes });
  const part = (from: number, to: number, first: number, last: number, more = false): LogPage => ({ lines: Array.from({ length: to - from + 1 }, (_, i) => line(from + i)), first, last, dropped: first - 1, more });
  const log = (from: number, to: number, first: number): Log => ({ lines: part(from, to, first, to).lines, first, last: to });
  const positions = (lines: LogLine[]) => lines.map((l) => l.position).join(' ');

  it('grows by parts, and loses what the server has dropped', () => {
    const known = log(3, 5, 1);
    expect(append(known, part(6, 5, 1, 5))).toBe(known);
    expect(positions(append(known, part(6, 8, 1, 8)).lines)).toBe('3 4 5 6 7 8');
    const cut = append(known, part(6, 8, 5, 8));
    expect(positions(cut.lines)).toBe('5 6 7 8');
    expect([cut.first, cut.last]).toEqual([5, 8]);
    expect(append(known, part(6, 7, 1, 20, true)).last).toBe(7); // the rest is asked for from here
    const emptied = append(known, part(6, 5, 6, 5));
    expect([emptied.lines.length, emptied.first, emptied.last]).toEqual([0, 6, 5]);
  });
  it('begins anew when lines went unread, or the run is another one', () => {
    expect(goesOn(log(3, 5, 1), part(6, 8, 6, 8))).toBe(true);
    expect(goesOn(log(3, 5, 1), part(7, 8, 7, 8))).toBe(false);
    expect(goesOn(log(3, 5, 1), part(1, 2, 1, 2))).toBe(false);
  });
  it('joins what came later in front, each line once', () => {
    expect(positions(join(part(1, 4, 1, 5).lines, log(3, 5, 2)))).toBe('2 3 4 5');
    const alone = log(3, 5, 3);
    expect(join(part(1, 2, 1, 5).lines, alone)).toBe(alone.lines);
  });
  it('shows what is asked for', () => {
    const lines = [line(1, 'debug'), line(2, 'warn', 'Slow'), line(3, 'error', 'broken', { err: 'no Disk', step: 3 }), line(4)];
    expect(matching(lines, 'debug', ' ')).toBe(lines);
    expect(positions(matching(lines, 'warn', ''))).toBe('2 3');
    expect(positions(matching(lines, 'debug', 'DISK'))).toBe('3');
    expect(positions(matching(lines, 'debug', 'step=3'))).toBe('3');
    expect(positions(matching(lines, 'error', 'slow'))).toBe('');
    expect(counts(lines)).toEqual({ debug: 1, info: 1, warn: 1, error: 1 });
  });
  it('writes attributes as a log does', () => {
    expect(attributesText(line(1, 'info', '', { a: 'plain', b: 'two words', c: '', d: 1.5, e: null, f: true, g: 'x=y' }))).toBe('a=plain b="two words" c="" d=1.5 e=null f=true g="x=y"');
    expect(attributesText(line(1, 'info', '', { run_id: 'r', reward: 0.22656250000000008, n: 12345678 }), 'r')).toBe('reward=0.226563 n=12345678');
    expect(attributesText(line(1, 'info', '', { run_id: 'r' }), 'other')).toBe('run_id=r');
  });
  it('says where it went wrong', () => {
    const lines = Array.from({ length: 100 }, (_, i) => line(i + 1, i === 10 ? 'warn' : i === 11 || i === 90 ? 'error' : 'info'));
    expect(marks(lines, 10)).toEqual([
      { at: 0.115, row: 11, level: 'error' },
      { at: 0.905, row: 90, level: 'error' },
    ]);
    expect(marks([], 10)).toEqual([]);
    expect([nextOf(lines, 'error', -1, 1), nextOf(lines, 'error', 11, 1), nextOf(lines, 'error', 90, 1), nextOf(lines, 'error', 11, -1), nextOf(lines, 'debug', 0, 1)]).toEqual([11, 90, 11, 90, null]);
    expect(nextOf(lines, 'error', 100, -1)).toBe(90);
  });
  it('marks what was looked for', () => {
    expect(found('No disk, no disk', ' NO ').map((p) => (p.hit ? `[${p.text}]` : p.text)).join('')).toBe('[No] disk, [no] disk');
    expect(found('abc', '')).toEqual([{ text: 'abc', hit: false }]);
    expect(found('İx', 'x')).toEqual([{ text: 'İx', hit: false }]);
  });
  it('has a clock with milliseconds', () => {
    expect(clock(new Date(2026, 0, 2, 3, 4, 5, 67).getTime() / 1000)).toBe('03:04:05.067');
  });
});

describe('gaps', () => {
  const call = span('call', 1, { name: 'openai.chat.completion', attributes: { response_token_ids: [7, 8, 9], response_logprobs: [-0.5, -2, -1] } });
  const kept = span('kept', 3, {
    name: 'agentlightning.trained',
    attributes: {
      'agentlightning.trained.run_id': 'run-1',
      'agentlightning.trained.step': 4,
      'agentlightning.trained.tokens': 3,
      'agentlightning.trained.omitted': 1,
      'agentlightning.trained.gap': 0.25,
      'agentlightning.trained.call.0.span_id': 'call',
      'agentlightning.trained.call.0.logprobs': [-0.75, -0.25],
      'agentlightning.trained.call.0.positions': [0, 2],
      'agentlightning.trained.call.1.span_id': 'other',
      'agentlightning.trained.call.1.logprobs': [-1],
    },
  });
  it('puts what training kept on the tokens', () => {
    const t = trainedOf(kept);
    expect([t.run, t.step, t.tokens, t.omitted, t.sum, t.calls.get('other')]).toEqual(['run-1', 4, 3, 1, 0.25, new Map([[0, -1]])]);
    const calls = withTrained(tokensOf([call, kept], undefined), t);
    expect(calls).toHaveLength(1);
    expect(calls[0]!.answer.map((x) => [x.trained, x.gap])).toEqual([
      [-0.75, 0.25],
      [null, null],
      [-0.25, -0.75],
    ]);
    expect(furthest(calls, 5).map((f) => [f.call.span_id, f.position])).toEqual([
      ['call', 2],
      ['call', 0],
    ]);
    expect(furthest(calls, 1)).toHaveLength(1);
    expect(withTrained(tokensOf([call], undefined), undefined)[0]!.answer[0]!.gap).toBeNull();
  });
  it('shades by sign and size', () => {
    expect(gapColour(null)).toBe('transparent');
    expect(gapColour(0)).toBe('transparent');
    expect(gapColour(5)).toBe('rgba(224, 100, 30, 0.660)');
    expect(gapColour(-0.5)).toBe('rgba(40, 120, 220, 0.360)');
  });
  it('sums a step up', () => {
    const of = (id: string, run: string, sum: number, largest: number) => ({ rollout_id: id, digest: { gap: { run_id: run, step: 1, tokens: 4, sum, largest, span_id: 's', position: 0 } } }) as unknown as Browsed;
    const got = gapOf([of('a', 'r', 1, 0.5), of('b', 'r', -0.5, -0.75), of('c', 'other', 9, 9), { rollout_id: 'd', digest: {} } as unknown as Browsed], 'r');
    expect([got?.sum, got?.tokens, got?.mean, got?.largest.map((r) => r.rollout_id)]).toEqual([0.5, 8, 0.0625, ['b', 'a']]);
    expect(gapOf([], 'r')).toBeNull();
  });
  it('says why there is none', () => {
    const pg = { algorithm: 'pg', status: 'succeeded' } as const;
    const train = { mode: 'train', metadata: {} } as const;
    const step = (values: Record<string, number>): StepMetrics[] => [{ step: 1, time: 0, values }];
    expect(whyNoGap({ mode: 'val', metadata: {} }, pg, [], '')).toMatch(/validation/);
    expect(whyNoGap(train, null, [], '')).toMatch(/No step of a run/);
    expect(whyNoGap(train, { algorithm: 'gepa', status: 'running' }, [], '')).toMatch(/gepa does not compare/);
    expect(whyNoGap(train, { algorithm: 'pg', status: 'running' }, [], '')).toMatch(/No step of the run has ended/);
    expect(whyNoGap(train, pg, step({ 'logprob_gap/tokens': 0 }), '')).toMatch(/AGL_TRAIN_LOGPROBS/);
    expect(whyNoGap(train, pg, step({}), '')).toMatch(/older version/);
    expect(whyNoGap(train, pg, step({ 'logprob_gap/tokens': 9 }), 'no token ids')).toBe('No step has trained on this rollout: no token ids.');
  });
  it('keeps what was computed later out of the time of an attempt', () => {
    expect(spanOfTime([row('a', 1), row('late', 9, { name: 'agentlightning.trained' }), row('set', 8, { reward_set: 'x' })])).toEqual([1, 2]);
    expect(spanOfTime([row('late', 9, { name: 'agentlightning.trained' })])).toEqual([0, 1e-6]);
  });
});
