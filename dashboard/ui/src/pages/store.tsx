import { Alert, Badge, Button, SimpleGrid, Stack, Table, Text } from '@mantine/core';
import { useMemo } from 'react';
import { useCapabilities, useChecks, useMetricsText, useOverview, useStatistics } from '../data';
import { bytes, duration, number } from '../logic/format';
import { quantile, samples, sum } from '../logic/prometheus';
import { Card, Failed, Figure, Loading, PageTitle } from '../parts/bits';
import { StoreCurves } from '../parts/fares';
import { Retention } from '../parts/retention';

export function Component() {
  const statistics = useStatistics();
  const capabilities = useCapabilities();
  const overview = useOverview();
  const metrics = useMetricsText();
  const list = useMemo(() => (metrics.data ? samples(metrics.data.text, '') : []), [metrics.data]);
  const s = statistics.data;
  const size = list.some((m) => m.name === 'agl_db_file_bytes') ? sum(list, 'agl_db_file_bytes') : undefined;
  if (statistics.error) return <Failed error={statistics.error} retry={() => void statistics.refetch()} />;
  if (!s) return <Loading what="the store" />;
  const commits = sum(list, 'agl_db_commit_seconds_count');
  const full = s.eviction_threshold_bytes === undefined ? undefined : (s.total_span_bytes ?? 0) / Math.max(s.eviction_threshold_bytes, 1);
  return (
    <Stack>
      <PageTitle>Store</PageTitle>
      {full !== undefined && (
        <Alert color={full > 0.9 ? 'red' : 'yellow'} title="This store is in memory">
          Everything is gone when the server ends, and spans of the oldest rollouts are dropped at {bytes(s.eviction_threshold_bytes)}; {bytes(s.total_span_bytes)} are held. Start the server with <code>--db sqlite:agl.db</code> to keep it.
        </Alert>
      )}
      <Card title="What it holds">
        <SimpleGrid cols={{ base: 2, sm: 4, lg: 7 }}>
          <Figure label="Backend" value={s.name} />
          <Figure label="Rollouts" value={number(s.total_rollouts)} to="/rollouts" />
          <Figure label="Attempts" value={number(s.total_attempts)} />
          <Figure label="Spans" value={number(s.total_spans)} />
          <Figure label="Resources" value={number(s.total_resources)} to="/resources" />
          <Figure label="Workers" value={number(s.total_workers)} to="/workers" />
          {size !== undefined && <Figure label="Database" value={bytes(size)} hint={`On the disk, ${bytes(sum(list, 'agl_db_file_bytes', { file: 'log' }))} of it in the write-ahead log`} />}
          {s.total_span_bytes !== undefined && <Figure label="Span data" value={bytes(s.total_span_bytes)} />}
        </SimpleGrid>
      </Card>
      <Card title="How it fares">
        {metrics.error && <Failed error={metrics.error} />}
        <SimpleGrid cols={{ base: 2, sm: 4, lg: 7 }}>
          <Figure label="Up for" value={duration(s.uptime)} />
          <Figure label="Version" value={/\d\S*/.exec(capabilities.data?.version ?? '')?.[0] ?? '–'} hint={capabilities.data?.version} />
          <Figure label="Queue" value={number(overview.data?.queue.length)} />
          <Figure label="Commits" value={number(commits)} hint="Groups of writes that became durable together" />
          <Figure label="Commit, median" value={duration(quantile(list, 'agl_db_commit_seconds', 0.5))} />
          <Figure label="Commit, 99 % within" value={duration(quantile(list, 'agl_db_commit_seconds', 0.99))} />
          <Figure label="Memory" value={bytes(sum(list, 'process_resident_memory_bytes'))} hint="Resident memory of the server" />
        </SimpleGrid>
      </Card>
      {capabilities.data?.history && <StoreCurves inMemory={full !== undefined} />}
      {capabilities.data?.checks && <Checks />}
      <Retention inMemory={full !== undefined} />
    </Stack>
  );
}

const sounds = { ok: 'good', warn: 'look at it', bad: 'bad' } as const;

/** What agl doctor looks at, seen from inside the server. */
function Checks() {
  const checks = useChecks();
  const list = checks.data;
  const wrong = list?.filter((c) => c.level !== 'ok').length ?? 0;
  return (
    <Card
      title="Checks"
      right={
        <Button size="compact-sm" variant="default" loading={checks.isFetching} onClick={() => void checks.refetch()}>
          {list ? 'Check again' : 'Check now'}
        </Button>
      }
    >
      {checks.error ? (
        <Failed error={checks.error} />
      ) : list ? (
        <>
          <Text mb="xs" role="status">
            {wrong === 0 ? 'Everything is as it should be.' : `${number(wrong)} of ${number(list.length)} need a look.`}
          </Text>
          <div style={{ overflowX: 'auto' }} tabIndex={0} role="region" aria-label="Findings">
            <Table>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>What</Table.Th>
                  <Table.Th>How</Table.Th>
                  <Table.Th>Seen</Table.Th>
                  <Table.Th>What to do</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {list.map((c, i) => (
                  <Table.Tr key={i}>
                    <Table.Td>{c.name}</Table.Td>
                    <Table.Td>
                      <Badge color={{ ok: 'teal', warn: 'orange', bad: 'red' }[c.level]} variant="light" tt="none" className="status">
                        {sounds[c.level]}
                      </Badge>
                    </Table.Td>
                    <Table.Td>{c.text}</Table.Td>
                    <Table.Td>{c.fix}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </div>
        </>
      ) : (
        <Text>Looks into the database, at the disk, the clock, the limit of open files, and asks the model backends. It reads all of a database of up to 2 GiB.</Text>
      )}
    </Card>
  );
}
