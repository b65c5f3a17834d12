import { Alert, Anchor, Button, Checkbox, Group, Modal, Paper, Progress, Stack, Text, Textarea, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { post, remove } from '../api';
import { useCapabilities, useRescores } from '../data';
import { number } from '../logic/format';
import type { Rescoring } from '../types';
import { Status } from './bits';

interface Asked {
  /** How many rollouts are going to be scored, for the question. */
  count: number;
  /** Lists their ids once it is sure. */
  ids: () => Promise<string[]>;
  close: () => void;
  begun: () => void;
}

/** Asks by what rollouts are to be scored again, and begins it on the server. */
export function RescoreDialog({ asked }: { asked: Asked | null }) {
  return (
    <Modal opened={asked !== null} onClose={() => asked?.close()} title={asked && `Score ${number(asked.count)} rollout${asked.count === 1 ? '' : 's'} again?`} closeButtonProps={{ 'aria-label': 'Close' }} size="lg">
      {asked && <Question {...asked} />}
    </Modal>
  );
}

function Question({ ids, close, begun }: Asked) {
  const client = useQueryClient();
  const [set, setSet] = useState('');
  const [expression, setExpression] = useState('');
  const [unsuccessful, setUnsuccessful] = useState(false);
  const [busy, setBusy] = useState(false);
  const [wrong, setWrong] = useState('');
  const go = async () => {
    setBusy(true);
    setWrong('');
    try {
      await post<Rescoring>('v1/agl/rescores', { set: set.trim(), expression, unsuccessful, rollout_ids: await ids() });
      await client.invalidateQueries({ queryKey: ['rescores'] });
      begun();
    } catch (err) {
      setWrong(err instanceof Error ? err.message : String(err));
    }
    setBusy(false);
  };
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        void go();
      }}
    >
      <Stack>
        <Text>The server computes a new reward of each rollout that succeeded and keeps it as a set of its own. What agents gave stays as it is, and what has a reward in the set is passed over.</Text>
        <TextInput label="Name of the set" description="Letters, digits, dots, dashes and underscores" value={set} onChange={(e) => setSet(e.currentTarget.value)} data-autofocus required />
        <Textarea
          label="Expression (CEL)"
          description="A number, true or false, or a map of numbers by name, over reward, rewards, input, metadata, answer, messages, feedback, calls, status, mode, group, prompt_tokens, response_tokens, seconds"
          placeholder="reward * math.least(1.0, 20.0 / double(response_tokens))"
          value={expression}
          onChange={(e) => setExpression(e.currentTarget.value)}
          autosize
          minRows={2}
          styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)' } }}
          required
        />
        <Checkbox label="Also rollouts that ended without success" checked={unsuccessful} onChange={(e) => setUnsuccessful(e.currentTarget.checked)} />
        {wrong !== '' && (
          <Alert color="red" title="Nothing was begun">
            <div style={{ whiteSpace: 'pre-wrap' }}>{wrong}</div>
          </Alert>
        )}
        <Group justify="end">
          <Button variant="default" onClick={close}>
            Leave it
          </Button>
          <Button type="submit" loading={busy} disabled={set.trim() === '' || expression.trim() === ''}>
            Score again
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

/** What is being scored again, and what became of the last of it. */
export function Rescores() {
  const capabilities = useCapabilities();
  const offered = (capabilities.data?.rescore ?? []).length > 0;
  const list = useRescores(offered).data ?? [];
  const client = useQueryClient();
  const [hidden, setHidden] = useState<string[]>([]);
  const shown = list.filter((r) => !hidden.includes(r.rescore_id) && (r.status === 'running' || r === list[0]));
  return shown.map((r) => (
    <Paper key={r.rescore_id} withBorder p="xs" component="section" aria-label={`Set ${r.set}`} role="status">
      <Group gap="xs" justify="space-between">
        <Group gap="xs">
          <Status value={r.status} />
          <Text size="sm">
            Set <b>{r.set}</b>: {number(r.scored)} scored of {number(r.of)}
            {r.already > 0 && `, ${number(r.already)} had a reward in it`}
            {r.failed > 0 && `, ${number(r.failed)} failed`}
            {Object.entries(r.skipped).map(([why, n]) => `, ${number(n)} ${why}`)}
            {r.mean_new !== null && `; mean ${number(r.mean_new)}${r.mean_old === null ? '' : `, before ${number(r.mean_old)}`}`}
          </Text>
        </Group>
        {r.status === 'running' ? (
          <Button size="compact-sm" variant="default" onClick={() => void remove(`v1/agl/rescores/${encodeURIComponent(r.rescore_id)}`).then(() => client.invalidateQueries({ queryKey: ['rescores'] }))}>
            Stop
          </Button>
        ) : (
          <Anchor component="button" type="button" size="sm" onClick={() => setHidden([...hidden, r.rescore_id])}>
            Hide
          </Anchor>
        )}
      </Group>
      {r.status === 'running' && <Progress value={(100 * r.done) / Math.max(r.of, 1)} aria-label={`Progress of set ${r.set}`} mt={4} />}
      {(r.error !== '' || r.last_failure !== '') && (
        <Text size="xs" c="dimmed">
          {r.error || `Last failure: ${r.last_failure}`}
        </Text>
      )}
    </Paper>
  ));
}
