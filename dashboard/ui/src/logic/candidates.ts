// Candidates of prompt searches, out of what their checkpoints keep: the state in
// which a step began, and what was done since.
export interface Candidate {
  id: string;
  parents: string[];
  score: number | null;
  templates: Record<string, string>;
}

function templateText(v: unknown): string {
  if (typeof v === 'string') return v;
  const t = v as { Template?: unknown } | null;
  return typeof t?.Template === 'string' ? t.Template : JSON.stringify(v);
}

function mean(list: unknown): number | null {
  const flat = (Array.isArray(list) ? list : []).map((x) => (Array.isArray(x) ? (x as unknown[])[0] : x) as unknown).filter((x): x is number => typeof x === 'number');
  return flat.length === 0 ? null : flat.reduce((a, b) => a + b, 0) / flat.length;
}

/** Reads the candidates of GEPA, or the prompts of APO; a state of something else has none. */
export function candidatesOf(checkpoint: unknown): Candidate[] {
  const s = ((checkpoint as { state?: unknown } | null)?.state ?? {}) as { candidates?: unknown; beam?: unknown; prompts?: unknown; best?: unknown };
  if (Array.isArray(s.candidates)) {
    return (s.candidates as { id?: number; parents?: number[] | null; templates?: Record<string, unknown>; scores?: unknown }[]).map((c, i) => ({
      id: String(c.id ?? i),
      parents: (c.parents ?? []).map(String),
      score: mean(c.scores),
      templates: Object.fromEntries(Object.entries(c.templates ?? {}).map(([k, v]) => [k, templateText(v)])),
    }));
  }
  if (Array.isArray(s.beam)) {
    // Searches of before versions had parents kept no more than the beam and the best.
    const kept = Array.isArray(s.prompts) ? (s.prompts as unknown[]) : [...(s.beam as unknown[]), ...(s.best ? [s.best] : [])];
    const seen = new Map<string, Candidate>();
    for (const p of kept as { version?: string; parent?: string; template?: unknown; score?: number | null }[]) {
      const id = p.version ?? '';
      seen.set(id, { id, parents: p.parent ? [p.parent] : [], score: p.score ?? seen.get(id)?.score ?? null, templates: { prompt: templateText(p.template) } });
    }
    return [...seen.values()];
  }
  return [];
}

/** How deep each candidate is below those without parents. */
export function depths(list: Candidate[]): Map<string, number> {
  const byID = new Map(list.map((c) => [c.id, c]));
  const out = new Map<string, number>();
  const depth = (id: string, path: Set<string>): number => {
    const known = out.get(id);
    if (known !== undefined) return known;
    const c = byID.get(id);
    if (!c || path.has(id)) return 0;
    path.add(id);
    const parents = c.parents.filter((p) => byID.has(p));
    const d = parents.length === 0 ? 0 : 1 + Math.max(...parents.map((p) => depth(p, path)));
    path.delete(id);
    out.set(id, d);
    return d;
  };
  for (const c of list) depth(c.id, new Set());
  return out;
}
