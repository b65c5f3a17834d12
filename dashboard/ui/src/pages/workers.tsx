import { Anchor, Stack, Text } from '@mantine/core';
import { useState } from 'react';
import { Link } from 'react-router-dom';
import { useWorkers } from '../data';
import { number } from '../logic/format';
import { Card, Empty, Failed, Json, Loading, PageTitle, Status, When } from '../parts/bits';
import { Chart } from '../parts/chart';
import { useHistory } from '../parts/history';
import type { Worker } from '../types';

function stat(w: Worker, key: string): number | null {
  const v = w.heartbeat_stats?.[key];
  return typeof v === 'number' ? v : null;
}

export function Component() {
  const workers = useWorkers();
  const [open, setOpen] = useState<string | null>(null);
  const items = workers.data?.items ?? [];
  const values: Record<string, number> = {};
  for (const w of items) {
    for (const key of ['cpu_usage_pct', 'mem_pct']) {
      const v = stat(w, key);
      if (v !== null) values[`${w.worker_id} ${key}`] = v;
    }
  }
  const history = useHistory(workers.isSuccess ? workers.dataUpdatedAt / 1000 : undefined, values);
  if (workers.error) return <Failed error={workers.error} retry={() => void workers.refetch()} />;
  if (workers.isPending) return <Loading what="the workers" />;
  const x = history.map((h) => h.at);
  const chosen = items.find((w) => w.worker_id === open);
  // One set of machines may run hundreds of workers: the first few are drawn.
  const drawn = (chosen ? [chosen] : items).slice(0, 8);
  return (
    <Stack>
      <PageTitle>Workers</PageTitle>
      {items.length === 0 ? (
        <Empty title="No worker has come by">
          Start one with <code>agl runner --server {location.origin} -- COMMAND</code>, or a trainer.
        </Empty>
      ) : (
        <>
          <Card title="Load since this page was opened">
            {x.length < 2 ? (
              <Text c="dimmed">The curves begin with the next heartbeat.</Text>
            ) : (
              <>
                <Chart x={x} time height={150} label="CPU in percent" lines={drawn.map((w) => ({ label: `${w.worker_id} CPU %`, values: history.map((h) => h.values[`${w.worker_id} cpu_usage_pct`] ?? null) }))} />
                <Chart x={x} time height={150} label="Memory in percent" lines={drawn.map((w) => ({ label: `${w.worker_id} memory %`, values: history.map((h) => h.values[`${w.worker_id} mem_pct`] ?? null) }))} />
              </>
            )}
          </Card>
          <div className="grid" tabIndex={0} role="region" aria-label="Workers, scrolls" style={{ maxHeight: '60vh' }}>
            <table style={{ tableLayout: 'auto' }}>
              <thead>
                <tr>
                  {['Worker', 'Status', 'Works on', 'Heartbeat', 'Asked for work', 'Busy since', 'Idle since', 'CPU %', 'Memory %', 'Host'].map((h) => (
                    <th key={h} scope="col">
                      {h}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {items.map((w) => (
                  <tr key={w.worker_id} data-row>
                    <td>
                      <Anchor component="button" type="button" onClick={() => setOpen(open === w.worker_id ? null : w.worker_id)} aria-expanded={open === w.worker_id}>
                        {w.worker_id}
                      </Anchor>
                    </td>
                    <td>
                      <Status value={w.status} />
                    </td>
                    <td>
                      {w.current_rollout_id === null ? (
                        '–'
                      ) : (
                        <Anchor component={Link} to={`/rollouts/${encodeURIComponent(w.current_rollout_id)}`} className="mono">
                          {w.current_rollout_id}
                        </Anchor>
                      )}
                    </td>
                    <td>
                      <When t={w.last_heartbeat_time} />
                    </td>
                    <td>
                      <When t={w.last_dequeue_time} />
                    </td>
                    <td>
                      <When t={w.last_busy_time} />
                    </td>
                    <td>
                      <When t={w.last_idle_time} />
                    </td>
                    <td className="num">{number(stat(w, 'cpu_usage_pct'))}</td>
                    <td className="num">{number(stat(w, 'mem_pct'))}</td>
                    <td>{typeof w.heartbeat_stats?.['host'] === 'string' ? w.heartbeat_stats['host'] : '–'}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {chosen && (
            <Card title={chosen.worker_id}>
              <Json value={chosen} label="Worker as JSON" />
            </Card>
          )}
        </>
      )}
    </Stack>
  );
}
