import { diffLines } from '../logic/diff';

/** Two texts as one, with what was taken away and what was added. */
export function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  const lines = diffLines(before, after);
  const changed = lines.some((l) => l.kind !== 'same');
  return (
    <pre className="code diff" tabIndex={0} aria-label={label}>
      {lines.map((l, i) => (
        <div key={i} className={l.kind}>
          {l.kind === 'removed' ? '− ' : l.kind === 'added' ? '+ ' : '  '}
          {l.text}
        </div>
      ))}
      {!changed && <div className="dim">(no difference)</div>}
    </pre>
  );
}
