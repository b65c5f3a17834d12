// What a run said while it went on: newest at the bottom, followed as it grows.
import { ActionIcon, Button, Group, SegmentedControl, Stack, Text, TextInput } from '@mantine/core';
import { useDebouncedCallback, useDebouncedValue } from '@mantine/hooks';
import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useMemo, useRef, useState } from 'react';
import { useAddress } from './address';
import { useRunLog } from '../data';
import { save } from '../logic/actions';
import { moment, number } from '../logic/format';
import { attributesText, clock, counts, found, logLevels, marks, matching, nextOf } from '../logic/log';
import type { LogLine, Run } from '../types';
import { Copy, Empty, Failed, Loading } from './bits';

const rowHeight = 24;
/** How close to the end a list is at its end. */
const nearEnd = 30;
const mostMarks = 150;

export function RunLog({ run }: { run: Run }) {
  const log = useRunLog(run.run_id);
  const [q, change] = useAddress();
  const asked = logLevels.find((l) => l === q.get('level')) ?? 'debug';
  const [text, setText] = useState(q.get('find') ?? '');
  const [find] = useDebouncedValue(text, 150);
  const set = (name: string, value: string) => change({ [name]: value === '' ? null : value });
  const keep = useDebouncedCallback((v: string) => set('find', v.trim()), 300);
  const n = useMemo(() => counts(log.lines), [log.lines]);
  const shown = useMemo(() => matching(log.lines, asked, find), [log.lines, asked, find]);
  if (log.error && log.lines.length === 0) return <Failed error={log.error} retry={log.refetch} />;
  if (log.isPending) return <Loading what="the log" />;
  if (log.lines.length === 0 && !log.loading) {
    return (
      <Empty title={log.dropped > 0 ? 'The lines of this log were deleted' : 'This run has said nothing'}>
        {log.dropped > 0 ? `There were ${number(log.dropped)}; agl db prune empties the logs of runs that ended long ago.` : 'Runs of earlier versions, and of programs that keep their log to themselves, have none.'}
      </Empty>
    );
  }
  const many = (count: number, one: string) => `${number(count)} ${one}${count === 1 ? '' : 's'}`;
  return (
    <Stack gap="xs">
      <Group gap="xs" align="end">
        <SegmentedControl
          size="xs"
          aria-label="Least level"
          value={asked}
          onChange={(v) => set('level', v === 'debug' ? '' : v)}
          data={[
            { value: 'debug', label: 'All' },
            { value: 'info', label: 'Info' },
            { value: 'warn', label: `Warnings ${number(n.warn)}` },
            { value: 'error', label: `Errors ${number(n.error)}` },
          ]}
        />
        <TextInput
          aria-label="Search the log"
          placeholder="Search the log"
          type="search"
          size="xs"
          value={text}
          onChange={(e) => {
            setText(e.currentTarget.value);
            keep(e.currentTarget.value);
          }}
          style={{ flex: '1 1 200px' }}
        />
        <Button size="xs" variant="default" onClick={() => save(`${run.run_id}.log.jsonl`, shown.map((l) => JSON.stringify(l)).join('\n') + '\n', 'application/jsonl')}>
          Download
        </Button>
      </Group>
      <Text size="sm" c="dimmed" role="status">
        {shown.length === log.lines.length ? many(shown.length, 'line') : `${number(shown.length)} of ${many(log.lines.length, 'line')}`}
        {n.error > 0 && `, ${many(n.error, 'error')}`}
        {n.warn > 0 && `, ${many(n.warn, 'warning')}`}
        {log.loading && ', older ones are on their way …'}
        {log.dropped > 0 && `; ${number(log.dropped)} older ones have gone: a run keeps its newest`}
      </Text>
      {log.error && <Failed error={log.error} retry={log.refetch} />}
      {shown.length === 0 ? <Empty title="No line fits" /> : <Lines key={`${asked} ${find}`} run={run.run_id} lines={shown} find={find} level={n.error > 0 ? 'error' : 'warn'} />}
    </Stack>
  );
}

function Lines({ run, lines, find, level }: { run: string; lines: LogLine[]; find: string; level: 'warn' | 'error' }) {
  const box = useRef<HTMLDivElement>(null);
  const [follow, setFollow] = useState(true);
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const [at, setAt] = useState<number | null>(null); // position of the line that was jumped to
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => rowHeight,
    getItemKey: (i) => lines[i]!.position,
    overscan: 20,
  });
  const oldest = lines[0]!.position;
  const before = useRef({ oldest, length: lines.length });
  const size = virtual.getTotalSize();
  useEffect(() => {
    const el = box.current;
    if (el === null) return;
    // Older lines that arrive above must not move what is being read.
    const added = oldest < before.current.oldest ? lines.findIndex((l) => l.position >= before.current.oldest) : 0;
    before.current = { oldest, length: lines.length };
    if (follow) el.scrollTop = el.scrollHeight;
    else if (added > 0) el.scrollTop += added * rowHeight;
  }, [lines, oldest, follow, size]);
  const jump = (row: number | null) => {
    if (row === null) return;
    setFollow(false);
    setAt(lines[row]!.position);
    virtual.scrollToIndex(row, { align: 'center' });
  };
  const ticks = useMemo(() => marks(lines, mostMarks), [lines]);
  const here = at === null ? -1 : lines.findIndex((l) => l.position === at);
  const step = (by: 1 | -1) => jump(nextOf(lines, level, here < 0 ? (by === 1 ? -1 : lines.length) : here, by));
  const what = level === 'error' ? 'error' : 'warning';
  const any = ticks.some((t) => t.level === level);
  const items = virtual.getVirtualItems();
  return (
    <div className="log-frame">
      <div
        className="log"
        ref={box}
        tabIndex={0}
        role="region"
        aria-label="Log, scrolls"
        onScroll={(e) => {
          const el = e.currentTarget;
          setFollow(el.scrollHeight - el.scrollTop - el.clientHeight < nearEnd);
        }}
      >
        <div role="list" aria-label="Lines" style={{ height: size, position: 'relative' }}>
          {items.map((item) => {
            const l = lines[item.index]!;
            const isOpen = open.has(l.position);
            return (
              <div key={item.key} ref={virtual.measureElement} data-index={item.index} data-level={l.level} data-here={l.position === at || undefined} className="log-line" role="listitem" style={{ transform: `translateY(${item.start}px)` }}>
                <button
                  type="button"
                  aria-expanded={isOpen}
                  onClick={() => {
                    const next = new Set(open);
                    if (!next.delete(l.position)) next.add(l.position);
                    setOpen(next);
                  }}
                >
                  <span className="log-time" title={moment(l.time)}>
                    {clock(l.time)}
                  </span>
                  <span className="log-level">{l.level.toUpperCase()}</span>
                  <span className="log-text">
                    <Marked text={l.message} find={find} />{' '}
                    <span className="log-attributes">
                      <Marked text={attributesText(l, run)} find={find} />
                    </span>
                  </span>
                </button>
                {isOpen && <Whole line={l} />}
              </div>
            );
          })}
        </div>
      </div>
      {/* The marks repeat what the buttons reach, for the eye and the mouse. */}
      <div className="log-marks" aria-hidden>
        {ticks.map((t) => (
          <i key={t.row} data-level={t.level} style={{ top: `${t.at * 100}%` }} onClick={() => jump(t.row)} />
        ))}
      </div>
      <Group gap="xs" mt="xs">
        {any && (
          <>
            <ActionIcon variant="default" size="sm" aria-label={`The ${what} before`} onClick={() => step(-1)}>
              ↑
            </ActionIcon>
            <ActionIcon variant="default" size="sm" aria-label={`The next ${what}`} onClick={() => step(1)}>
              ↓
            </ActionIcon>
            <Text size="sm" c="dimmed">
              {what}s
            </Text>
          </>
        )}
        <Text size="sm" c="dimmed" ml="auto">
          {follow ? 'Following the end' : ''}
        </Text>
        {!follow && (
          <Button size="compact-sm" variant="default" onClick={() => setFollow(true)}>
            Follow the end
          </Button>
        )}
      </Group>
    </div>
  );
}

function Marked({ text, find }: { text: string; find: string }) {
  return <>{found(text, find).map((p, i) => (p.hit ? <mark key={i}>{p.text}</mark> : p.text))}</>;
}

/** A line with all that it holds. */
function Whole({ line }: { line: LogLine }) {
  const members = Object.entries(line.attributes);
  return (
    <div className="log-whole">
      <Group gap={4} justify="space-between" wrap="nowrap" align="start">
        <div className="said" style={{ flex: 1 }}>
          {line.message}
        </div>
        <Copy value={JSON.stringify(line)} label="Copy the line" />
      </Group>
      {members.length > 0 && (
        <dl>
          {members.map(([k, v]) => (
            <div key={k}>
              <dt>{k}</dt>
              <dd>{typeof v === 'string' ? v : JSON.stringify(v)}</dd>
            </div>
          ))}
        </dl>
      )}
      <div className="dim">
        line {number(line.position)}, {moment(line.time)}
      </div>
    </div>
  );
}
