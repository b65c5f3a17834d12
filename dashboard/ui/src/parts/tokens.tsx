import { Button, Group, SegmentedControl, Stack, Text } from '@mantine/core';
import { useMemo, useState } from 'react';
import { useWhole } from '../data';
import { number, words } from '../logic/format';
import { advantageColour, type CallTokens, logprobColour, tokensOf } from '../logic/tokens';
import type { ExplainedAttempt, SpanRow } from '../types';
import { Empty, Failed, Loading, Status } from './bits';

/** How many calls are read at first, and how many more each time. */
const callsAtATime = 50;

interface Of {
  rollout: string;
  attempt: string | undefined;
  rows: SpanRow[];
  advantage: number | null;
  explained: ExplainedAttempt | undefined;
}

/** The tokens of the model calls of an attempt, coloured. */
export function Tokens({ rollout, attempt, rows, advantage, explained }: Of) {
  const [most, setMost] = useState(callsAtATime);
  const made = useMemo(() => rows.filter((r) => r.kind === 'call').map((r) => r.span_id), [rows]);
  const whole = useWhole(rollout, attempt, useMemo(() => made.slice(0, most), [made, most]));
  const calls = useMemo(() => tokensOf(whole.spans, explained), [whole.spans, explained]);
  if (whole.error) return <Failed error={whole.error} />;
  if (whole.isPending && calls.length === 0) return <Loading what="the tokens" />;
  return (
    <Stack gap="sm">
      <Coloured calls={calls} advantage={advantage} explained={explained} />
      {made.length > most && (
        <Button variant="default" w="fit-content" loading={whole.isPending} onClick={() => setMost(most + callsAtATime)}>
          Go on: {number(made.length - most)} more calls
        </Button>
      )}
    </Stack>
  );
}

function Coloured({ calls, advantage, explained }: { calls: CallTokens[]; advantage: number | null; explained: ExplainedAttempt | undefined }) {
  const [by, setBy] = useState('logprob');
  const [prompts, setPrompts] = useState('off');
  const withTokens = calls.filter((c) => c.answer.length > 0);
  if (withTokens.length === 0) {
    return <Empty title="No token ids were recorded">{calls.length === 0 ? 'The attempt made no model call.' : 'Its calls came without ids, so that they cannot be trained on. The tab Training says why.'}</Empty>;
  }
  const legend = {
    logprob: 'The warmer a token, the less the policy that wrote it expected it (log-probability 0 is plain, −4 and below full).',
    mask: 'Green tokens are trained on; what is plain is context, what is red is left out.',
    advantage: advantage === null ? 'There is no group to compare with, so there is no advantage to show.' : `Advantage of this rollout in its group: ${number(advantage)} (reward less the mean, by the standard deviation, as GRPO has it). Other methods weight it differently.`,
  }[by];
  return (
    <Stack gap="sm">
      <Group gap="sm">
        <SegmentedControl
          aria-label="Colour by"
          size="xs"
          value={by}
          onChange={setBy}
          data={[
            { value: 'logprob', label: 'Log-probability' },
            { value: 'mask', label: 'Mask' },
            { value: 'advantage', label: 'Advantage' },
          ]}
        />
        <SegmentedControl
          aria-label="Prompt tokens"
          size="xs"
          value={prompts}
          onChange={setPrompts}
          data={[
            { value: 'off', label: 'Answers' },
            { value: 'on', label: 'Prompt ids too' },
          ]}
        />
      </Group>
      <Text size="sm" c="dimmed">
        {legend}
      </Text>
      {withTokens.map((c, i) => {
        const joined = i > 0 && c.row !== null && withTokens[i - 1]!.row === c.row;
        const total = c.answer.reduce((a, t) => a + (t.logprob ?? 0), 0);
        const mismatch = explained?.calls.find((x) => x.span_id === c.span.span_id)?.mismatch;
        return (
          <section key={c.span.span_id} aria-label={`Tokens of call ${c.span.sequence_id}`}>
            <Group gap="xs" mb={2}>
              <Text size="sm" fw={600}>
                Call {c.span.sequence_id}
              </Text>
              <Text size="xs" c="dimmed">
                {number(c.prompt.length)} prompt, {number(c.answer.length)} answer, mean log-probability {number(total / c.answer.length)}
              </Text>
              {c.row !== null && <Status value={joined ? `goes on in row ${c.row}` : `begins row ${c.row}`} />}
              {!c.used && c.why !== '' && <Status value={`left out: ${words(c.why)}`} />}
            </Group>
            {mismatch && (
              <Text size="xs" c="dimmed">
                A row of its own: token {mismatch.position} is {mismatch.got} where call {mismatch.with_sequence_id} has {mismatch.want}.
              </Text>
            )}
            <div className="tokens">
              {prompts === 'on' && (
                <span className="prompt" title="The ids of the prompt">
                  {c.prompt.join(' ')} {'→ '}
                </span>
              )}
              {c.answer.map((t, j) => (
                <span
                  key={j}
                  title={`${t.id}${t.logprob === null ? '' : `, log-probability ${number(t.logprob)}, probability ${number(Math.exp(t.logprob))}`}`}
                  style={{ background: by === 'logprob' ? logprobColour(t.logprob) : by === 'mask' ? (c.used ? 'rgba(30,150,80,.25)' : 'rgba(210,50,50,.2)') : c.used ? advantageColour(advantage) : undefined }}
                >
                  {t.text.replaceAll('\n', '⏎\n')}
                </span>
              ))}
            </div>
          </section>
        );
      })}
    </Stack>
  );
}
