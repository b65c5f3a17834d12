import { Button, Stack, Text } from '@mantine/core';
import { useState } from 'react';
import { type Candidate, depths } from '../logic/candidates';
import { number } from '../logic/format';
import { Diff } from './diff';

const width = 108;
const height = 74;

/** Candidates as a tree by their parents, the better the greener; choose one to read it. */
export function Candidates({ list }: { list: Candidate[] }) {
  const [chosen, setChosen] = useState<string | null>(null);
  const level = depths(list);
  const place = new Map<string, { x: number; y: number }>();
  const rows: Candidate[][] = [];
  for (const c of list) (rows[level.get(c.id) ?? 0] ??= []).push(c);
  const widest = Math.max(1, ...rows.map((r) => r.length));
  rows.forEach((row, d) => {
    // Children stand below their parents, as far as there is room.
    const above = (c: Candidate) => {
      const xs = c.parents.flatMap((p) => place.get(p)?.x ?? []);
      return xs.length === 0 ? 0 : xs.reduce((a, x) => a + x, 0) / xs.length;
    };
    [...row]
      .sort((a, b) => above(a) - above(b))
      .forEach((c, i) => place.set(c.id, { x: (i + (widest - row.length) / 2) * width + 54, y: d * height + 30 }));
  });
  const scores = list.map((c) => c.score).filter((s): s is number => s !== null);
  const low = Math.min(...scores);
  const high = Math.max(...scores);
  const shade = (s: number | null) => (s === null ? 'transparent' : `rgba(30,150,80,${(0.1 + 0.5 * (high > low ? (s - low) / (high - low) : 1)).toFixed(2)})`);
  const c = list.find((x) => x.id === chosen);
  const parent = list.find((x) => x.id === c?.parents[0]);
  return (
    <Stack gap="xs">
      <div style={{ overflow: 'auto' }} tabIndex={0} role="region" aria-label="Tree of candidates">
        <svg width={widest * width + 8} height={rows.length * height + 8} role="group" aria-label="Candidates by their parents">
          {list.flatMap((x) =>
            x.parents.map((p) => {
              const a = place.get(p);
              const b = place.get(x.id)!;
              return a && <line key={`${p} ${x.id}`} x1={a.x} y1={a.y + 16} x2={b.x} y2={b.y - 16} stroke="currentColor" strokeOpacity={0.4} />;
            }),
          )}
          {list.map((x) => {
            const { x: cx, y: cy } = place.get(x.id)!;
            return (
              <g key={x.id} role="button" tabIndex={0} aria-pressed={chosen === x.id} aria-label={`Candidate ${x.id}, score ${number(x.score)}`} style={{ cursor: 'pointer' }} onClick={() => setChosen(x.id)} onKeyDown={(e) => (e.key === 'Enter' || e.key === ' ') && setChosen(x.id)}>
                <rect x={cx - 46} y={cy - 16} width={92} height={32} rx={6} fill={shade(x.score)} stroke="currentColor" strokeWidth={chosen === x.id ? 2 : 0.6} />
                <text x={cx} y={cy + 4} textAnchor="middle" fontSize="12" fill="currentColor">
                  {x.id}: {number(x.score)}
                </text>
              </g>
            );
          })}
        </svg>
      </div>
      {c ? (
        Object.entries(c.templates).map(([name, text]) => (
          <div key={name}>
            <Text size="sm" fw={600}>
              {name} of candidate {c.id}
              {parent && `, beside its parent ${parent.id}`}
            </Text>
            <Diff before={parent?.templates[name] ?? text} after={text} label={`Template ${name}`} />
          </div>
        ))
      ) : (
        <Text c="dimmed" size="sm">
          Choose a candidate to read it. Scores are means on the validation tasks that it was tried on last.
        </Text>
      )}
      {c && (
        <Button size="compact-sm" variant="default" onClick={() => setChosen(null)} w="fit-content">
          Close
        </Button>
      )}
    </Stack>
  );
}
