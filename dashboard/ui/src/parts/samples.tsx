import { Anchor, Button, Group, SegmentedControl, Select, SimpleGrid, Stack, Table, Text, UnstyledButton } from '@mantine/core';
import { useMemo } from 'react';
import { Link } from 'react-router-dom';
import { useAddress } from './address';
import { useSamples, useSpeaking } from '../data';
import { conversation, said, speaker, type Turn } from '../logic/conversation';
import { type Beside, diffWords, sideBySide } from '../logic/diff';
import { number, task } from '../logic/format';
import { modeName, rewardOf, signed, stepsOf, typical, whyNothing } from '../logic/samples';
import type { Run, SampleOrder, SamplesPage, StepMetrics, TaskChange, TaskTried } from '../types';
import { Card, Empty, Failed, Figure, Loading } from './bits';

/** How many tasks are listed at first; the server gives no more than the other. */
const atFirst = 100;
const atMost = 1000;

/** Whether tasks went better late in the run than early, which, and how the answers differ. */
export function Samples({ run, metrics }: { run: Run; metrics: StepMetrics[] }) {
  const [q, set] = useAddress();
  const asked = { mode: q.get('mode') ?? undefined, before: q.get('before') ?? undefined, after: q.get('after') ?? undefined, order: q.get('order') ?? undefined };
  const limit = q.get('all') === 'yes' ? atMost : atFirst;
  const found = useSamples(run.run_id, asked, limit);
  const page = found.data;
  const steps = useMemo(() => stepsOf(page, metrics), [page, metrics]);
  if (found.isPending && !found.error) return <Loading what="what became of the tasks" />;
  const why = page && !found.error ? whyNothing(page, run, asked.before !== undefined || asked.after !== undefined) : undefined;
  const picked = page?.items.find((t) => t.after.rollouts[0]?.rollout_id === q.get('pick')) ?? page?.items[0];
  return (
    <Stack gap="sm">
      <Group gap="sm" align="end">
        {page && page.modes.length > 1 && <Select label="Rollouts" w={130} allowDeselect={false} data={page.modes.map((m) => ({ value: m, label: modeName(m) }))} value={page.mode} onChange={(v) => set({ mode: v, pick: null })} />}
        <Step label="Before" first="first of each task" steps={steps} value={asked.before} onChange={(v) => set({ before: v, pick: null })} />
        <Step label="After" first="last of each task" steps={steps} value={asked.after} onChange={(v) => set({ after: v, pick: null })} />
      </Group>
      {found.error ? (
        <Failed error={found.error} />
      ) : why ? (
        <Empty title={why.title}>{why.advice}</Empty>
      ) : (
        page && (
          <>
            <Sums page={page} />
            <Order page={page} order={(asked.order ?? 'improved') as SampleOrder} onChange={(v) => set({ order: v, pick: null })} />
            <Tasks page={page} order={(asked.order ?? 'improved') as SampleOrder} picked={picked} onPick={(t) => set({ pick: t.after.rollouts[0]?.rollout_id ?? null })} />
            {page.items.length < page.total && limit < atMost && (
              <Button variant="default" w="fit-content" onClick={() => set({ all: 'yes' })}>
                {`Show ${number(Math.min(page.total, atMost))} of ${number(page.total)}`}
              </Button>
            )}
            {picked && <Pair key={picked.after.rollouts[0]?.rollout_id} of={picked} before={q.get('a')} after={q.get('b')} onChoose={set} />}
          </>
        )
      )}
    </Stack>
  );
}

function Step({ label, first, steps, value, onChange }: { label: string; first: string; steps: number[]; value: string | undefined; onChange: (v: string | null) => void }) {
  const known = value === undefined || steps.includes(Number(value)) ? steps : [...steps, Number(value)];
  return (
    <Select
      label={label}
      w={180}
      data={[{ value: '', label: first }, ...known.map((s) => ({ value: String(s), label: `step ${s}` }))]}
      value={value ?? ''}
      onChange={(v) => onChange(v === null || v === '' ? null : v)}
      searchable
      limit={200}
      allowDeselect={false}
    />
  );
}

function Sums({ page }: { page: SamplesPage }) {
  const all = page.improved + page.worsened + page.unchanged + page.unrewarded;
  const of = (n: number) => `${number(n)} of ${number(all)}`;
  return (
    <div>
      <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="sm">
        <Figure label="Improved" value={of(page.improved)} />
        <Figure label="Worsened" value={of(page.worsened)} />
        <Figure label="Same" value={of(page.unchanged)} />
        <Figure label="Mean reward" value={`${number(page.before)} → ${number(page.after)}`} hint="Over the tasks with a reward before and after, each counting once" />
      </SimpleGrid>
      <Text size="sm" c="dimmed">
        {`Rewards of ${modeName(page.mode)} rollouts, the mean of each task at the two steps.`}
        {page.unrewarded > 0 && ` ${number(page.unrewarded)} without a reward before or after.`}
        {page.once > 0 && ` ${number(page.once)} more ${page.once === 1 ? 'task was' : 'tasks were'} not tried at both.`}
        {!page.complete && ` ${number(page.examined)} rollouts were looked at, from the beginning and the end of the run; what was tried only between is not counted.`}
      </Text>
    </div>
  );
}

function Order({ page, order, onChange }: { page: SamplesPage; order: SampleOrder; onChange: (v: string) => void }) {
  return (
    <SegmentedControl
      aria-label="Which tasks to list"
      value={order}
      onChange={onChange}
      w="fit-content"
      maw="100%"
      style={{ flexWrap: 'wrap' }}
      data={[
        { value: 'improved', label: `Most improved (${number(page.improved)})` },
        { value: 'worsened', label: `Most worsened (${number(page.worsened)})` },
        { value: 'unchanged', label: `Unchanged, lowest first (${number(page.unchanged)})` },
        ...(page.unrewarded > 0 || order === 'unrewarded' ? [{ value: 'unrewarded', label: `No reward (${number(page.unrewarded)})` }] : []),
      ]}
    />
  );
}

const none: Record<SampleOrder, string> = {
  improved: 'No task went better than before.',
  worsened: 'No task went worse than before.',
  unchanged: 'Every task went better or worse than before.',
  unrewarded: 'Every task has a reward before and after.',
};

function Tasks({ page, order, picked, onPick }: { page: SamplesPage; order: SampleOrder; picked: TaskChange | undefined; onPick: (t: TaskChange) => void }) {
  if (page.items.length === 0) return <Text c="dimmed">{none[order]}</Text>;
  return (
    <div style={{ maxHeight: '40vh', overflow: 'auto' }} tabIndex={0} role="region" aria-label="Tasks, scrolls">
      <Table layout="fixed" stickyHeader>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Task</Table.Th>
            <Table.Th w={92} className="num">
              Before
            </Table.Th>
            <Table.Th w={92} className="num">
              After
            </Table.Th>
            <Table.Th w={78} className="num">
              Change
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {page.items.map((t) => (
            <Table.Tr key={t.after.rollouts[0]?.rollout_id} bg={t === picked ? 'var(--mantine-color-default-hover)' : undefined}>
              <Table.Td className="one-line whole-narrow">
                <UnstyledButton className="one-line whole-narrow" style={{ display: 'block', width: '100%', fontSize: 'inherit' }} aria-pressed={t === picked} onClick={() => onPick(t)}>
                  {task(t.task, 200)}
                </UnstyledButton>
              </Table.Td>
              <Table.Td className="num" title={`step ${t.before.step}`}>
                {rewardOf(t.before)}
              </Table.Td>
              <Table.Td className="num" title={`step ${t.after.step}`}>
                {rewardOf(t.after)}
              </Table.Td>
              <Table.Td className="num">{signed(t.change)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

/** How many spans that speak are compared of each; the rest is on the page of the rollout. */
const compared = 200;

/** The two conversations of a task side by side. */
function Pair({ of, before, after, onChoose }: { of: TaskChange; before: string | null; after: string | null; onChoose: (v: Record<string, string | null>) => void }) {
  const a = of.before.rollouts.find((r) => r.rollout_id === before) ?? typical(of.before);
  const b = of.after.rollouts.find((r) => r.rollout_id === after) ?? typical(of.after);
  const early = useSpeaking(a?.rollout_id ?? '', a === undefined || a.attempt_id === '' ? undefined : a.attempt_id, compared);
  const late = useSpeaking(b?.rollout_id ?? '', b === undefined || b.attempt_id === '' ? undefined : b.attempt_id, compared);
  const lines = useMemo(() => sideBySide(conversation(early.spans), conversation(late.spans), (t) => `${speaker(t)} ${said(t)}`, speaker), [early.spans, late.spans]);
  const error = early.error ?? late.error;
  return (
    <Card label="Before and after" title={<span className="said">{task(of.task, 600)}</span>}>
      <div className="beside" role="table" aria-label="The conversations side by side">
        <div role="row">
          <Side name="Before" of={of.before} chosen={a?.rollout_id} onChoose={(id) => onChoose({ a: id })} />
          <Side name="After" of={of.after} chosen={b?.rollout_id} onChoose={(id) => onChoose({ b: id })} />
        </div>
        {error ? <Failed error={error} /> : lines.map((l, i) => <Spoken key={i} line={l} />)}
      </div>
      {!error && lines.length > 0 && lines.every((l) => l.same) && (
        <Text size="sm" c="dimmed">
          Both say the same.
        </Text>
      )}
    </Card>
  );
}

function Side({ name, of, chosen, onChoose }: { name: string; of: TaskTried; chosen: string | undefined; onChoose: (id: string | null) => void }) {
  const reward = of.rollouts.find((r) => r.rollout_id === chosen)?.reward ?? null;
  return (
    <div role="columnheader">
      <Text fw={600}>{`${name}: step ${of.step}, reward ${number(reward)}`}</Text>
      {of.rollouts.length > 1 && (
        <Select
          aria-label={`Rollout ${name.toLowerCase()}`}
          size="xs"
          maw={260}
          data={of.rollouts.map((r, i) => ({ value: r.rollout_id, label: `${i + 1} of ${of.tried}: reward ${number(r.reward)}` }))}
          value={chosen ?? null}
          onChange={onChoose}
          allowDeselect={false}
        />
      )}
      {chosen !== undefined && (
        <Anchor component={Link} to={`/rollouts/${encodeURIComponent(chosen)}`} className="mono" size="sm">
          {chosen}
        </Anchor>
      )}
    </div>
  );
}

function Spoken({ line }: { line: Beside<Turn> }) {
  const { before, after, same } = line;
  const words = useMemo(() => (same || !before || !after ? undefined : diffWords(said(before), said(after))), [before, after, same]);
  const cell = (t: Turn | undefined, side: 'before' | 'after') => {
    if (!t) return <div role="cell" />;
    const Mark = side === 'before' ? 'del' : 'ins';
    const note = same ? '' : words ? ' · differs' : ` · only ${side}`;
    return (
      <div role="cell" className="turn" data-role={speaker(t)}>
        <Text size="xs" c="dimmed">
          {speaker(t)}
          {note}
        </Text>
        <div className="said mono">{words ? words[side].map((p, i) => (p.changed ? <Mark key={i}>{p.text}</Mark> : p.text)) : same ? said(t) : <Mark>{said(t)}</Mark>}</div>
      </div>
    );
  };
  return (
    <div role="row">
      {cell(before, 'before')}
      {cell(after, 'after')}
    </div>
  );
}
