// What the list of rollouts shows, as it stands in the address of the page.
import type { Filters } from '../data';

/** Filters of the page, by their name in its address, and what the server calls them. */
export const filterNames = {
  id: 'id',
  text: 'text',
  tag: 'tag',
  status: 'status_in',
  mode: 'mode_in',
  attempt_status: 'attempt_status_in',
  run_id: 'run_id',
  step: 'step',
  group: 'group',
  resources_id: 'resources_id',
  worker_id: 'worker_id',
  model: 'model',
  problem: 'problem',
  rewarded: 'rewarded',
  reward_min: 'reward_min',
  reward_max: 'reward_max',
  from: 'from',
  to: 'to',
} as const;

export type FilterName = keyof typeof filterNames;

const lists = new Set<FilterName>(['status', 'mode', 'attempt_status']);

export function isList(name: FilterName): boolean {
  return lists.has(name);
}

/** Reads the address; `since` is how many seconds back the list goes. */
export function readFilters(q: URLSearchParams, now: number): Filters {
  const out: Filters = {};
  for (const [name, wire] of Object.entries(filterNames) as [FilterName, string][]) {
    if (isList(name)) {
      const values = q.getAll(name).filter(Boolean);
      if (values.length > 0) out[wire] = values;
    } else {
      const value = q.get(name);
      if (value !== null && value !== '') out[wire] = value;
    }
  }
  const since = Number(q.get('since'));
  // To the minute, so that the question stays the same for a while.
  if (since > 0 && out['from'] === undefined) out['from'] = String(Math.floor((now - since) / 60) * 60);
  const sort = q.get('sort');
  if (sort !== null && sort !== '') {
    out['sort_by'] = sort.replace(/^-/, '');
    out['sort_order'] = sort.startsWith('-') ? 'desc' : 'asc';
  }
  return out;
}

/** The filters that are set, for people to see and to take away. */
export function activeFilters(q: URLSearchParams): { name: string; value: string }[] {
  const out: { name: string; value: string }[] = [];
  for (const name of [...(Object.keys(filterNames) as FilterName[]), 'since']) {
    for (const value of q.getAll(name)) if (value !== '') out.push({ name, value });
  }
  return out;
}

/** The sort after a click on a column: up, down, and back to the newest first. */
export function nextSort(current: string | null, column: string): string | null {
  if (current === `-${column}`) return column;
  if (current === column) return null;
  return `-${column}`;
}

/** Which pages of the list the rows on the screen are on. */
export function pagesOf(first: number, last: number, size: number): number[] {
  const out: number[] = [];
  for (let p = Math.floor(Math.max(0, first) / size); p <= Math.floor(Math.max(0, last) / size); p++) out.push(p);
  return out;
}
