import { ActionIcon, Alert, Button, Checkbox, Group, Menu, Modal, MultiSelect, NumberInput, Paper, Pill, Popover, Progress, Select, SimpleGrid, Stack, Text, TextInput } from '@mantine/core';
import { useDebouncedCallback, useLocalStorage, useMediaQuery } from '@mantine/hooks';
import { notifications } from '@mantine/notifications';
import { useQueries, useQueryClient } from '@tanstack/react-query';
import { type ColumnDef, flexRender, getCoreRowModel, useReactTable } from '@tanstack/react-table';
import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useMemo, useRef, useState } from 'react';
import { Link, useSearchParams } from 'react-router-dom';
import { get, query } from '../api';
import { browseQuery, type Filters, useBrowse, useCapabilities } from '../data';
import { actions, type ActionName, runAction } from '../logic/actions';
import { activeFilters, isList, type FilterName, nextSort, pagesOf, readFilters } from '../logic/filters';
import { duration, member, number, summary, task, words } from '../logic/format';
import { Empty, Failed, ID, Loading, PageTitle, Status, When } from '../parts/bits';
import { useNow } from '../parts/now';
import { RescoreDialog, Rescores } from '../parts/rescore';
import { attemptStatuses, type Browsed, type BrowsePage, rolloutStatuses } from '../types';

const pageSize = 100;
/** Browsers cannot draw a list that is higher; what is beyond it is reached in parts. */
const windowSize = 100_000;
const rowHeight = 36;

const meta = (r: Browsed, key: string) => member(r.metadata, key) ?? '–';

interface Column {
  id: string;
  title: string;
  width: number;
  number?: boolean;
  /** Shown on a phone, too. */
  narrow?: boolean;
  /** Not shown until it is asked for. */
  hidden?: boolean;
  cell: (r: Browsed, now: number) => React.ReactNode;
}

const columns: Column[] = [
  { id: 'rollout_id', title: 'Rollout', width: 168, cell: (r) => <ID value={r.rollout_id} to={`/rollouts/${encodeURIComponent(r.rollout_id)}`} /> },
  { id: 'status', title: 'Status', width: 104, narrow: true, cell: (r) => <Status value={r.status} /> },
  { id: 'reward', title: 'Reward', width: 84, number: true, narrow: true, cell: (r) => <span title={Object.entries(r.digest.rewards).map(([k, v]) => `${k} ${v}`).join(', ')}>{number(r.digest.reward)}</span> },
  {
    id: 'input',
    title: 'Task',
    width: 360,
    narrow: true,
    cell: (r) => (
      <Link to={`/rollouts/${encodeURIComponent(r.rollout_id)}`} title={task(r.input, 1000)} style={{ color: 'inherit' }}>
        {task(r.input)}
      </Link>
    ),
  },
  { id: 'mode', title: 'Mode', width: 72, cell: (r) => r.mode ?? '–' },
  { id: 'start_time', title: 'Started', width: 120, cell: (r) => <When t={r.start_time} /> },
  { id: 'duration', title: 'Took', width: 88, number: true, cell: (r, now) => duration((r.end_time ?? now) - r.start_time) },
  { id: 'step', title: 'Step', width: 72, number: true, cell: (r) => meta(r, 'agl.step') },
  { id: 'group', title: 'Group', width: 84, cell: (r) => meta(r, 'agl.group') },
  { id: 'calls', title: 'Calls', width: 72, number: true, cell: (r) => (r.digest.large ? '–' : number(r.digest.calls)) },
  { id: 'tokens', title: 'Tokens', width: 84, number: true, cell: (r) => (r.digest.large ? '–' : number(r.digest.tokens)) },
  { id: 'model', title: 'Model', width: 130, cell: (r) => r.digest.model || '–' },
  { id: 'problem', title: 'Problem', width: 140, cell: (r) => (r.digest.large ? `${number(r.digest.spans)} spans: open it` : r.digest.problem === '' ? '–' : words(r.digest.problem)) },
  { id: 'attempt', title: 'Attempt', width: 84, number: true, cell: (r) => r.attempt?.sequence_id ?? '–' },
  { id: 'attempt_status', title: 'Attempt status', width: 132, hidden: true, cell: (r) => (r.attempt ? <Status value={r.attempt.status} /> : '–') },
  { id: 'worker_id', title: 'Worker', width: 120, cell: (r) => r.attempt?.worker_id ?? '–' },
  { id: 'last_heartbeat_time', title: 'Heartbeat', width: 120, hidden: true, cell: (r) => <When t={r.attempt?.last_heartbeat_time} /> },
  { id: 'run_id', title: 'Run', width: 160, hidden: true, cell: (r) => (r.metadata?.['agl.run_id'] === undefined ? '–' : <ID value={meta(r, 'agl.run_id')} to={`/runs/${encodeURIComponent(meta(r, 'agl.run_id'))}`} />) },
  { id: 'resources_id', title: 'Resources', width: 150, hidden: true, cell: (r) => r.resources_id ?? '–' },
];

export function Component() {
  const [q, setQ] = useSearchParams();
  const now = useNow();
  const filters = useMemo(() => readFilters(q, now), [q, now]);
  const asked = JSON.stringify(filters);
  const stable = useMemo(() => JSON.parse(asked) as Filters, [asked]);
  const start = Math.max(0, Number(q.get('row') ?? 0) || 0);
  const first = useBrowse(stable, pageSize, start);
  const [chosen, setChosen] = useState<Map<string, Browsed>>(new Map());
  const change = (f: (q: URLSearchParams) => void) =>
    setQ(
      (old) => {
        const next = new URLSearchParams(old);
        next.delete('row');
        f(next);
        return next;
      },
      { replace: true },
    );
  return (
    <Stack gap="sm" h="calc(100dvh - 48px - 2 * var(--mantine-spacing-md))">
      <PageTitle right={<Views q={q} open={(view) => setQ(view)} />}>Rollouts</PageTitle>
      <FilterBar q={q} change={change} />
      <Summary page={first.data} sort={q.get('sort')} fetching={first.isFetching} />
      {first.error && !first.data ? (
        <Refused error={first.error} retry={() => void first.refetch()} reset={() => change((n) => n.delete('sort'))} sorted={q.get('sort') !== null} />
      ) : first.isPending ? (
        <Loading what="rollouts" />
      ) : (
        <>
          {first.error && <Refused error={first.error} retry={() => void first.refetch()} reset={() => change((n) => n.delete('sort'))} sorted={q.get('sort') !== null} />}
          {first.data.total === 0 ? (
            <Empty title={activeFilters(q).length > 0 ? 'No rollout fits' : 'No rollout yet'}>
              {activeFilters(q).length > 0 ? (
                <Button variant="default" mt="xs" onClick={() => setQ({})}>
                  Clear the filters
                </Button>
              ) : (
                <>
                  An algorithm, or <code>POST /v1/agl/queues/rollouts/enqueue</code>, asks for them.
                </>
              )}
            </Empty>
          ) : (
            <Rows filters={stable} first={first.data} start={start} sort={q.get('sort')} setSort={(s) => change((n) => (s === null ? n.delete('sort') : n.set('sort', s)))} chosen={chosen} setChosen={setChosen} goTo={(row) => change((n) => row > 0 && n.set('row', String(row)))} />
          )}
          <Rescores />
          <Bulk filters={stable} total={first.data.total} chosen={chosen} clear={() => setChosen(new Map())} />
        </>
      )}
    </Stack>
  );
}

function Refused({ error, retry, reset, sorted }: { error: unknown; retry: () => void; reset: () => void; sorted: boolean }) {
  return (
    <div>
      <Failed error={error} retry={retry} />
      {sorted && (
        <Button mt="xs" variant="default" onClick={reset}>
          Sort by the newest instead
        </Button>
      )}
    </div>
  );
}

function Summary({ page, sort, fetching }: { page: BrowsePage | undefined; sort: string | null; fetching: boolean }) {
  return (
    <Text size="sm" c="dimmed" role="status">
      {page === undefined ? ' ' : summary(page, sort)}
      {fetching ? ' …' : ''}
    </Text>
  );
}

function FilterBar({ q, change }: { q: URLSearchParams; change: (f: (q: URLSearchParams) => void) => void }) {
  const set = (name: string, value: string | string[] | number | null) =>
    change((n) => {
      n.delete(name);
      if (Array.isArray(value)) value.forEach((v) => n.append(name, v));
      else if (value !== null && value !== '') n.set(name, String(value));
    });
  const [text, setText] = useState(q.get('id') ?? q.get('text') ?? '');
  const search = useDebouncedCallback((value: string) => {
    const s = value.trim();
    change((n) => {
      n.delete('id');
      n.delete('text');
      if (s !== '') n.set(/^ro-[0-9a-f]*$/i.test(s) ? 'id' : 'text', s);
    });
  }, 300);
  const active = activeFilters(q);
  return (
    <Stack gap="xs">
      <Group gap="xs" align="end">
        <TextInput
          aria-label="Search tasks, or paste an id"
          placeholder="Search tasks, or paste an id"
          value={text}
          onChange={(e) => {
            setText(e.currentTarget.value);
            search(e.currentTarget.value);
          }}
          style={{ flex: '1 1 220px' }}
          type="search"
        />
        <MultiSelect aria-label="Status" placeholder={q.getAll('status').length > 0 ? undefined : 'Any status'} data={rolloutStatuses} value={q.getAll('status')} onChange={(v) => set('status', v)} clearable w={200} clearButtonProps={{ 'aria-label': 'Any status' }} />
        <Select aria-label="Started" placeholder="Any time" data={[{ value: '900', label: 'last 15 minutes' }, { value: '3600', label: 'last hour' }, { value: '86400', label: 'last day' }, { value: '604800', label: 'last week' }]} value={q.get('since')} onChange={(v) => set('since', v)} clearable w={160} clearButtonProps={{ 'aria-label': 'Any time' }} />
        <Popover width={340} position="bottom-end" withArrow trapFocus shadow="md">
          <Popover.Target>
            <Button variant="default">More filters</Button>
          </Popover.Target>
          <Popover.Dropdown>
            <MoreFilters q={q} set={set} />
          </Popover.Dropdown>
        </Popover>
      </Group>
      {active.length > 0 && (
        <Group gap={6}>
          {active.map(({ name, value }) => (
            <Pill
              key={`${name} ${value}`}
              withRemoveButton
              removeButtonProps={{ 'aria-label': `Remove ${words(name)} ${value}`, 'aria-hidden': false, tabIndex: 0 }}
              onRemove={() => {
                if (name === 'id' || name === 'text') setText('');
                change((n) => {
                  const rest = n.getAll(name).filter((v) => v !== value);
                  n.delete(name);
                  if (isList(name as FilterName)) rest.forEach((v) => n.append(name, v));
                });
              }}
            >
              {words(name)}: {name === 'since' ? duration(Number(value)) : value}
            </Pill>
          ))}
        </Group>
      )}
    </Stack>
  );
}

function MoreFilters({ q, set }: { q: URLSearchParams; set: (name: string, value: string | string[] | number | null) => void }) {
  const text = (name: string, label: string, placeholder?: string) => (
    <TextInput
      size="xs"
      label={label}
      placeholder={placeholder}
      defaultValue={q.get(name) ?? ''}
      onBlur={(e) => set(name, e.currentTarget.value.trim())}
      onKeyDown={(e) => {
        if (e.key === 'Enter') set(name, e.currentTarget.value.trim());
      }}
    />
  );
  const amount = (name: string, label: string) => <NumberInput size="xs" label={label} defaultValue={q.get(name) ?? ''} onBlur={(e) => set(name, e.currentTarget.value.trim())} onKeyDown={(e) => e.key === 'Enter' && set(name, e.currentTarget.value.trim())} hideControls />;
  return (
    <SimpleGrid cols={2} spacing="xs">
      {text('run_id', 'Run', 'run-…')}
      {amount('step', 'Step')}
      {text('group', 'Group')}
      <MultiSelect size="xs" label="Mode" data={['train', 'val', 'test', 'none']} value={q.getAll('mode')} onChange={(v) => set('mode', v)} comboboxProps={{ withinPortal: false }} />
      {amount('reward_min', 'Reward from')}
      {amount('reward_max', 'Reward to')}
      <Select size="xs" label="Rewarded" data={[{ value: 'true', label: 'with a reward' }, { value: 'false', label: 'without one' }]} value={q.get('rewarded')} onChange={(v) => set('rewarded', v)} clearable comboboxProps={{ withinPortal: false }} />
      {text('model', 'Model')}
      {text('problem', 'Problem', 'any, or its name')}
      <MultiSelect size="xs" label="Attempt" data={[...attemptStatuses]} value={q.getAll('attempt_status')} onChange={(v) => set('attempt_status', v)} comboboxProps={{ withinPortal: false }} />
      {text('worker_id', 'Worker')}
      {text('resources_id', 'Resources')}
      {text('tag', 'Metadata contains')}
    </SimpleGrid>
  );
}

/** Views that were saved in this browser, each an address. */
function Views({ q, open }: { q: URLSearchParams; open: (view: string) => void }) {
  const [views, setViews] = useLocalStorage<Record<string, string>>({ key: 'agl-views', defaultValue: {} });
  const [name, setName] = useState('');
  return (
    <Menu position="bottom-end" withArrow shadow="md" width={280} closeOnItemClick>
      <Menu.Target>
        <Button size="compact-sm" variant="default">
          Views
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item onClick={() => open('status=failed')}>Failed</Menu.Item>
        <Menu.Item onClick={() => open('status=running&status=preparing')}>In progress</Menu.Item>
        <Menu.Item onClick={() => open('problem=any')}>Left out of training</Menu.Item>
        <Menu.Item onClick={() => open('rewarded=false&status=succeeded')}>Succeeded without a reward</Menu.Item>
        {Object.keys(views).length > 0 && <Menu.Divider />}
        {Object.entries(views).map(([n, v]) => (
          <Group key={n} gap={0} wrap="nowrap">
            <Menu.Item onClick={() => open(v)}>{n}</Menu.Item>
            <ActionIcon
              variant="subtle"
              color="gray"
              aria-label={`Forget view ${n}`}
              onClick={() => setViews(Object.fromEntries(Object.entries(views).filter(([k]) => k !== n)))}
            >
              ✕
            </ActionIcon>
          </Group>
        ))}
        <Menu.Divider />
        <form
          style={{ padding: '4px 12px' }}
          onSubmit={(e) => {
            e.preventDefault();
            if (name.trim() === '') return;
            setViews({ ...views, [name.trim()]: q.toString() });
            setName('');
            notifications.show({ message: 'Saved in this browser. The address of the page is the view, too: send it to others.' });
          }}
        >
          <Group gap={4} wrap="nowrap">
            <TextInput size="xs" aria-label="Name of this view" placeholder="Name of this view" value={name} onChange={(e) => setName(e.currentTarget.value)} />
            <Button size="xs" type="submit" variant="default">
              Save
            </Button>
          </Group>
        </form>
      </Menu.Dropdown>
    </Menu>
  );
}

interface RowsProps {
  filters: Filters;
  first: BrowsePage;
  start: number;
  sort: string | null;
  setSort: (s: string | null) => void;
  chosen: Map<string, Browsed>;
  setChosen: (c: Map<string, Browsed>) => void;
  goTo: (row: number) => void;
}

function Rows({ filters, first, start, sort, setSort, chosen, setChosen, goTo }: RowsProps) {
  const capabilities = useCapabilities();
  const [hidden, setHidden] = useLocalStorage<string[]>({ key: 'agl-hidden-columns', defaultValue: columns.filter((c) => c.hidden).map((c) => c.id) });
  const narrow = useMediaQuery('(max-width: 48em)') ?? false;
  const shown = useMemo(() => columns.filter((c) => (narrow ? c.narrow : !hidden.includes(c.id))), [hidden, narrow]);
  const rows = Math.min(windowSize, Math.max(0, first.total - start));
  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: rows, getScrollElement: () => box.current, estimateSize: () => rowHeight, overscan: 12 });
  const visible = virtual.getVirtualItems();
  const from = visible[0]?.index ?? 0;
  const to = visible.at(-1)?.index ?? 0;
  const now = useNow();

  // Only the pages that are on the screen are asked for.
  const [settled, setSettled] = useState([0]);
  const wanted = pagesOf(from, to, pageSize).join(',');
  useEffect(() => {
    const t = setTimeout(() => setSettled(wanted.split(',').map(Number)), 80);
    return () => clearTimeout(t);
  }, [wanted]);
  const pages = useQueries({ queries: settled.map((p) => browseQuery(filters, pageSize, start + p * pageSize)) });
  const byRow = (i: number): Browsed | undefined => {
    const p = Math.floor(i / pageSize);
    const page = p === 0 ? first : pages[settled.indexOf(p)]?.data;
    return page?.items[i - p * pageSize];
  };
  useEffect(() => {
    box.current?.scrollTo({ top: 0 });
  }, [filters, start]);

  const sorts = capabilities.data?.sorts ?? [];
  const table = useReactTable({
    data: [] as Browsed[],
    columns: useMemo<ColumnDef<Browsed>[]>(() => shown.map((c) => ({ id: c.id, header: c.title, size: c.width })), [shown]),
    getCoreRowModel: getCoreRowModel(),
    manualSorting: true,
    manualPagination: true,
  });
  const top = visible[0]?.start ?? 0;
  const bottom = virtual.getTotalSize() - (visible.at(-1)?.end ?? 0);
  const toggle = (r: Browsed) => {
    const next = new Map(chosen);
    if (!next.delete(r.rollout_id)) next.set(r.rollout_id, r);
    setChosen(next);
  };
  const loaded = visible.map((v) => byRow(v.index)).filter((r): r is Browsed => r !== undefined);
  const all = loaded.length > 0 && loaded.every((r) => chosen.has(r.rollout_id));
  return (
    <>
      <div className="grid" ref={box} style={{ flex: 1, minHeight: 240 }} tabIndex={0} role="region" aria-label="Rollouts, scrolls">
        <table aria-rowcount={first.total + 1} style={{ width: shown.reduce((a, c) => a + c.width, 40) }}>
          <colgroup>
            <col style={{ width: 40 }} />
            {shown.map((c) => (
              <col key={c.id} style={{ width: c.width }} />
            ))}
          </colgroup>
          <thead>
            {table.getHeaderGroups().map((g) => (
              <tr key={g.id} aria-rowindex={1}>
                <th scope="col">
                  <Checkbox size="xs" aria-label="Choose the rows on the screen" checked={all} onChange={() => setChosen(all ? new Map<string, Browsed>() : new Map([...chosen, ...loaded.map((r) => [r.rollout_id, r] as const)]))} />
                </th>
                {g.headers.map((h) => {
                  const c = shown.find((x) => x.id === h.id)!;
                  const by = sort === null ? '-start_time' : sort;
                  const state = by === h.id ? 'ascending' : by === `-${h.id}` ? 'descending' : undefined;
                  const title = flexRender(h.column.columnDef.header, h.getContext());
                  return (
                    <th key={h.id} scope="col" className={c.number ? 'num' : undefined} aria-sort={state ?? 'none'}>
                      {sorts.includes(h.id) ? (
                        <button type="button" onClick={() => setSort(nextSort(sort, h.id))} title={`Sort by ${c.title.toLowerCase()}`}>
                          {title}
                          <span aria-hidden>{state === 'ascending' ? '▲' : state === 'descending' ? '▼' : ''}</span>
                        </button>
                      ) : (
                        title
                      )}
                    </th>
                  );
                })}
              </tr>
            ))}
          </thead>
          <tbody>
            {top > 0 && (
              <tr aria-hidden>
                <td colSpan={shown.length + 1} style={{ height: top, padding: 0, border: 0 }} />
              </tr>
            )}
            {visible.map((v) => {
              const r = byRow(v.index);
              return (
                <tr key={v.key} data-row aria-rowindex={start + v.index + 2} aria-busy={r === undefined}>
                  <td>{r && <Checkbox size="xs" aria-label={`Choose ${r.rollout_id}`} checked={chosen.has(r.rollout_id)} onChange={() => toggle(r)} />}</td>
                  {shown.map((c) => (
                    <td key={c.id} className={c.number ? 'num' : undefined}>
                      {r ? c.cell(r, now) : '…'}
                    </td>
                  ))}
                </tr>
              );
            })}
            {bottom > 0 && (
              <tr aria-hidden>
                <td colSpan={shown.length + 1} style={{ height: bottom, padding: 0, border: 0 }} />
              </tr>
            )}
          </tbody>
        </table>
      </div>
      <Group justify="space-between" gap="xs">
        <Group gap="xs">
          {(start > 0 || first.total > windowSize) && (
            <>
              <Button size="compact-sm" variant="default" disabled={start === 0} onClick={() => goTo(Math.max(0, start - windowSize))}>
                Earlier rows
              </Button>
              <Text size="sm">
                {number(start + 1)}–{number(start + rows)} of {number(first.total)}
              </Text>
              <Button size="compact-sm" variant="default" disabled={start + rows >= first.total} onClick={() => goTo(start + windowSize)}>
                Later rows
              </Button>
            </>
          )}
        </Group>
        <Menu closeOnItemClick={false} position="top-end" shadow="md">
          <Menu.Target>
            <Button size="compact-sm" variant="default" className="wide-only">
              Columns
            </Button>
          </Menu.Target>
          <Menu.Dropdown mah={400} style={{ overflowY: 'auto' }}>
            {columns.map((c) => (
              <Menu.Item key={c.id} role="menuitemcheckbox" aria-checked={!hidden.includes(c.id)} onClick={() => setHidden(hidden.includes(c.id) ? hidden.filter((x) => x !== c.id) : [...hidden, c.id])} leftSection={hidden.includes(c.id) ? '☐' : '☑'}>
                {c.title}
              </Menu.Item>
            ))}
          </Menu.Dropdown>
        </Menu>
      </Group>
    </>
  );
}

/** What can be done to many rollouts at once. */
function Bulk({ filters, total, chosen, clear }: { filters: Filters; total: number; chosen: Map<string, Browsed>; clear: () => void }) {
  const capabilities = useCapabilities();
  const client = useQueryClient();
  const [asked, setAsked] = useState<{ action: ActionName; all: boolean } | null>(null);
  const [progress, setProgress] = useState<{ done: number; of: number; skipped: number } | null>(null);
  const [outcome, setOutcome] = useState<string[]>([]);
  const stop = useRef<AbortController | null>(null);
  const [rescore, setRescore] = useState<{ all: boolean } | null>(null);
  const n = chosen.size;
  if (!capabilities.data?.browse) return null;
  const offered = (Object.keys(actions) as ActionName[]).filter((a) => a !== 'delete' || capabilities.data.delete);

  const scores = capabilities.data.rescore.includes('expression');

  const close = () => {
    stop.current?.abort();
    stop.current = null;
    setAsked(null);
    setProgress(null);
    setOutcome([]);
  };
  const go = async () => {
    if (!asked) return;
    const control = new AbortController();
    stop.current = control;
    const list = asked.all ? await everything(filters, total, control.signal) : [...chosen.values()];
    const result = await runAction(asked.action, list, control.signal, (p) => setProgress(p));
    setOutcome(result.lines);
    setProgress({ done: list.length, of: list.length, skipped: result.skipped });
    stop.current = null;
    await client.invalidateQueries();
    if (result.lines.length === 0 && !control.signal.aborted) {
      notifications.show({ message: `${words(actions[asked.action].past)}: ${number(result.changed)}` + (result.skipped > 0 ? `; ${number(result.skipped)} were left as they are` : '') });
      clear();
      close();
    }
  };
  const count = asked?.all ? total : n;
  return (
    <>
      <Paper withBorder p="xs" component="section" aria-label="Actions">
        <Group gap="xs">
          <Text size="sm">{n === 0 ? 'Nothing chosen' : `${number(n)} chosen`}</Text>
          {offered.map((a) => (
            <Button key={a} size="compact-sm" variant="default" color={a === 'delete' ? 'red' : undefined} disabled={n === 0} onClick={() => setAsked({ action: a, all: false })}>
              {actions[a].name}
            </Button>
          ))}
          {scores && (
            <Button size="compact-sm" variant="default" disabled={n === 0} onClick={() => setRescore({ all: false })}>
              Score again
            </Button>
          )}
          {n > 0 && (
            <Button size="compact-sm" variant="subtle" onClick={clear}>
              Choose none
            </Button>
          )}
          <Menu shadow="md">
            <Menu.Target>
              <Button size="compact-sm" variant="subtle">
                All {number(total)} …
              </Button>
            </Menu.Target>
            <Menu.Dropdown>
              {offered.map((a) => (
                <Menu.Item key={a} color={a === 'delete' ? 'red' : undefined} onClick={() => setAsked({ action: a, all: true })}>
                  {actions[a].name} all that are found
                </Menu.Item>
              ))}
              {scores && <Menu.Item onClick={() => setRescore({ all: true })}>Score all that are found again</Menu.Item>}
            </Menu.Dropdown>
          </Menu>
        </Group>
      </Paper>
      <RescoreDialog
        asked={
          rescore && {
            count: rescore.all ? total : n,
            ids: async () => (rescore.all ? await everything(filters, total, new AbortController().signal) : [...chosen.values()]).map((r) => r.rollout_id),
            close: () => setRescore(null),
            begun: () => {
              setRescore(null);
              clear();
            },
          }
        }
      />
      <Modal opened={asked !== null} onClose={close} title={asked && `${actions[asked.action].name} ${number(count)} rollout${count === 1 ? '' : 's'}?`} closeButtonProps={{ 'aria-label': 'Close' }}>
        {asked && (
          <Stack>
            <Text>{actions[asked.action].means}</Text>
            {progress && (
              <div role="status">
                <Progress value={(100 * progress.done) / Math.max(progress.of, 1)} aria-label="Progress" />
                <Text size="sm">
                  {number(progress.done)} of {number(progress.of)}
                </Text>
              </div>
            )}
            {outcome.length > 0 && (
              <Alert color="red" title="Not all of it worked">
                {outcome.slice(0, 5).map((l) => (
                  <div key={l}>{l}</div>
                ))}
                {outcome.length > 5 && `and ${outcome.length - 5} more`}
              </Alert>
            )}
            <Group justify="end">
              <Button variant="default" onClick={close} data-autofocus>
                {outcome.length > 0 ? 'Close' : 'Leave it'}
              </Button>
              {outcome.length === 0 && (
                <Button color={asked.action === 'delete' ? 'red' : undefined} loading={progress !== null} onClick={() => void go()}>
                  {actions[asked.action].name}
                </Button>
              )}
            </Group>
          </Stack>
        )}
      </Modal>
    </>
  );
}

/** Lists all that a question finds before the first is changed, for a change moves them. */
async function everything(filters: Filters, total: number, signal: AbortSignal): Promise<Browsed[]> {
  const out: Browsed[] = [];
  for (let offset = 0; offset < total; ) {
    const page = await get<BrowsePage>(`v1/agl/browse/rollouts${query({ ...filters, limit: 1000, offset })}`, signal);
    out.push(...page.items);
    offset += page.items.length;
    if (page.items.length === 0) break;
  }
  return out;
}
