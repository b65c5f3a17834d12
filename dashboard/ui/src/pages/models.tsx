import { Alert, Anchor, Button, Group, List, Modal, Stack, Table, Text, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { get, post } from '../api';
import { useBackends, useCapabilities, useFared, useMetricsText, useModels, usePause } from '../data';
import { conditions, events, pace, troubles } from '../logic/backends';
import { duration, moment, number, oneLine, words } from '../logic/format';
import { quantile, samples } from '../logic/prometheus';
import { Card, Empty, Failed, Loading, PageTitle, Status, When } from '../parts/bits';
import { BackendCurves } from '../parts/fares';
import { useNow } from '../parts/now';
import type { Backend, BackendChange, Model, PauseState } from '../types';

export function Component() {
  const capabilities = useCapabilities();
  const metrics = useMetricsText();
  const list = useMemo(() => (metrics.data ? samples(metrics.data.text, 'agl_proxy_') : []), [metrics.data]);
  return (
    <Stack>
      <PageTitle>Models</PageTitle>
      <Troubles />
      <Pause />
      <Backends />
      {capabilities.data?.history && <BackendCurves />}
      <Happened />
      <Card title="Calls since the server started">
        <Calls list={list} />
      </Card>
    </Stack>
  );
}

/** Which backend is slow or failing, since when, and why. */
function Troubles() {
  const report = useBackends();
  const fared = useFared('recent');
  const now = useNow();
  if (!report.data || report.data.backends.length === 0) return null;
  const list = troubles(report.data.backends, fared.data);
  return (
    <Card title="Is a backend slow or failing?">
      <div role="status">
        {list.length === 0 ? (
          <Text>No. {report.data.backends.every((b) => b.condition === 'unseen') ? 'None was called yet.' : 'All that were called answer, and none is much slower than it was or than the others.'}</Text>
        ) : (
          <List>
            {list.map((t) => (
              <List.Item key={`${t.model} ${t.endpoint} ${t.what}`}>
                <b>{t.model}</b> at <span className="mono">{t.endpoint}</span>: <Status value={t.what} />
                {t.since !== null && ` since ${moment(t.since)}, for ${duration(Math.max(0, Math.round(now - t.since)))}`}
                {t.why !== '' && `: ${t.why}`}
              </List.Item>
            ))}
          </List>
        )}
      </div>
    </Card>
  );
}

type Action = 'pause' | 'drain' | 'resume';
const actionNames: Record<Action, string> = { pause: 'Pause', drain: 'Drain', resume: 'Resume' };

function Backends() {
  const models = useModels();
  const report = useBackends();
  const fared = useFared('recent');
  const [asked, setAsked] = useState<{ action: Action; model: Model } | null>(null);
  return (
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
                <Table.Th>State</Table.Th>
                <Table.Th className="num">Calls / s</Table.Th>
                <Table.Th className="num">Tokens / s</Table.Th>
                <Table.Th className="num">Half within</Table.Th>
                <Table.Th className="num">95 % within</Table.Th>
                <Table.Th className="num">Calls</Table.Th>
                <Table.Th className="num">Failed</Table.Th>
                <Table.Th className="num">Open</Table.Th>
                <Table.Th aria-label="Actions" />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {models.data.map((m) => {
                const b = report.data?.backends.find((b) => b.model === m.model && b.endpoint === m.endpoint);
                const p = pace(fared.data, m.model, m.endpoint);
                const limits = [m.concurrency && `${m.concurrency} at once`, m.rpm && `${number(m.rpm)} calls / min`, m.tpm && `${number(m.tpm)} tokens / min`].filter(Boolean).join(', ');
                return (
                  <Table.Tr key={`${m.model} ${m.endpoint}`}>
                    <Table.Td>
                      {m.model}
                      <div className="mono">{m.endpoint}</div>
                      <Text size="xs" c="dimmed">
                        {[`weights version ${m.version ?? 0}`, limits].filter(Boolean).join(', ')}
                      </Text>
                    </Table.Td>
                    <Table.Td miw={170}>{b ? <State b={b} /> : '–'}</Table.Td>
                    <Table.Td className="num">{number(p.calls)}</Table.Td>
                    <Table.Td className="num">{number(p.answerTokens)}</Table.Td>
                    <Table.Td className="num">{duration(p.p50)}</Table.Td>
                    <Table.Td className="num">{duration(p.p95)}</Table.Td>
                    <Table.Td className="num">{number(b?.calls)}</Table.Td>
                    <Table.Td className="num">{number(b?.failures)}</Table.Td>
                    <Table.Td className="num">
                      {number(b?.open)}
                      {b !== undefined && b.waiting > 0 && <Text size="xs">{number(b.waiting)} waiting</Text>}
                    </Table.Td>
                    <Table.Td>
                      {b && (
                        <Group gap={4} wrap="nowrap">
                          {(b.condition === 'paused' ? (['resume'] as const) : (['pause', 'drain'] as const)).map((action) => (
                            <Button key={action} size="compact-xs" variant="default" aria-label={`${actionNames[action]} ${m.model} at ${m.endpoint}`} onClick={() => setAsked({ action, model: m })}>
                              {actionNames[action]}
                            </Button>
                          ))}
                        </Group>
                      )}
                    </Table.Td>
                  </Table.Tr>
                );
              })}
            </Table.Tbody>
          </Table>
        </div>
      )}
      <Text size="xs" c="dimmed" mt={4}>
        Rates and latencies are those of the last minute; tokens are of answers, as backends tell them for calls of attempts. Calls count since the server started.
      </Text>
      {asked && <Ask key={`${asked.action} ${asked.model.model} ${asked.model.endpoint}`} action={asked.action} model={asked.model} alone={models.data?.filter((m) => m.model === asked.model.model).length === 1} close={() => setAsked(null)} />}
    </Card>
  );
}

function State({ b }: { b: Backend }) {
  const now = useNow();
  return (
    <>
      <Status value={conditions[b.condition]} />
      {b.since !== null && (
        <Text size="xs" title={moment(b.since)}>
          for {duration(Math.max(0, Math.round(now - b.since)))}
        </Text>
      )}
      {b.reason !== '' && (
        <Text size="xs" maw={320} title={b.reason}>
          {oneLine(b.reason, 140)}
        </Text>
      )}
    </>
  );
}

/** Asks whether one backend is really to be paused, drained or resumed, and does it. */
function Ask({ action, model, alone, close }: { action: Action; model: Model; alone: boolean; close: () => void }) {
  const client = useQueryClient();
  const [reason, setReason] = useState('');
  const [busy, setBusy] = useState(false);
  const [wrong, setWrong] = useState('');
  const drains = 30;
  const go = async () => {
    setBusy(true);
    setWrong('');
    try {
      const which = { model: model.model, endpoint: model.endpoint };
      const b = action === 'resume' ? await post<Backend>('v1/agl/backends/resume', which) : await post<Backend>('v1/agl/backends/pause', { ...which, reason: reason.trim(), drain_seconds: action === 'drain' ? drains : 0 });
      if (action === 'drain' && b.open > 0) setWrong(`It is paused, and ${number(b.open)} call${b.open === 1 ? ' is' : 's are'} still open after ${drains} s. Its row tells when none is.`);
      else close();
    } catch (err) {
      setWrong(err instanceof Error ? err.message : String(err));
    }
    setBusy(false);
    await client.invalidateQueries({ queryKey: ['models'] });
  };
  const elsewhere = alone ? 'It is the only backend of its model: calls of the model are refused with 429 until it is resumed; agents that keep to the protocol wait.' : 'New calls go to the other backends of the model, those of rollouts that kept to this one too.';
  const what: Record<Action, string> = {
    pause: `${elsewhere} Calls that it has go on. It stays paused until somebody resumes it, or the server is started again.`,
    drain: `${elsewhere} This waits up to ${drains} s until the calls that it has have ended: the moment to exchange its weights or to stop it.`,
    resume: 'Calls go to it again.',
  };
  return (
    <Modal opened onClose={close} title={`${actionNames[action]} ${model.model} at ${model.endpoint}?`} closeButtonProps={{ 'aria-label': 'Close' }}>
      <Stack>
        <Text>{what[action]}</Text>
        {action !== 'resume' && <TextInput label="Reason, for those who wonder" value={reason} onChange={(e) => setReason(e.currentTarget.value)} />}
        {wrong !== '' && <Alert color="red">{wrong}</Alert>}
        <Group justify="end">
          <Button variant="default" onClick={close} data-autofocus>
            Leave it
          </Button>
          <Button loading={busy} onClick={() => void go()}>
            {actionNames[action]}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}

/** The latest of what happened to backends and to all calls. */
function Happened() {
  const report = useBackends();
  const [all, setAll] = useState(false);
  const list = report.data?.changes ?? [];
  const first = 15;
  return (
    <Card title="What happened" right={report.data && <Text size="xs">since the server started, {moment(report.data.started)}</Text>}>
      {report.error ? (
        <Failed error={report.error} />
      ) : list.length === 0 ? (
        <Text c="dimmed">No backend failed, and nothing was paused.</Text>
      ) : (
        <div style={{ overflowX: 'auto' }} tabIndex={0} role="region" aria-label="What happened, scrolls">
          <Table>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>When</Table.Th>
                <Table.Th>Which</Table.Th>
                <Table.Th>What</Table.Th>
                <Table.Th>Why</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {list.slice(0, all ? undefined : first).map((c, i) => (
                <Change key={`${c.time} ${i}`} c={c} />
              ))}
            </Table.Tbody>
          </Table>
          {!all && list.length > first && (
            <Anchor component="button" type="button" size="sm" onClick={() => setAll(true)}>
              Show all {list.length}
            </Anchor>
          )}
        </div>
      )}
    </Card>
  );
}

function Change({ c }: { c: BackendChange }) {
  return (
    <Table.Tr>
      <Table.Td>
        <When t={c.time} />
      </Table.Td>
      <Table.Td>
        {c.endpoint === '' ? (
          'all model calls'
        ) : (
          <>
            {c.model} at <span className="mono">{c.endpoint}</span>
          </>
        )}
      </Table.Td>
      <Table.Td>
        {events[c.event]}
        {c.seconds !== null && ` after ${duration(c.seconds)}`}
      </Table.Td>
      <Table.Td>{c.reason || '–'}</Table.Td>
    </Table.Tr>
  );
}

function Calls({ list }: { list: ReturnType<typeof samples> }) {
  const names = [...new Set(list.filter((s) => s.name === 'agl_proxy_calls_total').map((s) => s.labels['model'] ?? ''))].sort();
  if (names.length === 0) return <Text c="dimmed">No call went through the proxy yet.</Text>;
  return (
    <div style={{ overflowX: 'auto' }} tabIndex={0} role="region" aria-label="Calls by model, scrolls">
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
    </div>
  );
}

/** Pausing and draining the model calls of agents. */
function Pause() {
  const pause = usePause();
  const client = useQueryClient();
  const [asked, setAsked] = useState<Action | null>(null);
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
