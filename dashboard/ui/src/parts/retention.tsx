import { Alert, Autocomplete, Button, Code, Group, List, Modal, Progress, Stack, Text } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { get, post, remove } from '../api';
import { useCapabilities, usePrunings } from '../data';
import { age, bytes, duration, moment, number } from '../logic/format';
import type { Prunable, PrunedCounts, Pruning } from '../types';
import { Card, Status } from './bits';

/** What is deleted when: a look at it first, then the deed, with its progress. */
export function Retention({ inMemory }: { inMemory: boolean }) {
  const can = useCapabilities().data?.prune === true;
  return (
    <Card title="Retention">
      <Stack gap="sm">
        <Text>
          The server keeps everything until it is told otherwise.
          {!inMemory && (
            <>
              {' '}
              <Code>agl db backup</Code> copies the database while it runs.
            </>
          )}
        </Text>
        {can && <Prune inMemory={inMemory} />}
      </Stack>
    </Card>
  );
}

function Prune({ inMemory }: { inMemory: boolean }) {
  const [older, setOlder] = useState('30d');
  const [seen, setSeen] = useState<Prunable | null>(null);
  const [looking, setLooking] = useState(false);
  const [wrong, setWrong] = useState('');
  const [sure, setSure] = useState(false);
  const stop = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => stop.current?.abort(), []);
  const client = useQueryClient();
  const list = usePrunings().data ?? [];
  const running = list.find((p) => p.status === 'running');
  const seconds = age(older);
  const look = async () => {
    stop.current?.abort();
    const mine = (stop.current = new AbortController());
    setLooking(true);
    setSeen(null);
    setWrong('');
    try {
      setSeen(await get<Prunable>(`v1/agl/prunings/preview?older_than_seconds=${seconds}`, mine.signal));
    } catch (err) {
      if (!mine.signal.aborted) setWrong(err instanceof Error ? err.message : String(err));
    }
    if (stop.current === mine) setLooking(false);
  };
  const go = async () => {
    setWrong('');
    try {
      await post<Pruning>('v1/agl/prunings', { before: seen!.before });
      setSeen(null);
    } catch (err) {
      setWrong(err instanceof Error ? err.message : String(err));
    }
    setSure(false);
    await client.invalidateQueries({ queryKey: ['prunings'] });
  };
  return (
    <>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (seconds !== null) void look();
        }}
      >
        <Group align="end" gap="xs">
          <Autocomplete
            label="Ended longer ago than"
            description="Hours, days or weeks, such as 12h, 30d or 2w"
            data={['1d', '7d', '30d', '90d', '365d']}
            filter={({ options }) => options}
            value={older}
            onChange={(v) => {
              setOlder(v);
              setSeen(null);
            }}
            error={seconds === null ? 'Write it as 12h, 30d or 2w' : undefined}
          />
          <Button type="submit" variant="default" loading={looking} disabled={seconds === null}>
            See what would go
          </Button>
          {looking && (
            <Button variant="subtle" onClick={() => stop.current?.abort()}>
              Stop looking
            </Button>
          )}
        </Group>
      </form>
      {wrong !== '' && (
        <Alert color="red" title="That did not work" role="alert">
          {wrong}
        </Alert>
      )}
      {seen && <Preview seen={seen} busy={running !== undefined} ask={() => setSure(true)} />}
      {list.slice(0, 3).map((p) => (
        <Work key={p.prune_id} p={p} inMemory={inMemory} newest={p === list[0]} />
      ))}
      <Modal opened={sure && seen !== null} onClose={() => setSure(false)} title={seen && `Delete ${number(seen.rollouts)} rollout${seen.rollouts === 1 ? '' : 's'}?`} closeButtonProps={{ 'aria-label': 'Close' }}>
        {seen && (
          <Stack>
            <Text>
              They vanish with {counted(seen.attempts, 'attempt')} and {counted(seen.spans, 'span')}{seen.log_lines > 0 && `, and so do ${counted(seen.log_lines, 'line')} in logs of runs`}: what ended before {moment(seen.before)}. This cannot be undone. The server goes on meanwhile, and you can stop it on the way.
            </Text>
            <Group justify="end">
              <Button variant="default" onClick={() => setSure(false)} data-autofocus>
                Leave it
              </Button>
              <Button color="red" onClick={() => void go()}>
                Delete
              </Button>
            </Group>
          </Stack>
        )}
      </Modal>
    </>
  );
}

function counted(n: number, noun: string): string {
  return `${number(n)} ${noun}${n === 1 ? '' : 's'}`;
}

function amounts(p: PrunedCounts): string {
  const parts = [counted(p.rollouts, 'rollout'), counted(p.attempts, 'attempt'), counted(p.spans, 'span')];
  if (p.log_lines > 0) parts.push(`${counted(p.log_lines, 'line')} in logs of runs`);
  return `${parts.join(', ')}; about ${bytes(p.bytes)}`;
}

function Preview({ seen, busy, ask }: { seen: Prunable; busy: boolean; ask: () => void }) {
  const s = seen.stays;
  return (
    <section aria-label="What would go">
      {!seen.complete && (
        <Alert color="yellow" title="There is more" mb="xs">
          There was time to look at {counted(seen.looked, 'rollout')}, the oldest; the numbers are of those. Deleting looks at all of them.
        </Alert>
      )}
      <Text role="status">
        {seen.rollouts + seen.log_lines === 0 ? (
          `Nothing ended before ${moment(seen.before)}.`
        ) : (
          <>
            Would go: <b>{amounts(seen)}</b>.{seen.rollouts > 0 && ` The first of the rollouts ended ${moment(seen.oldest)}, the last ${moment(seen.newest)}.`}
          </>
        )}
      </Text>
      <Text mt="xs">What stays:</Text>
      <List size="sm">
        {seen.complete && <List.Item>{counted(s.later, 'rollout')} that ended since.</List.Item>}
        <List.Item>{counted(s.open, 'rollout')} that wait or are under way; those are never deleted, however old.</List.Item>
        <List.Item>{counted(s.runs, 'run')} with metrics and checkpoints: they are the record of what was trained, and small. Their curves stay; their rollouts of that time, and the logs of those that ended, do not.</List.Item>
        <List.Item>
          {counted(s.resources, 'version')} of resources and {counted(s.workers, 'worker')}, since later rollouts and runs refer to them.
        </List.Item>
      </List>
      {(seen.rollouts + seen.log_lines > 0 || !seen.complete) && (
        <Button mt="sm" color="red" variant="light" onClick={ask} disabled={busy}>
          Delete …
        </Button>
      )}
    </section>
  );
}

function Work({ p, inMemory, newest }: { p: Pruning; inMemory: boolean; newest: boolean }) {
  const client = useQueryClient();
  const running = p.status === 'running';
  // What it deleted shows in the other numbers of the page once it has ended.
  const before = useRef(running);
  useEffect(() => {
    if (before.current && !running) void client.invalidateQueries();
    before.current = running;
  }, [running, client]);
  return (
    <section aria-label={`Deleting what ended before ${moment(p.before)}`}>
      <Group gap="xs" justify="space-between">
        <Text size="sm" role={newest ? 'status' : undefined}>
          <Status value={p.status} /> {running ? 'Deleted so far' : 'Deleted'}: {amounts(p)}, ended before {moment(p.before)}
          {running ? '' : `; took ${duration((p.end_time ?? p.start_time) - p.start_time)}`}.{p.error !== '' && ` ${p.error}.`}
        </Text>
        {running && (
          <Button size="compact-sm" variant="default" onClick={() => void remove(`v1/agl/prunings/${encodeURIComponent(p.prune_id)}`).then(() => client.invalidateQueries({ queryKey: ['prunings'] }))}>
            Stop
          </Button>
        )}
      </Group>
      {running && p.of !== null && <Progress value={(100 * p.rollouts) / Math.max(p.of, 1)} aria-label="Progress of deleting" mt={4} />}
      {newest && !running && p.bytes > 0 && !inMemory && (
        <Text size="sm" c="dimmed">
          The room is free inside the database and is used for what comes next. The file keeps its size until <Code>agl db vacuum</Code> is run while the server is stopped.
        </Text>
      )}
    </section>
  );
}
