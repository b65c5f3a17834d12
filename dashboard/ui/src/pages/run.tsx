import { Alert, Anchor, Grid, Group, NumberInput, SimpleGrid, Stack, Table, Tabs, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { Link, useParams } from 'react-router-dom';
import { useAddress } from '../parts/address';
import { get } from '../api';
import { useCheckpoint, useMetrics, useResources, useRun } from '../data';
import { candidatesOf } from '../logic/candidates';
import { duration, moment, number, words } from '../logic/format';
import { logPath } from '../logic/log';
import { hints, keysOf, mainKeys, series, shorten, smooth, verdict } from '../logic/verdict';
import { OfStep } from '../parts/batch';
import { Card, Empty, Failed, Figure, ID, Json, Loading, PageTitle, Status, When } from '../parts/bits';
import { Candidates } from '../parts/candidates';
import { Chart, type Line } from '../parts/chart';
import { Hints } from '../parts/hints';
import { useNow } from '../parts/now';
import { RunLog } from '../parts/runlog';
import { Samples } from '../parts/samples';
import type { Checkpoint, Run } from '../types';

export function Component() {
  const { id = '' } = useParams();
  const run = useRun(id);
  if (run.error) return <Failed error={run.error} retry={() => void run.refetch()} />;
  if (run.isPending) return <Loading what="the run" />;
  if (run.data === null) {
    return (
      <Empty title={`There is no run ${id}`}>
        It may have been deleted; its{' '}
        <Anchor component={Link} to={`/rollouts?run_id=${encodeURIComponent(id)}`}>
          rollouts
        </Anchor>{' '}
        stay then.{' '}
        <Anchor component={Link} to="/runs">
          All runs
        </Anchor>
      </Empty>
    );
  }
  return <Shown key={id} run={run.data} />;
}

function Shown({ run }: { run: Run }) {
  const [q, set] = useAddress();
  const metrics = useMetrics(run.run_id);
  const now = useNow();
  const raw = useMemo(() => metrics.data ?? [], [metrics.data]);
  const points = useMemo(() => shorten(raw), [raw]);
  const v = verdict(points, run.status === 'running');
  const why = hints(points, run.run_id);
  const last = points.at(-1);
  const { goal, validation } = mainKeys(points);
  const x = points.map((p) => p.step);
  const lines: Line[] = [goal, validation].filter((k): k is string => k !== undefined).map((k, i) => ({ label: words(k), values: points.map((p) => p.values[k] ?? null), dash: i === 1 }));
  const rate = last?.values['sampled_tokens'] !== undefined && last.values['seconds'] ? last.values['sampled_tokens'] / last.values['seconds'] : undefined;
  return (
    <Stack>
      <PageTitle
        right={
          <Anchor component={Link} to={`/runs?run=${encodeURIComponent(run.run_id)}`} size="sm">
            Compare with others
          </Anchor>
        }
      >
        <Group gap="xs">
          {run.algorithm} <ID value={run.run_id} /> <Status value={run.status} size="lg" />
        </Group>
      </PageTitle>
      {run.error !== '' && (
        <Alert color={run.status === 'running' ? 'yellow' : 'red'} title={run.status === 'running' ? 'The run makes no progress' : 'The run failed'} role="alert">
          <Text className="said" size="sm">
            {run.error}
          </Text>
          <Anchor component={Link} to={logPath(run.run_id)} size="sm">
            What it said before that
          </Anchor>
        </Alert>
      )}
      <Card
        label="Is it learning?"
        title={
          <Group gap="xs">
            Is it learning? <Status value={v.word} size="lg" />
          </Group>
        }
      >
        <Text mb="xs">{v.sentence}</Text>
        <Hints why={why} word={v.word} />
        {metrics.error ? <Failed error={metrics.error} /> : lines.length > 0 && <Chart x={x} lines={lines} label="Reward by step" sync="run" />}
        <SimpleGrid cols={{ base: 2, sm: 4, lg: 6 }} mt="sm">
          <Figure label="Step" value={last ? number(last.step) : '–'} />
          <Figure label="Took" value={duration((run.end_time ?? now) - run.start_time)} />
          <Figure label="Seed" value={String(run.seed)} />
          <Figure label="Tokens / s" value={number(rate)} hint="Sampled tokens of the last step by its seconds" />
          <Figure label="Rollouts" value="Open" to={`/rollouts?run_id=${encodeURIComponent(run.run_id)}`} />
          <Figure label="Groups" value="Open" to={`/groups?run=${encodeURIComponent(run.run_id)}`} />
        </SimpleGrid>
      </Card>
      <Tabs
        value={q.get('tab') ?? 'metrics'}
        onChange={(t) => set({ tab: t ?? 'metrics' })}
        keepMounted={false}
      >
        <Tabs.List aria-label="What to see of the run">
          <Tabs.Tab value="metrics">All metrics</Tabs.Tab>
          <Tabs.Tab value="batches">Batches</Tabs.Tab>
          <Tabs.Tab value="samples">Samples</Tabs.Tab>
          <Tabs.Tab value="checkpoints">Checkpoints</Tabs.Tab>
          <Tabs.Tab value="resources">Resources</Tabs.Tab>
          <Tabs.Tab value="log">Log</Tabs.Tab>
          <Tabs.Tab value="config">Configuration</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="metrics" pt="sm">
          <Grid>
            {keysOf(raw)
              .filter((k) => series(raw, k).length > 1)
              .map((k) => {
                const values = raw.map((p) => p.values[k] ?? null);
                return (
                  <Grid.Col key={k} span={{ base: 12, sm: 6, xl: 4 }}>
                    <Card title={k}>
                      <Chart
                        x={x}
                        lines={raw.length > 50 ? [{ label: 'measured', values, faint: true }, { label: 'smoothed', values: smooth(values, 0.8), colour: '#1c7ed6' }] : [{ label: k, values }]}
                        height={150}
                        label={`${k} by step`}
                        sync="run"
                      />
                    </Card>
                  </Grid.Col>
                );
              })}
          </Grid>
          {raw.length === 0 && <Empty title="No metrics yet" />}
        </Tabs.Panel>
        <Tabs.Panel value="batches" pt="sm">
          <Batches run={run} last={last?.step} />
        </Tabs.Panel>
        <Tabs.Panel value="samples" pt="sm">
          <Samples run={run} metrics={points} />
        </Tabs.Panel>
        <Tabs.Panel value="checkpoints" pt="sm">
          <Checkpoints run={run} />
        </Tabs.Panel>
        <Tabs.Panel value="resources" pt="sm">
          <Published run={run} />
        </Tabs.Panel>
        <Tabs.Panel value="log" pt="sm">
          <RunLog run={run} />
        </Tabs.Panel>
        <Tabs.Panel value="config" pt="sm">
          <Json value={run.config} label="Configuration" />
        </Tabs.Panel>
      </Tabs>
    </Stack>
  );
}

/** The rollouts that made a step, the last one unless another is chosen. */
function Batches({ run, last }: { run: Run; last: number | undefined }) {
  const [q, set] = useAddress();
  if (last === undefined) return <Empty title="This run has no step yet" />;
  const step = q.get('step') ?? String(last);
  const go = (to: number) => set({ step: String(to) });
  return (
    <Stack gap="sm">
      <Group gap="xs" align="end">
        <NumberInput label="Step" value={Number(step)} min={0} max={last} onChange={(v) => typeof v === 'number' && go(v)} w={120} />
        <Anchor component={Link} to={`/rollouts?run_id=${encodeURIComponent(run.run_id)}&step=${encodeURIComponent(step)}`} size="sm" mb={8}>
          Its rollouts as a list
        </Anchor>
      </Group>
      <OfStep run={run.run_id} step={step} />
      <Text size="sm" c="dimmed">
        Advantages are those of GRPO: reward less the mean of the group, by its standard deviation. Other methods weight rewards otherwise; a group whose rewards are all one moves nothing.
      </Text>
    </Stack>
  );
}

function Checkpoints({ run }: { run: Run }) {
  const all = useQuery({ queryKey: ['run', run.run_id, 'checkpoints'], queryFn: ({ signal }) => get<Checkpoint[]>(`v1/agl/runs/${encodeURIComponent(run.run_id)}/checkpoints`, signal) });
  const latest = useCheckpoint(run.run_id);
  const candidates = useMemo(() => candidatesOf(latest.data?.state), [latest.data]);
  if (all.error) return <Failed error={all.error} />;
  if (all.isPending) return <Loading what="the checkpoints" />;
  if (all.data.length === 0) return <Empty title="No checkpoint yet">The run goes on from its beginning when it is resumed.</Empty>;
  const best = all.data.reduce<number | null>((a, c) => (c.score !== null && (a === null || c.score > a) ? c.score : a), null);
  return (
    <Stack>
      {candidates.length > 0 && (
        <Card title={`Candidates (${candidates.length})`}>
          <Candidates list={candidates} />
        </Card>
      )}
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th className="num">Step</Table.Th>
            <Table.Th className="num">Score</Table.Th>
            <Table.Th>When</Table.Th>
            <Table.Th>Weights</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {all.data.map((c) => (
            <Table.Tr key={c.step}>
              <Table.Td className="num">{c.step}</Table.Td>
              <Table.Td className="num">
                {number(c.score)} {c.score !== null && c.score === best && <Status value="best" />}
              </Table.Td>
              <Table.Td>{moment(c.time)}</Table.Td>
              <Table.Td className="mono">{c.path === '' ? '–' : c.path}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      <Json value={latest.data?.state ?? null} label="State of the latest checkpoint" />
    </Stack>
  );
}

function Published({ run }: { run: Run }) {
  const resources = useResources();
  if (resources.error) return <Failed error={resources.error} />;
  const during = (resources.data?.items ?? []).filter((r) => r.update_time >= run.start_time && (run.end_time === null || r.update_time <= run.end_time));
  if (during.length === 0) return <Empty title="Nothing was published while this run went on" />;
  return (
    <Table>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Resources</Table.Th>
          <Table.Th className="num">Version</Table.Th>
          <Table.Th>When</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {during.map((r) => (
          <Table.Tr key={r.resources_id}>
            <Table.Td>
              <ID value={r.resources_id} to={`/resources/${encodeURIComponent(r.resources_id)}`} />
            </Table.Td>
            <Table.Td className="num">{r.version}</Table.Td>
            <Table.Td>
              <When t={r.update_time} />
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
