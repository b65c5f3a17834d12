import { Alert, Button, Grid, Group, Menu, Table, Text } from '@mantine/core';
import { useVirtualizer } from '@tanstack/react-virtual';
import { useMemo, useRef, useState } from 'react';
import { useWhole } from '../data';
import { save } from '../logic/actions';
import { duration, moment, number } from '../logic/format';
import { asDot, asSVG, spanOfTime, tree } from '../logic/spantree';
import type { Span, SpanRow } from '../types';
import { Empty, Failed, ID, Json, Loading, Status } from './bits';

function kindOf(s: SpanRow): string {
  if (s.status === 'ERROR' || s.kind === 'exception') return 'error';
  return s.kind === 'call' || s.kind === 'reward' ? s.kind : 'span';
}

/** The spans of an attempt over time, as a tree; one opens when it is chosen. */
export function Timeline({ rollout, attempt, rows: spans, complete }: { rollout: string; attempt: string | undefined; rows: SpanRow[]; complete: boolean }) {
  const name = `${rollout}-${attempt ?? ''}`;
  const [text, setText] = useState('');
  const [open, setOpen] = useState<string | null>(null);
  const nodes = useMemo(() => {
    const part = text.toLowerCase();
    const all = tree(spans);
    return part === '' ? all : all.filter((n) => n.span.name.toLowerCase().includes(part) || n.span.span_id.includes(part) || n.span.trace_id.includes(part));
  }, [spans, text]);
  const [from, to] = useMemo(() => spanOfTime(spans), [spans]);
  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: nodes.length, getScrollElement: () => box.current, estimateSize: () => 28, overscan: 20, getItemKey: (i) => nodes[i]!.span.span_id });
  const place = (t: number | null) => Math.min(100, (100 * ((t ?? from) - from)) / (to - from));
  const chosen = nodes.find((n) => n.span.span_id === open)?.span;
  const whole = useWhole(rollout, attempt, chosen ? [chosen.span_id] : []);
  if (spans.length === 0) return <Empty title="No span was recorded in this attempt" />;
  return (
    <Grid>
      <Grid.Col span={{ base: 12, lg: chosen ? 7 : 12 }}>
        <Group gap="xs" mb="xs" justify="space-between">
          <input className="mantine-Input-input" aria-label="Find spans by name or id" placeholder="Find spans by name or id" value={text} onChange={(e) => setText(e.currentTarget.value)} style={{ padding: '4px 8px', flex: '1 1 180px', maxWidth: 320, border: '1px solid var(--mantine-color-default-border)', borderRadius: 4, background: 'none', color: 'inherit', font: 'inherit' }} />
          <Text size="sm">
            {number(nodes.length)} spans over {duration(to - from)}
          </Text>
          <Menu shadow="md" disabled={!complete}>
            <Menu.Target>
              <Button size="compact-sm" variant="default">
                Save the tree
              </Button>
            </Menu.Target>
            <Menu.Dropdown>
              <Menu.Item onClick={() => save(`${name}.svg`, asSVG(spans), 'image/svg+xml')}>as a picture (SVG)</Menu.Item>
              <Menu.Item onClick={() => save(`${name}.dot`, asDot(spans), 'text/vnd.graphviz')}>for Graphviz (DOT)</Menu.Item>
            </Menu.Dropdown>
          </Menu>
        </Group>
        <div ref={box} className="grid" style={{ height: 'min(65vh, 720px)' }} tabIndex={0} role="region" aria-label="Spans by time, scrolls">
          <ul style={{ height: virtual.getTotalSize(), position: 'relative', margin: 0, padding: 0, listStyle: 'none' }}>
            {virtual.getVirtualItems().map((v) => {
              const { span, depth, orphan } = nodes[v.index]!;
              return (
                <li key={v.key} style={{ position: 'absolute', top: 0, left: 0, right: 0, transform: `translateY(${v.start}px)` }}>
                  <button type="button" className="span-row" aria-expanded={open === span.span_id} onClick={() => setOpen(open === span.span_id ? null : span.span_id)}>
                    <span className="one-line" style={{ paddingLeft: Math.min(depth, 12) * 14 }} title={span.name}>
                      <span className="dim">{span.sequence_id}</span> {span.name}
                      {span.answer_tokens !== undefined && <span className="dim">{` ${number(span.prompt_tokens)} → ${number(span.answer_tokens)} tokens`}</span>}
                      {orphan && <span title={`Its parent ${span.parent_id ?? ''} is not among these spans`}> ⚠</span>}
                    </span>
                    <span className="bar" aria-hidden>
                      <i data-kind={kindOf(span)} style={{ left: `min(${place(span.start_time)}%, calc(100% - 3px))`, width: `${Math.max(0, place(span.end_time ?? span.start_time) - place(span.start_time))}%` }} />
                      {(span.events ?? []).map((e, i) => (
                        <b key={i} title={e.name} style={{ left: `${place(e.timestamp)}%` }} />
                      ))}
                    </span>
                    <span className="num">{duration((span.end_time ?? span.start_time ?? 0) - (span.start_time ?? 0))}</span>
                  </button>
                </li>
              );
            })}
          </ul>
        </div>
      </Grid.Col>
      {chosen && (
        <Grid.Col span={{ base: 12, lg: 5 }}>
          {whole.error ? <Failed error={whole.error} /> : whole.spans[0] ? <SpanShown span={whole.spans[0]} close={() => setOpen(null)} find={(id) => setOpen(id)} /> : <Loading what={chosen.name} />}
        </Grid.Col>
      )}
    </Grid>
  );
}

function SpanShown({ span, close, find }: { span: Span; close: () => void; find: (id: string) => void }) {
  return (
    <section aria-label={`Span ${span.name}`}>
      <Group justify="space-between" mb="xs">
        <Group gap="xs">
          <Text fw={600}>{span.name}</Text>
          <Status value={span.status.status_code} />
        </Group>
        <Button size="compact-sm" variant="default" onClick={close}>
          Close
        </Button>
      </Group>
      {span.status.description !== null && span.status.description !== '' && <Alert color="red">{span.status.description}</Alert>}
      <Table>
        <Table.Tbody>
          <Table.Tr>
            <Table.Th>Span</Table.Th>
            <Table.Td>
              <ID value={span.span_id} />
            </Table.Td>
          </Table.Tr>
          {span.parent_id !== null && (
            <Table.Tr>
              <Table.Th>Parent</Table.Th>
              <Table.Td>
                <Button size="compact-xs" variant="default" onClick={() => find(span.parent_id!)}>
                  {span.parent_id}
                </Button>
              </Table.Td>
            </Table.Tr>
          )}
          <Table.Tr>
            <Table.Th>Trace</Table.Th>
            <Table.Td>
              <ID value={span.trace_id} />
            </Table.Td>
          </Table.Tr>
          <Table.Tr>
            <Table.Th>Time</Table.Th>
            <Table.Td>
              {moment(span.start_time)}, {duration((span.end_time ?? span.start_time ?? 0) - (span.start_time ?? 0))}
            </Table.Td>
          </Table.Tr>
          {span.links.map((l) => (
            <Table.Tr key={l.context.span_id}>
              <Table.Th>Link</Table.Th>
              <Table.Td>
                <Button size="compact-xs" variant="default" onClick={() => find(l.context.span_id)}>
                  {l.context.span_id}
                </Button>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      {span.events.length > 0 && (
        <>
          <Text fw={600} mt="xs">
            Events
          </Text>
          <Json value={span.events} label="Events" />
        </>
      )}
      <Text fw={600} mt="xs">
        Attributes
      </Text>
      <Json value={span.attributes} label="Attributes" />
    </section>
  );
}
