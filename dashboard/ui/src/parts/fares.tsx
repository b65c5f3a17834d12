// How the server fared: curves of what it remembers.
import { Group, SegmentedControl, SimpleGrid, Text } from '@mantine/core';
import { type ReactNode, useState } from 'react';
import { useFared } from '../data';
import { growth, total } from '../logic/backends';
import { moment } from '../logic/format';
import type { BackendHistory, History } from '../types';
import { Card, Failed } from './bits';
import { Chart, type Line, palette } from './chart';

type Window = 'recent' | 'day';

/** A card of curves over the last minutes or the last day, as far as the server remembers. */
function Fared({ title, children }: { title: string; children: (h: History) => ReactNode }) {
  const [window, setWindow] = useState<Window>('recent');
  const fared = useFared(window);
  const h = fared.data;
  return (
    <Card
      title={title}
      right={
        <SegmentedControl
          size="xs"
          aria-label="Time"
          value={window}
          onChange={(v) => setWindow(v)}
          data={[
            { value: 'recent', label: '15 minutes' },
            { value: 'day', label: '24 hours' },
          ]}
        />
      }
    >
      {fared.error ? (
        <Failed error={fared.error} />
      ) : h === undefined ? (
        <Text c="dimmed">Reading …</Text>
      ) : (
        <>
          {h.times.length < 2 ? <Text c="dimmed">The curves begin {window === 'day' ? 'two minutes' : 'ten seconds'} after the server has started.</Text> : children(h)}
          <Text size="xs" c="dimmed" mt={4}>
            The server started {moment(h.started)} and remembers nothing from before; a point every {h.step < 60 ? `${h.step} s` : `${Math.round(h.step / 60)} min`}.
          </Text>
        </>
      )}
    </Card>
  );
}

function Small({ h, label, lines, legend = true }: { h: History; label: string; lines: Line[]; legend?: boolean }) {
  return (
    <div style={{ minWidth: 0 }}>
      <Text size="sm" fw={600}>
        {label}
      </Text>
      <Chart x={h.times} time height={150} label={label} lines={lines} legend={legend} />
    </div>
  );
}

const failed = '#e03131';

/** Calls and tokens a second of all backends. */
export function CallsAndTokens() {
  return (
    <Fared title="Calls and tokens per second">
      {(h) => (
        <SimpleGrid cols={{ base: 1, md: 2 }}>
          <Small
            h={h}
            label="Model calls / s"
            lines={[
              { label: 'calls', values: total(h, (b) => b.calls_per_second) },
              { label: 'failed', values: total(h, (b) => b.failures_per_second), colour: failed },
            ]}
          />
          <Small
            h={h}
            label="Tokens / s"
            lines={[
              { label: 'answers', values: total(h, (b) => b.answer_tokens_per_second) },
              { label: 'prompts', values: total(h, (b) => b.prompt_tokens_per_second) },
            ]}
          />
        </SimpleGrid>
      )}
    </Fared>
  );
}

/** The curves of each backend; more than so many would be no help. */
const most = palette.length;

export function BackendCurves() {
  return (
    <Fared title="Over time">
      {(h) => {
        // Those that had the most calls, in an order that does not change with it.
        const weight = (b: BackendHistory) => b.calls_per_second.reduce((a: number, v) => a + (v ?? 0), 0);
        const shown = [...h.backends].sort((a, b) => weight(b) - weight(a)).slice(0, most);
        const several = new Set(shown.map((b) => b.model)).size > 1;
        const name = (b: BackendHistory) => (several ? `${b.model} at ${host(b.endpoint)}` : host(b.endpoint));
        const lines = (of: (b: BackendHistory) => (number | null)[]) => shown.map((b) => ({ label: name(b), values: of(b) }));
        return (
          <>
            <Group gap="md" mb="xs" component="ul" p={0} m={0} aria-label="Colours">
              {shown.map((b, i) => (
                <Text key={`${b.model} ${b.endpoint}`} component="li" size="sm" style={{ listStyle: 'none' }}>
                  <span aria-hidden style={{ display: 'inline-block', width: 12, height: 12, marginRight: 4, background: palette[i % palette.length] }} />
                  {name(b)}
                </Text>
              ))}
            </Group>
            <SimpleGrid cols={{ base: 1, md: 2 }}>
              <Small h={h} label="Calls / s" legend={false} lines={lines((b) => b.calls_per_second)} />
              <Small h={h} label="Answer tokens / s" legend={false} lines={lines((b) => b.answer_tokens_per_second)} />
              <Small h={h} label="Latency, half within, s" legend={false} lines={lines((b) => b.latency_p50)} />
              <Small h={h} label="Latency, 95 % within, s" legend={false} lines={lines((b) => b.latency_p95)} />
              <Small h={h} label="Failures / s" legend={false} lines={lines((b) => b.failures_per_second)} />
              <Small h={h} label="Open calls" legend={false} lines={lines((b) => b.open)} />
            </SimpleGrid>
            {h.backends.length > most && <Text size="sm">The {most} backends with the most calls of {h.backends.length}.</Text>}
          </>
        );
      }}
    </Fared>
  );
}

/** The address of a backend, short. */
export function host(endpoint: string): string {
  return endpoint.replace(/^https?:\/\//, '').replace(/\/v1\/?$/, '');
}

/** What the store held. */
export function StoreCurves({ inMemory }: { inMemory: boolean }) {
  const mebi = (values: (number | null)[]) => values.map((v) => (v === null ? null : v / 2 ** 20));
  return (
    <Fared title="Growth">
      {(h) => (
        <>
          <Group justify="end">
            <Text size="sm" role="status">
              {growth(h)}
            </Text>
          </Group>
          <SimpleGrid cols={{ base: 1, md: 2 }}>
            <Small h={h} label={inMemory ? 'Span data, MiB' : 'Database with its log, MiB'} lines={[{ label: 'MiB', values: mebi(h.store.bytes) }]} />
            <Small
              h={h}
              label="Spans and rollouts stored"
              lines={[
                { label: 'spans', values: h.store.spans },
                { label: 'rollouts', values: h.store.rollouts },
              ]}
            />
            <Small h={h} label="Rollouts in the queue" lines={[{ label: 'waiting', values: h.store.queue }]} />
            {!inMemory && <Small h={h} label="Commits / s" lines={[{ label: 'commits', values: h.store.commits_per_second }]} />}
          </SimpleGrid>
        </>
      )}
    </Fared>
  );
}
