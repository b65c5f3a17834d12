import { Alert, Button, Group, Modal, Stack, Table, Text, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { get, post } from '../api';
import { useMetricsText, useModels, usePause } from '../data';
import { duration, number, words } from '../logic/format';
import { quantile, samples, sum } from '../logic/prometheus';
import { Card, Empty, Failed, Loading, PageTitle, Status } from '../parts/bits';
import type { PauseState } from '../types';

export function Component() {
  const models = useModels();
  const metrics = useMetricsText();
  const list = useMemo(() => (metrics.data ? samples(metrics.data.text, 'agl_proxy_') : []), [metrics.data]);
  return (
    <Stack>
      <PageTitle>Models</PageTitle>
      <Pause />
      <Card title="Backends">
        {models.error ? (
          <Failed error={models.error} retry={() => void models.refetch()} />
        ) : models.isPending ? (
          <Loading what="the models" />
        ) : models.data.length === 0 ? (
          <Empty title="No model backend is registered">
            Start the server with <code>--model NAME=BASE_URL</code>, or run <code>agl models add</code>.
          </Empty>
        ) : (
          <div style={{ overflowX: 'auto' }} tabIndex={0} role="region" aria-label="Backends, scrolls">
            <Table>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Model</Table.Th>
                  <Table.Th>Endpoint</Table.Th>
                  <Table.Th>State</Table.Th>
                  <Table.Th className="num">Weights version</Table.Th>
                  <Table.Th className="num">Open calls</Table.Th>
                  <Table.Th className="num">Waiting</Table.Th>
                  <Table.Th>Limits</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {models.data.map((m) => {
                  const of = { model: m.model, backend: m.endpoint };
                  const resting = sum(list, 'agl_proxy_backend_resting', of) > 0;
                  const seen = list.some((s) => s.name === 'agl_proxy_backend_open_calls' && s.labels['model'] === m.model);
                  const limits = [m.concurrency && `${m.concurrency} at once`, m.rpm && `${number(m.rpm)} calls / min`, m.tpm && `${number(m.tpm)} tokens / min`].filter(Boolean).join(', ');
                  return (
                    <Table.Tr key={`${m.model} ${m.endpoint}`}>
                      <Table.Td>{m.model}</Table.Td>
                      <Table.Td className="mono">{m.endpoint}</Table.Td>
                      <Table.Td>
                        <Status value={resting ? 'resting: it could not be reached' : seen ? 'ok' : 'not called yet'} />
                      </Table.Td>
                      <Table.Td className="num">{m.version ?? 0}</Table.Td>
                      <Table.Td className="num">{number(sum(list, 'agl_proxy_backend_open_calls', of))}</Table.Td>
                      <Table.Td className="num">{number(sum(list, 'agl_proxy_backend_waiting_calls', of))}</Table.Td>
                      <Table.Td>{limits || '–'}</Table.Td>
                    </Table.Tr>
                  );
                })}
              </Table.Tbody>
            </Table>
          </div>
        )}
      </Card>
      <Card title="Calls since the server started">
        <Calls list={list} />
      </Card>
    </Stack>
  );
}

function Calls({ list }: { list: ReturnType<typeof samples> }) {
  const names = [...new Set(list.filter((s) => s.name === 'agl_proxy_calls_total').map((s) => s.labels['model'] ?? ''))].sort();
  if (names.length === 0) return <Text c="dimmed">No call went through the proxy yet.</Text>;
  return (
    <Table>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Model</Table.Th>
          <Table.Th className="num">Calls</Table.Th>
          <Table.Th>What came of them</Table.Th>
          <Table.Th className="num">Median</Table.Th>
          <Table.Th className="num">99 % within</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {names.map((model) => {
          const outcomes = list.filter((s) => s.name === 'agl_proxy_calls_total' && s.labels['model'] === model && s.value > 0);
          return (
            <Table.Tr key={model}>
              <Table.Td>{model}</Table.Td>
              <Table.Td className="num">{number(outcomes.reduce((a, s) => a + s.value, 0))}</Table.Td>
              <Table.Td>{outcomes.map((s) => `${words(s.labels['outcome'] ?? '')} ${number(s.value)}`).join(', ')}</Table.Td>
              <Table.Td className="num">{duration(quantile(list, 'agl_proxy_call_seconds', 0.5, { model }))}</Table.Td>
              <Table.Td className="num">{duration(quantile(list, 'agl_proxy_call_seconds', 0.99, { model }))}</Table.Td>
            </Table.Tr>
          );
        })}
      </Table.Tbody>
    </Table>
  );
}

/** Pausing and draining the model calls of agents. */
function Pause() {
  const pause = usePause();
  const client = useQueryClient();
  const [asked, setAsked] = useState<'pause' | 'drain' | 'resume' | null>(null);
  const [reason, setReason] = useState('');
  const [busy, setBusy] = useState(false);
  const [wrong, setWrong] = useState('');
  if (pause.error) return <Failed error={pause.error} />;
  const s = pause.data;
  if (!s) return null;
  const go = async () => {
    setBusy(true);
    setWrong('');
    try {
      if (asked === 'resume') await post<PauseState>('proxy/resume', {});
      else {
        await post<PauseState>('proxy/pause', { reason: reason.trim() === '' ? null : reason.trim() });
        if (asked === 'drain') await get<PauseState>('proxy/state?wait=30');
      }
      setAsked(null);
    } catch (err) {
      setWrong(err instanceof Error ? err.message : String(err));
    }
    setBusy(false);
    await client.invalidateQueries({ queryKey: ['models'] });
  };
  const what = {
    pause: 'New model calls are refused with 503 until they are resumed; agents that keep to the protocol wait. Calls that are under way go on.',
    drain: 'New model calls are refused, and this waits up to 30 s until those under way have ended: the moment to swap the weights of a backend.',
    resume: 'Model calls go through again.',
  };
  return (
    <Card
      title="Model calls"
      right={
        <Group gap="xs">
          {s.paused ? (
            <Button size="compact-sm" onClick={() => setAsked('resume')}>
              Resume
            </Button>
          ) : (
            <>
              <Button size="compact-sm" variant="default" onClick={() => setAsked('pause')}>
                Pause
              </Button>
              <Button size="compact-sm" variant="default" onClick={() => setAsked('drain')}>
                Drain
              </Button>
            </>
          )}
        </Group>
      }
    >
      <Text role="status">
        {s.paused ? `Paused${s.reason === null ? '' : `: ${s.reason}`}${s.owner ? `, by ${s.owner}` : ''}${s.lease_seconds === undefined ? '' : `, for ${duration(s.lease_seconds)} more`}. ` : 'Open. '}
        {number(s.inflight)} call{s.inflight === 1 ? '' : 's'} under way{s.held === undefined ? '' : `, ${number(s.held)} held`}.
      </Text>
      <Modal opened={asked !== null} onClose={() => setAsked(null)} title={asked && { pause: 'Pause model calls?', drain: 'Drain model calls?', resume: 'Resume model calls?' }[asked]} closeButtonProps={{ 'aria-label': 'Close' }}>
        <Stack>
          <Text>{asked && what[asked]}</Text>
          {asked !== 'resume' && <TextInput label="Reason, for those who wonder" value={reason} onChange={(e) => setReason(e.currentTarget.value)} />}
          {wrong !== '' && <Alert color="red">{wrong}</Alert>}
          <Group justify="end">
            <Button variant="default" onClick={() => setAsked(null)} data-autofocus>
              Leave it
            </Button>
            <Button loading={busy} onClick={() => void go()}>
              {asked && { pause: 'Pause', drain: 'Drain', resume: 'Resume' }[asked]}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </Card>
  );
}
