import { Anchor, Group, NumberInput, Select, Stack, Switch, Text } from '@mantine/core';
import { useMemo } from 'react';
import { Link, useSearchParams } from 'react-router-dom';
import { useAddress } from '../parts/address';
import { useBrowse, useMetrics, useRuns, useSpeaking } from '../data';
import { conversation, said, speaker } from '../logic/conversation';
import { member, number, task } from '../logic/format';
import { acrossSteps } from '../logic/samples';
import { groupAdvantage } from '../logic/tokens';
import { byMember, OfStep, Rewards } from '../parts/batch';
import { Card, Empty, Failed, Loading, PageTitle, Status } from '../parts/bits';
import { Chart } from '../parts/chart';
import type { Browsed } from '../types';

export function Component() {
  const runs = useRuns();
  const [q, set] = useAddress();
  const [, setQ] = useSearchParams();
  // Runs that learn by comparing come first; others have no groups.
  const run = q.get('run') ?? runs.data?.find((r) => /^(pg|grpo|ppo|rl)/.test(r.algorithm))?.run_id ?? runs.data?.[0]?.run_id;
  const metrics = useMetrics(run);
  const last = metrics.data?.at(-1)?.step;
  const step = q.get('step') ?? (last === undefined ? undefined : String(last));
  const group = q.get('group');
  const mode = q.get('mode');
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
  const [q, set] = useAddress();
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
              onChange={(e) => set({ same: e.currentTarget.checked ? 'yes' : 'no' })}
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

/** How many spans that speak are compared of each member; the rest is on the page of the rollout. */
const compared = 200;

/** One member; what it says unlike the first member is marked. */
function Member({ of, first, advantage, onlyNew }: { of: Browsed; first: Browsed | undefined; advantage: number | null; onlyNew: boolean }) {
  const own = useSpeaking(of.rollout_id, of.attempt?.attempt_id, compared);
  const other = useSpeaking((first ?? of).rollout_id, (first ?? of).attempt?.attempt_id, compared);
  const turns = useMemo(() => conversation(own.spans), [own.spans]);
  const theirs = useMemo(() => new Set(conversation(other.spans).map((t) => `${speaker(t)} ${said(t)}`)), [other.spans]);
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
          const unlike = first !== undefined && !theirs.has(`${speaker(t)} ${text}`);
          return (
            <div key={t.key} className="turn" data-role={speaker(t)} style={{ background: unlike ? 'rgba(224, 160, 30, 0.16)' : undefined }}>
              <Text size="xs" c="dimmed">
                {speaker(t)}
                {unlike && ' · unlike the first'}
              </Text>
              <div className="said mono">{text}</div>
            </div>
          );
        })}
    </Card>
  );
}

/** How the same task went at other steps of the run. */
function SameTask({ run, of }: { run: string; of: Browsed }) {
  const found = useBrowse({ run_id: run, same_task: of.rollout_id, mode_in: [of.mode ?? 'none'] }, 1000);
  const points = useMemo(() => acrossSteps(found.data?.items ?? []), [found.data]);
  const here = Number(member(of.metadata, 'agl.step'));
  const rewarded = points.filter((p) => p.mean !== null);
  return (
    <Card title="The same task across steps">
      {found.error ? (
        <Failed error={found.error} />
      ) : found.isPending ? (
        <Loading what="the other steps" />
      ) : points.length < 2 ? (
        <Text c="dimmed">{points.length === 1 ? `Only step ${points[0]!.step} had this task; the mean reward was ${number(points[0]!.mean)}.` : 'No rollout of it says which step it is of.'}</Text>
      ) : (
        <Stack gap="xs">
          {rewarded.length > 1 && <Chart x={rewarded.map((p) => p.step)} lines={[{ label: 'mean reward', values: rewarded.map((p) => p.mean) }]} height={140} label="Mean reward of this task by step" />}
          <Group gap="xs" component="nav" aria-label="The same task at other steps">
            {points.map((p) => (
              <Anchor
                key={p.step}
                component={Link}
                size="sm"
                aria-current={p.step === here ? 'step' : undefined}
                fw={p.step === here ? 600 : undefined}
                to={
                  p.group === undefined
                    ? `/rollouts?run_id=${encodeURIComponent(run)}&step=${p.step}`
                    : `/groups?run=${encodeURIComponent(run)}&step=${p.step}&group=${encodeURIComponent(p.group)}&mode=${of.mode ?? 'none'}`
                }
              >
                {`step ${p.step}: ${p.mean === null ? 'no reward' : number(p.mean)}${p.tried > 1 ? ` (${p.rewarded === p.tried ? '' : `${p.rewarded} of `}${p.tried})` : ''}`}
              </Anchor>
            ))}
          </Group>
        </Stack>
      )}
      {found.data && (!found.data.complete || found.data.total > found.data.items.length) && (
        <Text size="sm" c="dimmed">
          Only the newest rollouts were looked at; earlier steps may have had it, too.
        </Text>
      )}
    </Card>
  );
}
