import { Anchor, Group, Stack, Table, Text } from '@mantine/core';
import { useMemo } from 'react';
import { Link } from 'react-router-dom';
import { useBrowse, useMetrics, useRun } from '../data';
import { member, number, task } from '../logic/format';
import { signed } from '../logic/samples';
import { gapOf, groupAdvantage, learnerSilence } from '../logic/tokens';
import type { Browsed } from '../types';
import { Card, Empty, Failed, Loading } from './bits';

export function byMember(a: Browsed, b: Browsed): number {
  return Number(member(a.metadata, 'agl.member') ?? 0) - Number(member(b.metadata, 'agl.member') ?? 0);
}

interface Row {
  name: string;
  mode: string;
  members: Browsed[];
  mean: number | null;
  spread: number | null;
  gap: number | null;
}

/** Groups of a list of rollouts, those that teach the most first. */
function groupsOf(items: Browsed[], run: string): Row[] {
  const found = new Map<string, Browsed[]>();
  for (const r of items) {
    const name = member(r.metadata, 'agl.group');
    if (name === undefined) continue;
    // Validation has groups of the same names as training.
    const key = `${r.mode ?? 'none'} ${name}`;
    const list = found.get(key);
    if (list) list.push(r);
    else found.set(key, [r]);
  }
  return [...found]
    .map(([key, members]) => {
      const [mode = '', ...rest] = key.split(' ');
      const name = rest.join(' ');
      const rewards = members.map((m) => m.digest.reward).filter((x): x is number => x !== null);
      const mean = rewards.length === 0 ? null : rewards.reduce((a, b) => a + b, 0) / rewards.length;
      const spread = mean === null ? null : Math.sqrt(rewards.reduce((a, b) => a + (b - mean) ** 2, 0) / rewards.length);
      return { name, mode, members: members.sort(byMember), mean, spread, gap: gapOf(members, run)?.mean ?? null };
    })
    .sort((a, b) => (b.spread ?? -1) - (a.spread ?? -1) || Number(a.name) - Number(b.name));
}

/** A reward as a box whose shade says how it compares; the number is its title. */
export function Rewards({ members, link }: { members: Browsed[]; link?: boolean }) {
  const values = members.map((m) => m.digest.reward).filter((x): x is number => x !== null);
  const low = Math.min(...values);
  const high = Math.max(...values);
  return (
    <span style={{ display: 'inline-flex', gap: 3 }}>
      {members.map((m) => {
        const r = m.digest.reward;
        const share = r === null ? 0 : high > low ? (r - low) / (high - low) : Math.min(1, Math.max(0, r));
        const box = (
          <span
            className="num"
            style={{ minWidth: 30, padding: '0 4px', textAlign: 'center', borderRadius: 3, border: '1px solid var(--mantine-color-default-border)', background: r === null ? undefined : `rgba(30,150,80,${(share * 0.45).toFixed(2)})` }}
          >
            {number(r, 2)}
          </span>
        );
        return link ? (
          <Link key={m.rollout_id} to={`/rollouts/${encodeURIComponent(m.rollout_id)}`} style={{ color: 'inherit', textDecoration: 'none' }} aria-label={`Rollout ${m.rollout_id}, reward ${number(r)}`}>
            {box}
          </Link>
        ) : (
          <span key={m.rollout_id}>{box}</span>
        );
      })}
    </span>
  );
}

/** The advantages of members, in their order, or that there are none. */
function advantagesOf(members: Browsed[]): string {
  const rewards = members.map((m) => m.digest.reward);
  const all = rewards.map((_, i) => groupAdvantage(rewards, i));
  return all.every((a) => a === null || a === 0) ? 'none: all rewards are one' : all.map((a) => (a === null ? '–' : `${a > 0 ? '+' : ''}${a.toFixed(2)}`)).join(' ');
}

/** What a step of a run was made of: its groups, with rewards and advantages. */
export function OfStep({ run, step }: { run: string; step: string }) {
  const found = useBrowse({ run_id: run, step }, 1000);
  const rows = useMemo(() => groupsOf(found.data?.items ?? [], run), [found.data, run]);
  if (found.error) return <Failed error={found.error} />;
  if (found.isPending) return <Loading what="the groups" />;
  if (rows.length === 0) return <Empty title={`Step ${step} has no groups`}>{found.data.complete ? '' : 'Only the newest rollouts were looked at; choose a later step.'}</Empty>;
  const constant = rows.filter((r) => r.spread !== null && r.spread < 1e-9).length;
  return (
    <Card title={`${rows.length} groups of step ${step}`} right={<Text size="sm">{constant} with one reward for all: they teach nothing</Text>}>
      <Gaps run={run} items={found.data.items} />
      <div style={{ overflowX: 'auto' }} tabIndex={0} role="region" aria-label="Groups, scrolls">
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Group</Table.Th>
              <Table.Th>Task</Table.Th>
              <Table.Th className="num">Mean</Table.Th>
              <Table.Th className="num">Spread</Table.Th>
              <Table.Th className="num" title="Log-probability when sampled less that under the policy in training, mean over the tokens, in nats">
                Gap
              </Table.Th>
              <Table.Th>Rewards of the members</Table.Th>
              <Table.Th>Advantages</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.map((r) => (
              <Table.Tr key={`${r.mode} ${r.name}`}>
                <Table.Td>
                  <Anchor component={Link} to={`/groups?run=${encodeURIComponent(run)}&step=${step}&group=${encodeURIComponent(r.name)}&mode=${r.mode}`}>
                    {r.name}
                  </Anchor>
                  {r.mode !== 'train' && ` (${r.mode})`}
                </Table.Td>
                <Table.Td style={{ maxWidth: 320 }} className="one-line">
                  {task(r.members[0]!.input, 120)}
                </Table.Td>
                <Table.Td className="num">{number(r.mean)}</Table.Td>
                <Table.Td className="num">{number(r.spread)}</Table.Td>
                <Table.Td className="num">{signed(r.gap)}</Table.Td>
                <Table.Td>
                  <Rewards members={r.members} link />
                </Table.Td>
                <Table.Td className="mono" style={{ minWidth: 210 }}>
                  {advantagesOf(r.members)}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
    </Card>
  );
}

/** How far the policy in training was from the one that sampled, over a step, and where the furthest. */
function Gaps({ run: id, items }: { run: string; items: Browsed[] }) {
  const run = useRun(id);
  const metrics = useMetrics(id);
  const all = useMemo(() => gapOf(items, id), [items, id]);
  if (!all) {
    // A digest knows the last step only that trained on a rollout.
    const other = items.find((r) => r.digest.gap !== undefined)?.digest.gap?.run_id;
    if (other !== undefined) {
      return (
        <Text size="sm" c="dimmed" mb="sm" role="note">
          {`${other} has trained on these rollouts since; the tokens of each show the gap of both runs.`}
        </Text>
      );
    }
    if (!run.data || !metrics.data) return null;
    return (
      <Text size="sm" c="dimmed" mb="sm" role="note">
        {`No gap between sampling and training by token: ${learnerSilence(run.data, metrics.data) ?? 'no step has trained on these rollouts yet, or none of them taught anything.'}`}
      </Text>
    );
  }
  return (
    <Stack gap={4} mb="sm" component="section" aria-label="Gap between sampling and training">
      <Text size="sm">{`Gap between the policy that sampled and the one in training: ${signed(all.sum)} nats over ${number(all.tokens)} tokens, ${signed(all.mean)} a token. The largest:`}</Text>
      <Group gap="md" component="nav" aria-label="Largest gaps">
        {all.largest.map((r) => (
          <Anchor key={r.rollout_id} component={Link} size="sm" to={`/rollouts/${encodeURIComponent(r.rollout_id)}?tab=tokens&by=gap&token=${encodeURIComponent(`${r.digest.gap!.span_id}.${r.digest.gap!.position}`)}`}>
            {`${signed(r.digest.gap!.largest)} in ${r.rollout_id}`}
          </Anchor>
        ))}
      </Group>
    </Stack>
  );
}
