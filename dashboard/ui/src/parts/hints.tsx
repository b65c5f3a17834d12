import { Alert, Anchor, List } from '@mantine/core';
import { Link } from 'react-router-dom';
import type { Hint, Verdict } from '../logic/verdict';

/** What keeps a run from learning, or from learning more; nothing when nothing does. */
export function Hints({ why, word }: { why: Hint[]; word: Verdict['word'] }) {
  const worst = why[0];
  if (worst === undefined) return null;
  return (
    <Alert color={worst.severity === 'bad' ? 'red' : 'yellow'} title={word === 'learning' || word === 'learned' ? 'What holds it back' : 'Why not'} mb="xs">
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
