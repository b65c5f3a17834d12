// The questions that pages ask, each under the key by which the live stream
// finds it again.
import { keepPreviousData, useQueries, useQuery, useQueryClient, type UseQueryResult } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { get, query, send } from './api';
import { append, goesOn, join, type Log } from './logic/log';
import type {
  Attempt,
  BackendReport,
  BrowsePage,
  Capabilities,
  Check,
  Checkpoint,
  Explanation,
  History,
  LogLine,
  LogPage,
  Model,
  Overview,
  Page,
  PauseState,
  Pruning,
  Rescoring,
  ResourcesUpdate,
  Rollout,
  Run,
  SamplesPage,
  Span,
  SpanRow,
  Statistics,
  StepMetrics,
  Worker,
} from './types';

const store = 'v1/agl/';

export function useCapabilities() {
  return useQuery({ queryKey: ['capabilities'], queryFn: ({ signal }) => get<Capabilities>(`${store}capabilities`, signal), staleTime: Infinity });
}

export function useOverview() {
  return useQuery({ queryKey: ['overview'], queryFn: ({ signal }) => get<Overview>(`${store}overview`, signal) });
}

export function useStatistics() {
  return useQuery({ queryKey: ['overview', 'statistics'], queryFn: ({ signal }) => get<Statistics>(`${store}statistics`, signal) });
}

export function useRuns(limit = 200) {
  return useQuery({ queryKey: ['runs', limit], queryFn: ({ signal }) => get<Run[]>(`${store}runs?limit=${limit}`, signal) });
}

export function useRun(id: string) {
  return useQuery({ queryKey: ['run', id], queryFn: ({ signal }) => get<Run | null>(`${store}runs/${encodeURIComponent(id)}`, signal) });
}

export const metricsQuery = (id: string) => ({
  queryKey: ['run', id, 'metrics'],
  queryFn: ({ signal }: { signal: AbortSignal }) => get<StepMetrics[]>(`${store}runs/${encodeURIComponent(id)}/metrics`, signal),
});

export function useMetrics(id: string | undefined) {
  return useQuery({ ...metricsQuery(id ?? ''), enabled: id !== undefined });
}

/** How the tasks of a run went early and late. */
export function useSamples(id: string, asked: Filters, limit: number) {
  return useQuery({
    queryKey: ['run', id, 'samples', asked, limit],
    queryFn: ({ signal }) => get<SamplesPage>(`${store}runs/${encodeURIComponent(id)}/samples${query({ ...asked, limit })}`, signal),
    placeholderData: keepPreviousData,
  });
}

export function useCheckpoint(id: string) {
  return useQuery({
    queryKey: ['run', id, 'checkpoint'],
    queryFn: ({ signal }) => get<Checkpoint | null>(`${store}runs/${encodeURIComponent(id)}/checkpoints/latest`, signal),
  });
}

/** How many lines of a log are on the screen at first, and how many come at a time after that. */
const firstLines = 1000;
const moreLines = 10_000;

async function logPage(id: string, asked: Record<string, number | boolean>, signal: AbortSignal): Promise<LogPage> {
  return get<LogPage>(`${store}runs/${encodeURIComponent(id)}/log${query(asked)}`, signal);
}

/** The newest lines at first, and what came since each time it is asked again. */
async function readLog(id: string, known: Log | undefined, signal: AbortSignal): Promise<Log> {
  let log = known;
  for (;;) {
    if (log === undefined) {
      const part = await logPage(id, { newest: true, limit: firstLines }, signal);
      return { lines: part.lines, first: part.first, last: part.last };
    }
    const part = await logPage(id, { after: log.last, limit: moreLines }, signal);
    if (!goesOn(log, part)) {
      log = undefined;
      continue;
    }
    log = append(log, part);
    if (!part.more) return log;
  }
}

/** The log of a run: its newest lines at once, the older ones as soon as they have come, what is new when it is told of. */
export function useRunLog(id: string) {
  const client = useQueryClient();
  const key = ['log', id];
  const newest = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => readLog(id, client.getQueryData<Log>(key), signal),
    structuralSharing: false,
  });
  const from = newest.data?.lines[0]?.position;
  const first = newest.data?.first ?? 0;
  // Where the older lines end is settled when they are first asked for.
  const [before, setBefore] = useState<number>();
  if (before === undefined && from !== undefined && from > first) setBefore(from);
  const older = useQuery({
    queryKey: ['log before', id, before],
    queryFn: async ({ signal }) => {
      let lines: LogLine[] = [];
      for (let to = before!; ; to = lines[0]!.position) {
        const part = await logPage(id, { before: to, newest: true, limit: moreLines }, signal);
        lines = [...part.lines, ...lines];
        if (!part.more || part.lines.length === 0) return lines;
      }
    },
    enabled: before !== undefined,
    staleTime: Infinity,
    structuralSharing: false,
  });
  const lines = useMemo(() => (newest.data === undefined ? [] : join(older.data ?? [], newest.data)), [newest.data, older.data]);
  return { lines, dropped: Math.max(0, first - 1), error: newest.error ?? older.error, isPending: newest.isPending, loading: older.isFetching, refetch: () => void newest.refetch() };
}

export type Filters = Record<string, string | string[] | undefined>;

export const browseQuery = (filters: Filters, limit: number, offset: number) => ({
  queryKey: ['rollouts', filters, limit, offset],
  queryFn: ({ signal }: { signal: AbortSignal }) => get<BrowsePage>(`${store}browse/rollouts${query({ ...filters, limit, offset })}`, signal),
  placeholderData: keepPreviousData,
});

export function useBrowse(filters: Filters, limit: number, offset = 0, enabled = true) {
  return useQuery({ ...browseQuery(filters, limit, offset), enabled });
}

export function useRollout(id: string) {
  return useQuery({ queryKey: ['rollout', id], queryFn: ({ signal }) => get<Rollout | null>(`${store}rollouts/${encodeURIComponent(id)}`, signal) });
}

export function useAttempts(id: string) {
  return useQuery({
    queryKey: ['rollout', id, 'attempts'],
    queryFn: ({ signal }) => get<Page<Attempt>>(`${store}rollouts/${encodeURIComponent(id)}/attempts?limit=1000&sort_by=sequence_id`, signal),
  });
}

export function useExplanation(id: string, enabled: boolean) {
  return useQuery({
    queryKey: ['rollout', id, 'explain'],
    queryFn: ({ signal }) => get<Explanation>(`${store}rollouts/${encodeURIComponent(id)}/explain`, signal),
    enabled,
  });
}

export function spansPath(rollout: string, attempt: string, limit = -1, offset = 0): string {
  return `${store}spans${query({ rollout_id: rollout, attempt_id: attempt, limit, offset, sort_by: 'sequence_id' })}`;
}

/** How many spans in outline one request brings: the first ones are on the screen while the rest is on its way. */
const firstRows = 1000;
const moreRows = 10_000;
/** How many spans of an attempt are listed; a browser has no room for more. */
export const mostRows = 101_000;

const outlineQuery = (rollout: string, attempt: string | undefined, limit: number, offset: number) => ({
  queryKey: ['rollout', rollout, 'outline', attempt, offset],
  queryFn: ({ signal }: { signal: AbortSignal }) => get<Page<SpanRow>>(`${store}browse/spans${query({ rollout_id: rollout, attempt_id: attempt, limit, offset })}`, signal),
  enabled: attempt !== undefined,
});

/** The spans of an attempt in outline, as far as they have arrived. */
export function useOutline(rollout: string, attempt: string | undefined) {
  const first = useQuery(outlineQuery(rollout, attempt, firstRows, 0));
  const total = first.data?.total ?? 0;
  const offsets: number[] = [];
  for (let offset = firstRows; offset < Math.min(total, mostRows); offset += moreRows) offsets.push(offset);
  const rest = useQueries({ queries: offsets.map((offset) => outlineQuery(rollout, attempt, moreRows, offset)), combine: rowsOf });
  const rows = useMemo(() => [...(first.data?.items ?? []), ...rest.rows], [first.data, rest.rows]);
  return { rows, total, error: first.error ?? rest.error, isPending: first.isPending, loading: rest.isPending };
}

function rowsOf(parts: UseQueryResult<Page<SpanRow>>[]) {
  // Rows are shown in their order: those behind a part that is on its way wait for it.
  const arrived = parts.findIndex((p) => p.data === undefined);
  return {
    rows: parts.slice(0, arrived < 0 ? undefined : arrived).flatMap((p) => p.data!.items),
    isPending: parts.some((p) => p.isPending),
    error: parts.find((p) => p.error)?.error ?? null,
  };
}

/** How many whole spans one request brings; the server has a limit of its own. */
const wholeAtATime = 100;

/** Spans with all that they hold, in the order of the ids, as far as they have arrived. */
export function useWhole(rollout: string, attempt: string | undefined, ids: string[]) {
  const client = useQueryClient();
  const parts: string[][] = [];
  for (let i = 0; i < ids.length; i += wholeAtATime) parts.push(ids.slice(i, i + wholeAtATime));
  return useQueries({
    queries: parts.map((part) => ({
      queryKey: ['whole', rollout, attempt, part],
      queryFn: ({ signal }: { signal: AbortSignal }) => get<Span[]>(`${store}browse/spans/whole${query({ rollout_id: rollout, attempt_id: attempt, span_id: part })}`, signal),
      enabled: attempt !== undefined,
      // A span is written once. The last part grows with an attempt that runs;
      // what is known of it stays on the screen meanwhile.
      staleTime: Infinity,
      placeholderData: () => {
        const known = client.getQueriesData<Span[]>({ queryKey: ['whole', rollout, attempt] }).find(([key]) => (key[3] as string[])[0] === part[0]);
        return known?.[1];
      },
    })),
    combine: wholeOf,
  });
}

function wholeOf(parts: UseQueryResult<Span[]>[]) {
  return { spans: parts.flatMap((p) => p.data ?? []), isPending: parts.some((p) => p.isPending), error: parts.find((p) => p.error)?.error ?? null };
}

/** Whether a span is part of what was said and done, for people to read. */
export function speaks(row: SpanRow): boolean {
  return row.kind !== 'span' || row.status === 'ERROR';
}

/** The first spans of an attempt that speak, whole. */
export function useSpeaking(rollout: string, attempt: string | undefined, most: number) {
  const outline = useOutline(rollout, attempt);
  const whole = useWhole(rollout, attempt, useMemo(() => outline.rows.filter(speaks).slice(0, most).map((r) => r.span_id), [outline.rows, most]));
  return { spans: whole.spans, error: outline.error ?? whole.error };
}

/** The checks of the server; they read the whole database, so they are asked for by hand. */
export function useChecks() {
  return useQuery({ queryKey: ['checks'], queryFn: ({ signal }) => get<Check[]>(`${store}checks`, signal), enabled: false, retry: false });
}

/** What the server scores again, followed while something runs. */
export function useRescores(enabled: boolean) {
  return useQuery({
    queryKey: ['rescores'],
    queryFn: ({ signal }) => get<Rescoring[]>(`${store}rescores`, signal),
    enabled,
    refetchInterval: (q) => (q.state.data?.some((r) => r.status === 'running') ? 1000 : false),
  });
}

/** What the server deletes because it is old, followed while something runs. */
export function usePrunings() {
  return useQuery({
    queryKey: ['prunings'],
    queryFn: ({ signal }) => get<Pruning[]>(`${store}prunings`, signal),
    refetchInterval: (q) => (q.state.data?.some((p) => p.status === 'running') ? 1000 : false),
  });
}

export function useWorkers() {
  return useQuery({ queryKey: ['workers'], queryFn: ({ signal }) => get<Page<Worker>>(`${store}workers?limit=1000`, signal) });
}

export function useModels() {
  return useQuery({ queryKey: ['models'], queryFn: ({ signal }) => get<Model[]>(`${store}models`, signal) });
}

export function usePause() {
  return useQuery({ queryKey: ['models', 'pause'], queryFn: ({ signal }) => get<PauseState>('proxy/state', signal), refetchInterval: 5000 });
}

export function useResources(limit = 200) {
  return useQuery({
    queryKey: ['resources', limit],
    queryFn: ({ signal }) => get<Page<ResourcesUpdate>>(`${store}resources?limit=${limit}&sort_by=update_time&sort_order=desc`, signal),
  });
}

/** How the model backends fare now, and what happened to them. */
export function useBackends(every = 5000) {
  return useQuery({ queryKey: ['models', 'backends'], queryFn: ({ signal }) => get<BackendReport>(`${store}backends`, signal), refetchInterval: every });
}

/** How the server fared; what changes between two looks of a person is not worth more questions. */
export function useFared(window: 'recent' | 'day') {
  return useQuery({
    queryKey: ['fared', window],
    queryFn: ({ signal }) => get<History>(`${store}history?window=${window}`, signal),
    // A server that has just started has its first points soon.
    refetchInterval: (q) => ((q.state.data?.times.length ?? 0) < 3 ? 5000 : 30_000),
    staleTime: 15_000,
    structuralSharing: false,
  });
}

/** The text of the metrics route, every few seconds while somebody looks. */
export function useMetricsText() {
  return useQuery({
    queryKey: ['metrics-text'],
    queryFn: async ({ signal }) => {
      const res = await send('metrics', { signal });
      return { text: await res.text(), at: Date.now() / 1000 };
    },
    refetchInterval: 3000,
    structuralSharing: false,
  });
}
