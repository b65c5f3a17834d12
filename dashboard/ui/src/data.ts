// The questions that pages ask, each under the key by which the live stream
// finds it again.
import { keepPreviousData, useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useEffect, useMemo } from 'react';
import { get, query, send } from './api';
import type {
  Attempt,
  BrowsePage,
  Capabilities,
  Checkpoint,
  Explanation,
  Model,
  Overview,
  Page,
  PauseState,
  ResourcesUpdate,
  Rollout,
  Run,
  Span,
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

export function useCheckpoint(id: string) {
  return useQuery({
    queryKey: ['run', id, 'checkpoint'],
    queryFn: ({ signal }) => get<Checkpoint | null>(`${store}runs/${encodeURIComponent(id)}/checkpoints/latest`, signal),
  });
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

/** How many spans one request brings: the first ones are on the screen while the rest is on its way. */
const spansAtATime = 1000;

export function spansPath(rollout: string, attempt: string, limit = -1, offset = 0): string {
  return `${store}spans${query({ rollout_id: rollout, attempt_id: attempt, limit, offset, sort_by: 'sequence_id' })}`;
}

/** All spans of an attempt, as far as they have arrived. */
export function useSpans(rollout: string, attempt: string | undefined) {
  const q = useInfiniteQuery({
    queryKey: ['rollout', rollout, 'spans', attempt],
    queryFn: ({ signal, pageParam }) => get<Page<Span>>(spansPath(rollout, attempt!, spansAtATime, pageParam), signal),
    initialPageParam: 0,
    getNextPageParam: (last) => (last.offset + last.items.length < last.total && last.items.length > 0 ? last.offset + last.items.length : undefined),
    enabled: attempt !== undefined,
  });
  const { hasNextPage, isFetching, fetchNextPage } = q;
  useEffect(() => {
    if (hasNextPage && !isFetching) void fetchNextPage();
  }, [hasNextPage, isFetching, fetchNextPage]);
  const spans = useMemo(() => q.data?.pages.flatMap((p) => p.items) ?? [], [q.data]);
  return { spans, total: q.data?.pages[0]?.total ?? 0, error: q.error, isPending: q.isPending, loading: hasNextPage };
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
