import { Anchor, Group, Select, Stack, Table, Text } from '@mantine/core';
import { useQueries } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearchParams } from 'react-router-dom';
import { browseQuery, useResources } from '../data';
import { number } from '../logic/format';
import { Card, Empty, Failed, ID, Json, Loading, PageTitle, Status, When } from '../parts/bits';
import { Diff } from '../parts/diff';
import type { ResourcesUpdate } from '../types';

/** How many versions are scored at once; each is a question to the server. */
const scored = 12;

export function Component() {
  const { id } = useParams();
  const resources = useResources();
  if (resources.error) return <Failed error={resources.error} retry={() => void resources.refetch()} />;
  if (resources.isPending) return <Loading what="the resources" />;
  const list = resources.data.items;
  if (list.length === 0) return <Empty title="No resources yet">An algorithm publishes them: the model, the prompts that agents are given.</Empty>;
  return (
    <Stack>
      <PageTitle>Resources</PageTitle>
      <Versions list={list} total={resources.data.total} />
      <Shown list={list} id={id ?? list[0]!.resources_id} />
    </Stack>
  );
}

function Versions({ list, total }: { list: ResourcesUpdate[]; total: number }) {
  const scores = useQueries({ queries: list.slice(0, scored).map((r) => browseQuery({ resources_id: r.resources_id, rewarded: 'true' }, 200, 0)) });
  return (
    <Card title="Versions, the newest first" right={total > list.length ? <Text size="xs">{`the newest ${list.length} of ${number(total)}`}</Text> : null}>
      <div style={{ maxHeight: 320, overflow: 'auto' }} tabIndex={0} role="region" aria-label="Versions, scrolls">
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Resources</Table.Th>
              <Table.Th className="num">Version</Table.Th>
              <Table.Th>Published</Table.Th>
              <Table.Th>Names</Table.Th>
              <Table.Th className="num">Mean reward</Table.Th>
              <Table.Th>Rollouts</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {list.map((r, i) => {
              const found = scores[i]?.data;
              const rewards = found?.items.map((x) => x.digest.reward).filter((x): x is number => x !== null) ?? [];
              return (
                <Table.Tr key={r.resources_id}>
                  <Table.Td>
                    <ID value={r.resources_id} to={`/resources/${encodeURIComponent(r.resources_id)}`} /> {i === 0 && <Status value="latest" />}
                  </Table.Td>
                  <Table.Td className="num">{r.version}</Table.Td>
                  <Table.Td>
                    <When t={r.update_time} />
                  </Table.Td>
                  <Table.Td>{Object.keys(r.resources).join(', ')}</Table.Td>
                  <Table.Td className="num" title={rewards.length > 0 ? `of the newest ${rewards.length} rewarded rollouts` : undefined}>
                    {rewards.length > 0 ? number(rewards.reduce((a, b) => a + b, 0) / rewards.length) : '–'}
                  </Table.Td>
                  <Table.Td>
                    <Anchor component={Link} to={`/rollouts?resources_id=${encodeURIComponent(r.resources_id)}`}>
                      Show them
                    </Anchor>
                  </Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </div>
    </Card>
  );
}

function textOf(v: Record<string, unknown> | undefined): string {
  if (v === undefined) return '';
  return typeof v['template'] === 'string' ? v['template'] : JSON.stringify(v, null, 2);
}

function Shown({ list, id }: { list: ResourcesUpdate[]; id: string }) {
  const [q, setQ] = useSearchParams();
  const navigate = useNavigate();
  const at = list.findIndex((r) => r.resources_id === id);
  const chosen = list[at];
  if (!chosen) return <Empty title={`Resources ${id} are not among the newest`} />;
  const against = list.find((r) => r.resources_id === q.get('against')) ?? list[at + 1];
  const names = [...new Set([...Object.keys(against?.resources ?? {}), ...Object.keys(chosen.resources)])];
  return (
    <Card
      title={`What ${chosen.resources_id} holds`}
      label="Contents"
      right={
        <Group gap="xs" align="end">
          <Select size="xs" label="Version" data={list.map((r) => ({ value: r.resources_id, label: `${r.resources_id}, version ${r.version}` }))} value={id} onChange={(v) => v !== null && void navigate(`/resources/${encodeURIComponent(v)}`)} searchable allowDeselect={false} w={260} />
          <Select size="xs" label="Compared with" placeholder="Compared with nothing" data={list.filter((r) => r.resources_id !== id).map((r) => ({ value: r.resources_id, label: `${r.resources_id}, version ${r.version}` }))} value={against?.resources_id ?? null} onChange={(v) => setQ(v === null ? {} : { against: v }, { replace: true })} searchable w={260} />
        </Group>
      }
    >
      {names.map((n) => (
        <div key={n}>
          <Text fw={600} mt="xs">
            {n}
          </Text>
          <Diff before={textOf(against ? against.resources[n] : chosen.resources[n])} after={textOf(chosen.resources[n])} label={`Resource ${n}`} />
        </div>
      ))}
      <Text fw={600} mt="sm">
        As it is
      </Text>
      <Json value={chosen.resources} label="Resources as JSON" />
    </Card>
  );
}
