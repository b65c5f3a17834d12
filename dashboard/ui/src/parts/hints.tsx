import { Alert, Anchor, List } from '@mantine/core';
import { Link } from 'react-router-dom';
import type { Hint, Severity, Verdict } from '../logic/verdict';

const colours: Record<Severity, string> = { bad: 'red', warn: 'yellow', note: 'gray' };

function title(worst: Severity, word: Verdict['word']): string {
  if (worst === 'note') return 'Small losses';
  return word === 'learning' || word === 'learned' ? 'What holds it back' : 'Why not';
}

/** What keeps a run from learning, or from learning more; nothing when nothing does. */
export function Hints({ why, word }: { why: Hint[]; word: Verdict['word'] }) {
  const worst = why[0];
  if (worst === undefined) return null;
  return (
    <Alert color={colours[worst.severity]} title={title(worst.severity, word)} mb="xs">
      <List size="sm">
        {why.map((h) => (
          <List.Item key={h.text}>
            {h.text}{' '}
            {h.filter && (
              <Anchor component={Link} to={`/rollouts?${new URLSearchParams(h.filter).toString()}`} size="sm">
                Show them
              </Anchor>
            )}
          </List.Item>
        ))}
      </List>
    </Alert>
  );
}
