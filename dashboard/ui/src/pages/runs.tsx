import { Alert, Anchor, Button, Checkbox, Group, Modal, Paper, Select, SegmentedControl, Slider, Stack, Table, Text } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useQueries, useQueryClient } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { Link, useSearchParams } from 'react-router-dom';
import { metricsQuery, useMetrics, useRuns } from '../data';
import { deleteRuns } from '../logic/actions';
import { differences } from '../logic/diff';
import { duration, number, oneLine, words } from '../logic/format';
import { logPath } from '../logic/log';
import { keysOf, mainKeys, series, shorten, smooth, verdict } from '../logic/verdict';
import { Card, Empty, Failed, Loading, PageTitle, Status, When } from '../parts/bits';
import { Chart, type Line, palette } from '../parts/chart';
import { useNow } from '../parts/now';
import type { Run } from '../types';

/** So many curves one can still tell apart. */
const mostCompared = 8;
/** Of so many runs, the newest, the metrics are read to say in the list how they went. */
const mostJudged = 20;

export function Component() {
  const runs = useRuns();
  const [q, setQ] = useSearchParams();
  const chosen = [...new Set(q.getAll('run'))];
  const now = useNow();
  const choose = (of: (had: string[]) => string[]) =>
    setQ(
      (old) => {
        const next = new URLSearchParams(old);
        const ids = of([...new Set(next.getAll('run'))]);
        next.delete('run');
        ids.forEach((r) => next.append('run', r));
        return next;
      },
      { replace: true },
    );
  const toggle = (id: string) => choose((had) => (had.includes(id) ? had.filter((r) => r !== id) : [...had, id]));
  if (runs.error) return <Failed error={runs.error} retry={() => void runs.refetch()} />;
  if (runs.isPending) return <Loading what="the runs" />;
  const all = runs.data.length > 0 && runs.data.every((r) => chosen.includes(r.run_id));
  return (
    <Stack>
      <PageTitle>Runs</PageTitle>
      {chosen.length > 0 && <Compare ids={chosen.slice(0, mostCompared)} />}
      {chosen.length > mostCompared && (
        <Text size="sm" c="dimmed">
          The first {mostCompared} that were chosen are compared.
        </Text>
      )}
      {runs.data.length === 0 ? (
        <Empty title="No run yet">
          Start the example with <code>go run ./examples/calc</code>.
        </Empty>
      ) : (
        <div className="grid" tabIndex={0} role="region" aria-label="Runs, scrolls">
          <table className="fitted" style={{ tableLayout: 'auto' }}>
            <thead>
              <tr>
                <th scope="col">
                  <Checkbox size="xs" aria-label="Choose all runs" checked={all} indeterminate={!all && chosen.length > 0} onChange={() => choose(() => (all ? [] : runs.data.map((r) => r.run_id)))} />
                </th>
                <th scope="col">Run</th>
                <th scope="col">Algorithm</th>
                <th scope="col">Status</th>
                <th scope="col">Is it learning?</th>
                <th scope="col" className="num">
                  Seed
                </th>
                <th scope="col">Started</th>
                <th scope="col" className="num">
                  Took
                </th>
                <th scope="col">Error</th>
              </tr>
            </thead>
            <tbody>
              {runs.data.map((r, i) => (
                <tr key={r.run_id} data-row>
                  <td>
                    <Checkbox size="xs" aria-label={`Compare ${r.run_id}`} checked={chosen.includes(r.run_id)} onChange={() => toggle(r.run_id)} />
                  </td>
                  <td>
                    <Anchor component={Link} to={`/runs/${encodeURIComponent(r.run_id)}`} className="mono">
                      {r.run_id}
                    </Anchor>
                  </td>
                  <td>{r.algorithm}</td>
                  <td>
                    <Status value={r.status} />
                  </td>
                  <td>{i < mostJudged ? <Judged run={r} /> : <Text size="sm" c="dimmed">open it</Text>}</td>
                  <td className="num">{r.seed}</td>
                  <td>
                    <When t={r.start_time} />
                  </td>
                  <td className="num">{duration((r.end_time ?? now) - r.start_time)}</td>
                  <td title={r.error}>
                    {r.error !== '' && (
                      <Anchor component={Link} to={logPath(r.run_id)} inherit>
                        {oneLine(r.error, 60)}
                      </Anchor>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <Bulk runs={runs.data.filter((r) => chosen.includes(r.run_id))} choose={(ids) => choose(() => ids)} />
    </Stack>
  );
}

/** What can be done to the runs that are chosen: they are compared, or deleted after a question. */
function Bulk({ runs, choose }: { runs: Run[]; choose: (ids: string[]) => void }) {
  const client = useQueryClient();
  const [asked, setAsked] = useState(false);
  const [force, setForce] = useState(false);
  const [working, setWorking] = useState(false);
  const [failed, setFailed] = useState<string[]>([]);
  if (runs.length === 0) return null;
  const running = runs.filter((r) => r.status === 'running');
  const going = force ? runs : runs.filter((r) => r.status !== 'running');
  const close = () => {
    setAsked(false);
    setForce(false);
    setFailed([]);
  };
  const go = async () => {
    setWorking(true);
    const result = await deleteRuns(
      going.map((r) => r.run_id),
      force,
    );
    setWorking(false);
    setFailed(result.lines);
    choose(runs.map((r) => r.run_id).filter((id) => !result.deleted.includes(id)));
    await client.invalidateQueries();
    if (result.deleted.length > 0) notifications.show({ message: `Deleted: ${number(result.deleted.length)}` });
    if (result.lines.length === 0) close();
  };
  const count = (n: number) => `${number(n)} run${n === 1 ? '' : 's'}`;
  return (
    <Paper withBorder p="xs" component="section" aria-label="Actions">
      <Group gap="xs">
        <Text size="sm">{number(runs.length)} chosen</Text>
        <Button size="compact-sm" variant="default" onClick={() => setAsked(true)}>
          Delete
        </Button>
        <Button size="compact-sm" variant="subtle" onClick={() => choose([])}>
          Choose none
        </Button>
      </Group>
      <Modal opened={asked} onClose={close} title={`Delete ${count(going.length)}?`} closeButtonProps={{ 'aria-label': 'Close' }}>
        <Stack>
          <Text>They vanish with their metrics, records of checkpoints and logs. Their rollouts stay, and so do files of weights. This cannot be undone.</Text>
          {running.length > 0 && (
            <Checkbox
              label={`Also ${running.length === 1 ? 'the one that is' : `the ${number(running.length)} that are`} called running`}
              description="For those whose process was killed. A process that still works on one fails at its next step."
              checked={force}
              onChange={(e) => setForce(e.currentTarget.checked)}
            />
          )}
          {failed.length > 0 && (
            <Alert color="red" title="Not all of it worked">
              {failed.slice(0, 5).map((l) => (
                <div key={l}>{l}</div>
              ))}
              {failed.length > 5 && `and ${failed.length - 5} more`}
            </Alert>
          )}
          <Group justify="end">
            <Button variant="default" onClick={close} data-autofocus>
              {failed.length > 0 ? 'Close' : 'Leave it'}
            </Button>
            <Button color="red" onClick={() => void go()} loading={working} disabled={going.length === 0}>
              Delete {count(going.length)}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </Paper>
  );
}

/** How far a run has come, in a word and two numbers. */
function Judged({ run }: { run: Run }) {
  const metrics = useMetrics(run.run_id);
  const points = useMemo(() => shorten(metrics.data ?? []), [metrics.data]);
  if (metrics.isPending) return '…';
  if (points.length === 0) return '–';
  const v = verdict(points, run.status === 'running');
  const { goal } = mainKeys(points);
  const curve = goal === undefined ? [] : series(points, goal);
  return (
    <Group gap={6} wrap="nowrap" title={v.sentence}>
      <Status value={v.word} />
      {goal !== undefined && (
        <span>
          {words(goal)} {number(curve[0]!.value)} → {number(curve.at(-1)!.value)}
        </span>
      )}
    </Group>
  );
}

function Compare({ ids }: { ids: string[] }) {
  const [q, setQ] = useSearchParams();
  const runs = useRuns();
  const metrics = useQueries({ queries: ids.map((id) => metricsQuery(id)) });
  const data = metrics.map((m) => m.data);
  const named = ids.join(' ');
  const stamp = metrics.map((m) => m.dataUpdatedAt).join(' ');
  const set = (name: string, value: string) =>
    setQ(
      (old) => {
        const next = new URLSearchParams(old);
        next.set(name, value);
        return next;
      },
      { replace: true },
    );
  const by = q.get('by') === 'time' ? 'time' : 'step';
  const factor = Math.min(0.95, Math.max(0, Number(q.get('smooth') ?? 0) || 0));
  const drawn = useMemo(() => {
    const all = data.map((m) => shorten(m ?? []));
    const keys = [...new Set(all.flatMap((m) => keysOf(m)))].sort();
    const wanted = q.get('metric');
    const key = wanted !== null && keys.includes(wanted) ? wanted : (all.map((m) => mainKeys(m).goal).find((k) => k !== undefined) ?? keys[0]);
    if (key === undefined) return { keys, key: undefined, x: [], lines: [] as Line[], without: [] as string[] };
    const at = (m: { step: number; time: number }, i: number) => (by === 'step' ? m.step : m.time - (all[i]![0]?.time ?? 0));
    const x = [...new Set(all.flatMap((m, i) => m.filter((p) => p.values[key] !== undefined).map((p) => at(p, i))))].sort((a, b) => a - b);
    const index = new Map(x.map((v, i) => [v, i]));
    const lines = all.flatMap((m, i): Line[] => {
      if (!m.some((p) => p.values[key] !== undefined)) return [];
      const values: (number | null)[] = new Array<number | null>(x.length).fill(null);
      for (const p of m) if (p.values[key] !== undefined) values[index.get(at(p, i))!] = p.values[key];
      const colour = palette[i % palette.length];
      if (factor === 0) return [{ label: ids[i]!, values, colour }];
      return [
        { label: `${ids[i]!} as measured`, values, colour, faint: true },
        { label: ids[i]!, values: smooth(values, factor), colour },
      ];
    });
    return { keys, key, x, lines, without: ids.filter((_, i) => !all[i]!.some((p) => p.values[key] !== undefined)) };
    // stamp stands for data, which is a new list every time
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [stamp, q, by, factor, named]);
  const chosen = ids.map((id) => runs.data?.find((r) => r.run_id === id));
  const diff = differences(chosen.map((r) => ({ algorithm: r?.algorithm, seed: r?.seed, ...(r?.config ?? {}) })));
  return (
    <Card title={ids.length === 1 ? `Curve of ${ids[0]!}` : `Compare ${ids.length} runs`} label="Compare runs">
      <Group mb="sm" gap="md" align="end">
        <Select label="Metric" data={drawn.keys.map((k) => ({ value: k, label: words(k) }))} value={drawn.key ?? null} onChange={(v) => v !== null && set('metric', v)} searchable w={240} allowDeselect={false} />
        <SegmentedControl aria-label="Over" value={by} onChange={(v) => set('by', v)} data={[{ value: 'step', label: 'Steps' }, { value: 'time', label: 'Seconds' }]} />
        <div style={{ width: 180 }}>
          <Text size="sm" id="smoothing">
            Smoothing {factor}
          </Text>
          <Slider min={0} max={0.95} step={0.05} value={factor} onChange={(v) => set('smooth', String(v))} thumbLabel="Smoothing" aria-labelledby="smoothing" />
        </div>
      </Group>
      {metrics.some((m) => m.error) && <Failed error={metrics.find((m) => m.error)!.error} />}
      {drawn.key === undefined ? <Text c="dimmed">These runs have recorded no metrics yet.</Text> : <Chart x={drawn.x} lines={drawn.lines} height={300} label={`${words(drawn.key)} by ${by}`} />}
      {drawn.key !== undefined && drawn.without.length > 0 && (
        <Text size="sm" c="dimmed">
          {drawn.without.join(', ')}: no {words(drawn.key)} was recorded.
        </Text>
      )}
      {ids.length > 1 && (
        <>
          <Text fw={600} mt="sm">
            What differs in their configuration
          </Text>
          {diff.length === 0 ? (
            <Text c="dimmed">Nothing.</Text>
          ) : (
            <div style={{ overflowX: 'auto' }} tabIndex={0} role="region" aria-label="Differences of the configuration">
              <Table>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>Setting</Table.Th>
                    {ids.map((id) => (
                      <Table.Th key={id}>{id}</Table.Th>
                    ))}
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {diff.map((d) => (
                    <Table.Tr key={d.path}>
                      <Table.Td className="mono">{d.path}</Table.Td>
                      {d.values.map((v, i) => (
                        <Table.Td key={ids[i]}>{v === undefined ? '–' : typeof v === 'number' ? number(v, 6) : oneLine(v, 80)}</Table.Td>
                      ))}
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </div>
          )}
        </>
      )}
    </Card>
  );
}
