import { Anchor, Group, NumberInput, Select, Stack, Switch, Text } from '@mantine/core';
import { useMemo } from 'react';
import { Link, useSearchParams } from 'react-router-dom';
import { useBrowse, useMetrics, useRuns, useSpeaking } from '../data';
import { conversation, type Turn } from '../logic/conversation';
import { member, number, task } from '../logic/format';
import { groupAdvantage } from '../logic/tokens';
import { byMember, OfStep, Rewards } from '../parts/batch';
import { Card, Empty, Failed, Loading, PageTitle, Status } from '../parts/bits';
import { Chart } from '../parts/chart';
import type { Browsed } from '../types';

export function Component() {
  const runs = useRuns();
  const [q, setQ] = useSearchParams();
  // Runs that learn by comparing come first; others have no groups.
  const run = q.get('run') ?? runs.data?.find((r) => /^(pg|grpo|ppo|rl)/.test(r.algorithm))?.run_id ?? runs.data?.[0]?.run_id;
  const metrics = useMetrics(run);
  const last = metrics.data?.at(-1)?.step;
  const step = q.get('step') ?? (last === undefined ? undefined : String(last));
  const group = q.get('group');
  const mode = q.get('mode');
  const set = (values: Record<string, string | null>) =>
    setQ(
      (old) => {
        const next = new URLSearchParams(old);
        for (const [k, v] of Object.entries(values)) {
          if (v === null) next.delete(k);
          else next.set(k, v);
        }
        return next;
      },
      { replace: true },
    );
  if (runs.error) return <Failed error={runs.error} />;
  if (runs.isPending) return <Loading what="the runs" />;
  if (run === undefined) return <Empty title="No run yet">Groups are rollouts of one task that a run compares with one another.</Empty>;
  return (
    <Stack>
      <PageTitle>Groups</PageTitle>
      <Group align="end">
        <Select label="Run" data={runs.data.map((r) => ({ value: r.run_id, label: `${r.algorithm} ${r.run_id}` }))} value={run} onChange={(v) => v !== null && setQ({ run: v })} searchable allowDeselect={false} w={280} />
        <NumberInput label="Step" value={step === undefined ? '' : Number(step)} min={0} max={last} onChange={(v) => set({ step: String(v), group: null })} w={120} />
      </Group>
      {step !== undefined && group !== null ? <One run={run} step={step} group={group} mode={mode} back={() => set({ group: null, mode: null })} /> : step !== undefined ? <OfStep run={run} step={step} /> : <Empty title="This run has no step yet" />}
    </Stack>
  );
}

function One({ run, step, group, mode, back }: { run: string; step: string; group: string; mode: string | null; back: () => void }) {
  const found = useBrowse({ run_id: run, step, group, mode_in: mode === null ? undefined : [mode] }, 200);
  const [q, setQ] = useSearchParams();
  const onlyNew = q.get('same') !== 'yes';
  const members = useMemo(() => [...(found.data?.items ?? [])].sort(byMember), [found.data]);
  if (found.error) return <Failed error={found.error} />;
  if (found.isPending) return <Loading what="the group" />;
  if (members.length === 0) return <Empty title={`Step ${step} has no group ${group}`} />;
  const rewards = members.map((m) => m.digest.reward);
  return (
    <Stack>
      <Card
        title={`Group ${group} of step ${step}`}
        right={
          <Group>
            <Switch
              label="Show what all have in common"
              checked={!onlyNew}
              onChange={(e) =>
                setQ(
                  (old) => {
                    const next = new URLSearchParams(old);
                    next.set('same', e.currentTarget.checked ? 'yes' : 'no');
                    return next;
                  },
                  { replace: true },
                )
              }
            />
            <Anchor component="button" type="button" onClick={back}>
              All groups of the step
            </Anchor>
          </Group>
        }
      >
        <Text fw={500} mb="xs">
          {task(members[0]!.input, 600)}
        </Text>
        <Rewards members={members} link />
      </Card>
      <SameTask run={run} of={members[0]!} />
      <div style={{ display: 'grid', gridAutoFlow: 'column', gridAutoColumns: 'minmax(260px, 1fr)', gap: 12, overflowX: 'auto' }} tabIndex={0} role="region" aria-label="Members side by side, scrolls">
        {members.map((m, i) => (
          <Member key={m.rollout_id} of={m} first={i === 0 ? undefined : members[0]!} advantage={groupAdvantage(rewards, i)} onlyNew={onlyNew} />
        ))}
      </div>
    </Stack>
  );
}

function said(t: Turn): string {
  if (t.message) return [t.message.role, ...t.message.parts.map((p) => (p.type === 'text' ? p.text : p.type)), ...t.message.toolCalls.map((c) => `${c.name}(${c.arguments})`)].join(' ');
  return t.text ?? (t.rewards ?? []).map(([n, v]) => `${n} ${v}`).join(' ');
}

/** How many spans that speak are compared of each member; the rest is on the page of the rollout. */
const compared = 200;

/** One member; what it says unlike the first member is marked. */
function Member({ of, first, advantage, onlyNew }: { of: Browsed; first: Browsed | undefined; advantage: number | null; onlyNew: boolean }) {
  const own = useSpeaking(of.rollout_id, of.attempt?.attempt_id, compared);
  const other = useSpeaking((first ?? of).rollout_id, (first ?? of).attempt?.attempt_id, compared);
  const turns = useMemo(() => conversation(own.spans), [own.spans]);
  const theirs = useMemo(() => new Set(conversation(other.spans).map(said)), [other.spans]);
  return (
    <Card
      label={`Member ${of.rollout_id}`}
      title={
        <Anchor component={Link} to={`/rollouts/${encodeURIComponent(of.rollout_id)}`} className="mono">
          {of.rollout_id}
        </Anchor>
      }
    >
      <Text size="sm" mb="xs">
        Reward {number(of.digest.reward)}, advantage {number(advantage)} <Status value={of.status} />
      </Text>
      {own.error && <Failed error={own.error} />}
      {turns
        .filter((t) => !(onlyNew && t.message?.role === 'user'))
        .map((t) => {
          const text = said(t);
          const unlike = first !== undefined && !theirs.has(text);
          return (
            <div key={t.key} className="turn" data-role={t.message?.role ?? t.kind} style={{ background: unlike ? 'rgba(224, 160, 30, 0.16)' : undefined }}>
              <Text size="xs" c="dimmed">
                {t.message?.role ?? t.kind}
                {unlike && ' · unlike the first'}
              </Text>
              <div className="said mono">{text.replace(/^(user|assistant|tool|system) /, '')}</div>
            </div>
          );
        })}
    </Card>
  );
}

/** How the same task went at other steps of the run. */
function SameTask({ run, of }: { run: string; of: Browsed }) {
  const id = typeof of.input === 'object' && of.input !== null ? (of.input as Record<string, unknown>)['id'] : undefined;
  // The id of a task, or else its words, finds it among the others.
  const text = typeof id === 'string' ? JSON.stringify(id) : task(of.input, 80).replace(/…$/, '');
  const found = useBrowse({ run_id: run, text, mode_in: of.mode === null ? undefined : [of.mode] }, 1000);
  const points = useMemo(() => {
    const bySteps = new Map<number, number[]>();
    for (const r of found.data?.items ?? []) {
      const step = Number(member(r.metadata, 'agl.step'));
      if (r.digest.reward === null || !Number.isFinite(step)) continue;
      const list = bySteps.get(step);
      if (list) list.push(r.digest.reward);
      else bySteps.set(step, [r.digest.reward]);
    }
    return [...bySteps].sort((a, b) => a[0] - b[0]).map(([step, list]) => ({ step, mean: list.reduce((a, b) => a + b, 0) / list.length }));
  }, [found.data]);
  return (
    <Card title="The same task across steps">
      {found.error ? (
        <Failed error={found.error} />
      ) : points.length < 2 ? (
        <Text c="dimmed">{points.length === 1 ? `Only step ${points[0]!.step} had this task; the mean reward was ${number(points[0]!.mean)}.` : 'No rewarded rollout of it.'}</Text>
      ) : (
        <Chart x={points.map((p) => p.step)} lines={[{ label: 'mean reward', values: points.map((p) => p.mean) }]} height={140} label="Mean reward of this task by step" />
      )}
    </Card>
  );
}
