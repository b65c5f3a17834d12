import { Alert, Anchor, Grid, Group, List, SimpleGrid, Stack, Table, Text } from '@mantine/core';
import { useMemo } from 'react';
import { Link } from 'react-router-dom';
import { useBackends, useBrowse, useCapabilities, useFared, useMetrics, useModels, useOverview, usePause, useRuns, useStatistics, useWorkers } from '../data';
import { conditions, total, troubles } from '../logic/backends';
import { duration, number, oneLine, task, words } from '../logic/format';
import { hints, mainKeys, series, shorten, verdict } from '../logic/verdict';
import { Card, Empty, Failed, Figure, Loading, PageTitle, Status, When } from '../parts/bits';
import { Chart, type Line } from '../parts/chart';
import { CallsAndTokens } from '../parts/fares';
import { Hints } from '../parts/hints';
import { useNow } from '../parts/now';
import type { Run } from '../types';

export function Component() {
  const runs = useRuns();
  // The run that a person means: what trains, rather than what only wraps it.
  const main = useMemo(() => chosenRun(runs.data), [runs.data]);
  return (
    <Stack gap="md">
      <PageTitle>Overview</PageTitle>
      {runs.error ? <Failed error={runs.error} retry={() => void runs.refetch()} /> : runs.isPending ? <Loading what="the runs" /> : <Learning run={main} />}
      <Figures />
      <Rates />
      <Grid>
        <Grid.Col span={{ base: 12, md: 6 }}>
          <Attention />
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 6 }}>
          <Failures />
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 6 }}>
          <Backends />
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 6 }}>
          <Newest />
        </Grid.Col>
      </Grid>
    </Stack>
  );
}

const trains = /^(pg|grpo|ppo|apo|gepa|dpo|rl)/;

/** The newest run that is running, or the newest of all; those that learn by reward first. */
function chosenRun(runs: Run[] | undefined): Run | undefined {
  if (!runs) return undefined;
  const running = runs.filter((r) => r.status === 'running');
  const from = running.length > 0 ? running : runs;
  return from.find((r) => trains.test(r.algorithm)) ?? from[0];
}

/** Is it learning, and why not: the first thing on the first page. */
function Learning({ run }: { run: Run | undefined }) {
  const metrics = useMetrics(run?.run_id);
  const now = useNow();
  const points = useMemo(() => shorten(metrics.data ?? []), [metrics.data]);
  const curve = useMemo(() => {
    const { goal, validation } = mainKeys(points);
    const lines: { key: string; dash: boolean }[] = [];
    if (goal !== undefined) lines.push({ key: goal, dash: false });
    if (validation !== undefined) lines.push({ key: validation, dash: true });
    const x = points.map((p) => p.step);
    return { x, lines: lines.map(({ key, dash }): Line => ({ label: words(key), values: points.map((p) => p.values[key] ?? null), dash })), goal, validation };
  }, [points]);
  if (!run) {
    return (
      <Empty title="Nothing has been trained with this server yet">
        Start the example with <code>go run ./examples/calc</code>, or an algorithm of your own; its curve appears here.
      </Empty>
    );
  }
  const running = run.status === 'running';
  const v = verdict(points, running);
  const why = hints(points, run.run_id);
  const last = points.at(-1);
  const silent = running && last !== undefined && now - last.time > 120;
  const validation = curve.validation === undefined ? [] : series(points, curve.validation);
  return (
    <Card
      label="Is it learning?"
      title={
        <Group gap="xs">
          Is it learning? <Status value={v.word} size="lg" />
        </Group>
      }
      right={
        <Text size="sm">
          <Anchor component={Link} to={`/runs/${encodeURIComponent(run.run_id)}`}>
            {run.algorithm} {run.run_id}
          </Anchor>{' '}
          <Status value={run.status} /> {running ? 'for' : 'took'} {duration((run.end_time ?? now) - run.start_time)}
          {last && `, step ${last.step}`}
        </Text>
      }
    >
      <Text mb="xs">
        {v.sentence}
        {validation.length > 1 && ` The ${words(curve.validation!)} went from ${number(validation[0]!.value)} to ${number(validation.at(-1)!.value)}.`}
      </Text>
      {run.error !== '' && (
        <Alert color="red" title="The run failed" mb="xs">
          {run.error}
        </Alert>
      )}
      {silent && (
        <Alert color="yellow" title="No step for a while" mb="xs">
          The last metrics came <When t={last.time} />. Look at the queue and the workers below.
        </Alert>
      )}
      <Hints why={why} word={v.word} />
      {metrics.error ? <Failed error={metrics.error} /> : curve.lines.length > 0 && <Chart x={curve.x} lines={curve.lines} label={`Curves of run ${run.run_id} by step`} />}
    </Card>
  );
}

function Figures() {
  const overview = useOverview();
  const statistics = useStatistics();
  const workers = useWorkers();
  const fared = useFared('recent');
  const calls = fared.data && total(fared.data, (b) => b.calls_per_second).at(-1);
  const o = overview.data;
  const active = o === undefined ? undefined : o.rollouts.running + o.rollouts.preparing;
  const busy = workers.data?.items.filter((w) => w.status === 'busy').length;
  return (
    <Card title="Now">
      {overview.error && <Failed error={overview.error} />}
      <SimpleGrid cols={{ base: 2, xs: 3, sm: 4, lg: 8 }} spacing="md">
        <Figure label="Waiting" value={number(o?.queue.length)} to="/rollouts?status=queuing&status=requeuing" hint="Rollouts in the queue" />
        <Figure label="Longest wait" value={o && o.queue.length > 0 ? duration(o.queue.waiting_seconds) : '–'} />
        <Figure label="In progress" value={number(active)} to="/rollouts?status=running&status=preparing" />
        <Figure label="Succeeded" value={number(o?.rollouts.succeeded)} to="/rollouts?status=succeeded" />
        <Figure label="Failed" value={number(o?.rollouts.failed)} to="/rollouts?status=failed" />
        <Figure label="Workers busy" value={workers.data ? `${busy} of ${workers.data.total}` : '–'} to="/workers" />
        <Figure label="Model calls / s" value={number(calls)} to="/models" hint="Model calls that ended, over five seconds of the last half minute" />
        <Figure label="Spans" value={number(statistics.data?.total_spans)} to="/store" />
      </SimpleGrid>
    </Card>
  );
}

function Rates() {
  const can = useCapabilities().data?.history === true;
  return can ? <CallsAndTokens /> : null;
}

/** What a person has to do something about. */
function Attention() {
  const overview = useOverview();
  const workers = useWorkers();
  const models = useModels();
  const pause = usePause();
  const statistics = useStatistics();
  const backends = useBackends(30_000);
  const fared = useFared('recent');
  const now = useNow();
  const items: { text: string; to: string; link: string }[] = [];
  const o = overview.data;
  const list = workers.data?.items ?? [];
  const alive = list.filter((w) => now - Math.max(w.last_heartbeat_time ?? 0, w.last_dequeue_time ?? 0, w.last_busy_time ?? 0, w.last_idle_time ?? 0) < 60);
  if (o && o.queue.length > 0 && alive.length === 0) items.push({ text: `${number(o.queue.length)} rollouts wait and no worker has come by for a minute.`, to: '/workers', link: 'Workers' });
  else if (o && o.queue.waiting_seconds > 300) items.push({ text: `The front of the queue has waited for ${duration(o.queue.waiting_seconds)}.`, to: '/rollouts?status=queuing', link: 'The queue' });
  const lost = list.filter((w) => w.status === 'busy' && !alive.includes(w));
  if (lost.length > 0) items.push({ text: `${lost.length} worker${lost.length === 1 ? ' is' : 's are'} busy and silent.`, to: '/workers', link: 'Workers' });
  if (models.data?.length === 0) items.push({ text: 'No model backend is registered: calls through the proxy fail.', to: '/models', link: 'Models' });
  for (const t of troubles(backends.data?.backends ?? [], fared.data).slice(0, 3)) {
    items.push({ text: `Model ${t.model} at ${t.endpoint} is ${t.what === conditions.unreachable ? 'out of reach' : t.what}${t.since === null ? '' : ` for ${duration(Math.max(0, Math.round(now - t.since)))}`}${t.why === '' ? '' : `: ${oneLine(t.why, 160)}`}.`, to: '/models', link: 'Models' });
  }
  if (pause.data?.paused) items.push({ text: `Model calls are paused${pause.data.reason === null ? '' : `: ${pause.data.reason}`}.`, to: '/models', link: 'Models' });
  const s = statistics.data;
  if (s?.eviction_threshold_bytes !== undefined && (s.total_span_bytes ?? 0) > 0.9 * s.eviction_threshold_bytes) {
    items.push({ text: 'The store in memory is nearly full and will drop the oldest spans.', to: '/store', link: 'Store' });
  }
  return (
    <Card title="Needs attention">
      {items.length === 0 ? (
        <Text c="dimmed">Nothing. The queue moves, workers answer, models are there.</Text>
      ) : (
        <List>
          {items.map((i) => (
            <List.Item key={i.text}>
              {i.text}{' '}
              <Anchor component={Link} to={i.to}>
                {i.link}
              </Anchor>
            </List.Item>
          ))}
        </List>
      )}
    </Card>
  );
}

/** Why the newest of the failed rollouts failed. */
function Failures() {
  const failed = useBrowse({ status_in: ['failed'] }, 200);
  const reasons = useMemo(() => {
    const out = new Map<string, { n: number; to: string }>();
    for (const r of failed.data?.items ?? []) {
      const problem = r.digest.problem;
      const name = problem !== '' ? words(problem) : r.attempt ? `attempt ${words(r.attempt.status)}` : 'never attempted';
      const to = problem !== '' ? `?status=failed&problem=${problem}` : `?status=failed${r.attempt ? `&attempt_status=${r.attempt.status}` : ''}`;
      const known = out.get(name);
      if (known) known.n++;
      else out.set(name, { n: 1, to });
    }
    return [...out].sort((a, b) => b[1].n - a[1].n);
  }, [failed.data]);
  return (
    <Card title="Failures by reason" right={failed.data && failed.data.total > 200 ? <Text size="xs">the newest 200 of {number(failed.data.total)}</Text> : null}>
      {failed.error ? (
        <Failed error={failed.error} />
      ) : reasons.length === 0 ? (
        <Text c="dimmed">{failed.isPending ? 'Reading …' : 'No rollout has failed.'}</Text>
      ) : (
        <Table>
          <Table.Tbody>
            {reasons.map(([name, { n, to }]) => (
              <Table.Tr key={name}>
                <Table.Td>
                  <Anchor component={Link} to={`/rollouts${to}`}>
                    {name}
                  </Anchor>
                </Table.Td>
                <Table.Td className="num">{number(n)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Card>
  );
}

function Backends() {
  const models = useModels();
  const report = useBackends(30_000);
  return (
    <Card
      title="Model backends"
      right={
        <Anchor component={Link} to="/models" size="sm">
          All of it
        </Anchor>
      }
    >
      {models.error ? (
        <Failed error={models.error} />
      ) : (
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Model</Table.Th>
              <Table.Th className="wide-only">Endpoint</Table.Th>
              <Table.Th>State</Table.Th>
              <Table.Th className="num">Calls</Table.Th>
              <Table.Th className="num">Failed</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {(models.data ?? []).map((m) => {
              const b = report.data?.backends.find((b) => b.model === m.model && b.endpoint === m.endpoint);
              return (
                <Table.Tr key={`${m.model} ${m.endpoint}`}>
                  <Table.Td>{m.model}</Table.Td>
                  <Table.Td className="wide-only mono">{m.endpoint}</Table.Td>
                  <Table.Td>{b ? <Status value={conditions[b.condition]} /> : '–'}</Table.Td>
                  <Table.Td className="num">{number(b?.calls)}</Table.Td>
                  <Table.Td className="num">{number(b?.failures)}</Table.Td>
                </Table.Tr>
              );
            })}
            {models.data?.length === 0 && (
              <Table.Tr>
                <Table.Td colSpan={5}>None is registered.</Table.Td>
              </Table.Tr>
            )}
          </Table.Tbody>
        </Table>
      )}
    </Card>
  );
}

function Newest() {
  const newest = useBrowse({}, 8);
  return (
    <Card
      title="Newest rollouts"
      right={
        <Anchor component={Link} to="/rollouts" size="sm">
          All of them
        </Anchor>
      }
    >
      {newest.error ? (
        <Failed error={newest.error} />
      ) : (
        <Table layout="fixed">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Task</Table.Th>
              <Table.Th w={100}>Status</Table.Th>
              <Table.Th w={70} className="num">
                Reward
              </Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {(newest.data?.items ?? []).map((r) => (
              <Table.Tr key={r.rollout_id}>
                <Table.Td className="one-line">
                  <Anchor component={Link} to={`/rollouts/${encodeURIComponent(r.rollout_id)}`} size="sm">
                    {task(r.input, 120)}
                  </Anchor>
                </Table.Td>
                <Table.Td>
                  <Status value={r.status} />
                </Table.Td>
                <Table.Td className="num">{number(r.digest.reward)}</Table.Td>
              </Table.Tr>
            ))}
            {newest.data?.items.length === 0 && (
              <Table.Tr>
                <Table.Td colSpan={3}>Nothing was asked for yet.</Table.Td>
              </Table.Tr>
            )}
          </Table.Tbody>
        </Table>
      )}
    </Card>
  );
}
