// What can be done to rollouts, one after another, and what it must not be done to.
import { ApiError, get, post, remove } from '../api';
import type { Page, Rollout, Span } from '../types';

export type ActionName = 'retry' | 'cancel' | 'export' | 'delete';

export const actions: Record<ActionName, { name: string; past: string; means: string }> = {
  retry: { name: 'Retry', past: 'queued again', means: 'Finished rollouts get another attempt. Those that wait or work are left as they are.' },
  cancel: { name: 'Cancel', past: 'cancelled', means: 'Rollouts that are not finished become cancelled; their agents may still end what they do. Finished ones are left as they are.' },
  export: { name: 'Export', past: 'exported', means: 'They are written to a file, one a line (JSONL), with the spans of their latest attempt.' },
  delete: { name: 'Delete', past: 'deleted', means: 'They vanish with their attempts and spans. This cannot be undone.' },
};

/** Whether an action does something to a rollout in a status. */
export function applies(action: ActionName, status: string): boolean {
  const finished = status === 'succeeded' || status === 'failed' || status === 'cancelled';
  switch (action) {
    case 'retry':
      return finished;
    case 'cancel':
      return !finished;
    case 'export':
    case 'delete':
      return true;
  }
}

export interface Outcome {
  changed: number;
  skipped: number;
  /** What went wrong, by rollout. */
  lines: string[];
}

const atOnce = 6;

/** Runs an action over many rollouts, a few at a time, until it is done or stopped. */
export async function runAction(action: ActionName, list: Rollout[], signal: AbortSignal, tell: (p: { done: number; of: number; skipped: number }) => void): Promise<Outcome> {
  const todo = list.filter((r) => applies(action, r.status));
  const out: Outcome = { changed: 0, skipped: list.length - todo.length, lines: [] };
  const exported: string[] = new Array<string>(todo.length);
  let next = 0;
  let done = 0;
  const work = async () => {
    for (;;) {
      const i = next++;
      const r = todo[i];
      if (r === undefined || signal.aborted) return;
      try {
        const id = encodeURIComponent(r.rollout_id);
        if (action === 'retry') await post(`v1/agl/rollouts/${id}`, { status: 'requeuing' });
        else if (action === 'cancel') await post(`v1/agl/rollouts/${id}`, { status: 'cancelled' });
        else if (action === 'delete') await remove(`v1/agl/browse/rollouts/${id}`);
        else {
          const spans = r.attempt ? (await get<Page<Span>>(`v1/agl/spans?rollout_id=${id}&attempt_id=${encodeURIComponent(r.attempt.attempt_id)}&sort_by=sequence_id`, signal)).items : [];
          exported[i] = JSON.stringify({ ...r, spans });
        }
        out.changed++;
      } catch (err) {
        if (signal.aborted) return;
        out.lines.push(`${r.rollout_id}: ${err instanceof Error ? err.message : String(err)}`);
        if (err instanceof ApiError && err.status === 0) return; // the server is gone: the rest would fail, too
      }
      done++;
      tell({ done, of: todo.length, skipped: out.skipped });
    }
  };
  tell({ done, of: todo.length, skipped: out.skipped });
  await Promise.all(Array.from({ length: Math.min(atOnce, todo.length) }, work));
  if (signal.aborted && done < todo.length) out.lines.push(`stopped after ${done} of ${todo.length}`);
  if (action === 'export' && out.changed > 0 && !signal.aborted) save('rollouts.jsonl', exported.filter(Boolean).join('\n') + '\n', 'application/jsonl');
  return out;
}

/** Deletes runs, one after another; a server that is gone ends it. */
export async function deleteRuns(ids: string[], force: boolean): Promise<{ deleted: string[]; lines: string[] }> {
  const out = { deleted: [] as string[], lines: [] as string[] };
  for (const id of ids) {
    try {
      await remove(`v1/agl/runs/${encodeURIComponent(id)}${force ? '?force=true' : ''}`);
      out.deleted.push(id);
    } catch (err) {
      out.lines.push(`${id}: ${err instanceof Error ? err.message : String(err)}`);
      if (err instanceof ApiError && err.status === 0) break;
    }
  }
  return out;
}

/** Hands a text to the browser as a file. */
export function save(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const a = document.createElement('a');
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
