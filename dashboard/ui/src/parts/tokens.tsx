import { Anchor, Button, Group, SegmentedControl, Select, Stack, Text, UnstyledButton } from '@mantine/core';
import { useEffect, useMemo, useRef, useState } from 'react';
import { Link, useSearchParams } from 'react-router-dom';
import { useAddress } from './address';
import { useMetrics, useRun, useWhole } from '../data';
import { member, number, words } from '../logic/format';
import { signed } from '../logic/samples';
import { advantageColour, type CallTokens, furthest, gapColour, logprobColour, type Token, type Trained, trainedOf, trainedSpan, tokensOf, whyNoGap, withTrained } from '../logic/tokens';
import type { ExplainedAttempt, Rollout, SpanRow } from '../types';
import { Empty, Failed, Loading, Status } from './bits';

/** How many calls are read at first, and how many more each time. */
const callsAtATime = 50;

interface Of {
  of: Rollout;
  attempt: string | undefined;
  rows: SpanRow[];
  advantage: number | null;
  explained: ExplainedAttempt | undefined;
}

/** The tokens of the model calls of an attempt, coloured. */
export function Tokens({ of, attempt, rows, advantage, explained }: Of) {
  const [q] = useSearchParams();
  const [most, setMost] = useState(callsAtATime);
  const made = useMemo(() => rows.filter((r) => r.kind === 'call').map((r) => r.span_id), [rows]);
  // A link to a token reads on until its call is there.
  const wanted = made.indexOf((q.get('token') ?? '').split('.')[0]!) + 1;
  const shown = Math.max(most, wanted);
  const whole = useWhole(of.rollout_id, attempt, useMemo(() => made.slice(0, shown), [made, shown]));
  const kept = useWhole(of.rollout_id, attempt, useMemo(() => rows.filter((r) => r.name === trainedSpan).map((r) => r.span_id), [rows]));
  const trained = useMemo(() => kept.spans.map(trainedOf).reverse(), [kept.spans]); // the last one first
  const calls = useMemo(() => tokensOf(whole.spans, explained), [whole.spans, explained]);
  if (whole.error ?? kept.error) return <Failed error={whole.error ?? kept.error} />;
  if ((whole.isPending && calls.length === 0) || kept.isPending) return <Loading what="the tokens" />;
  return (
    <Stack gap="sm">
      <Coloured of={of} calls={calls} trained={trained} advantage={advantage} explained={explained} all={made.length <= shown} />
      {made.length > shown && (
        <Button variant="default" w="fit-content" loading={whole.isPending} onClick={() => setMost(shown + callsAtATime)}>
          Go on: {number(made.length - shown)} more calls
        </Button>
      )}
    </Stack>
  );
}

/** Which step's gap is shown, its sum, and the tokens where it is the largest. */
function Gap({ of, calls, trained, chosen, onChoose, onJump, explained, all }: { of: Rollout; calls: CallTokens[]; trained: Trained[]; chosen: Trained | undefined; onChoose: (id: string | null) => void; onJump: (token: string) => void; explained: ExplainedAttempt | undefined; all: boolean }) {
  const run = useRun(member(of.metadata, 'agl.run_id') ?? '');
  const metrics = useMetrics(run.data?.run_id);
  if (chosen === undefined) {
    if (run.isPending || (run.data && metrics.isPending)) return <Loading what="the run" />;
    return <Text role="note">{whyNoGap(of, run.data, metrics.data ?? [], explained?.detail ?? (explained?.reason === undefined ? '' : words(explained.reason)))}</Text>;
  }
  const far = furthest(calls, 5);
  return (
    <Stack gap={4}>
      {trained.length > 1 && (
        <Select aria-label="Trained at" size="xs" w={260} allowDeselect={false} value={chosen.spanID} onChange={onChoose} data={trained.map((t) => ({ value: t.spanID, label: `step ${t.step} of ${t.run}` }))} />
      )}
      <Text size="sm">
        {`Trained on at step ${chosen.step} of `}
        <Anchor component={Link} inherit to={`/runs/${encodeURIComponent(chosen.run)}?tab=batches&step=${chosen.step}`} className="mono">
          {chosen.run}
        </Anchor>
        {`: the gaps of ${number(chosen.tokens)} tokens sum to ${signed(chosen.sum)} nats, ${signed(chosen.tokens === 0 ? null : chosen.sum / chosen.tokens)} a token.`}
        {chosen.omitted > 0 && ` ${number(chosen.omitted)} of them are not listed by token, since there are so many.`}
      </Text>
      {far.length > 0 && (
        <Group gap="xs" component="nav" aria-label="Largest gaps">
          <Text size="sm">{all ? 'Largest:' : 'Largest so far:'}</Text>
          {far.map((f) => (
            <UnstyledButton key={`${f.call.span_id}.${f.position}`} onClick={() => onJump(`${f.call.span_id}.${f.position}`)}>
              <Text size="sm" td="underline" span className="mono" style={{ background: gapColour(f.token.gap) }}>
                {`${visible(f.token.text)} ${signed(f.token.gap)}`}
              </Text>
            </UnstyledButton>
          ))}
        </Group>
      )}
    </Stack>
  );
}

/** A text with its spaces and line ends shown, for where it stands alone. */
function visible(text: string): string {
  return text.replaceAll('\n', '⏎').replace(/^ | $/g, '␣');
}

function titleOf(t: Token): string {
  const parts = [String(t.id)];
  if (t.logprob !== null) parts.push(`log-probability ${number(t.logprob)}`, `probability ${number(Math.exp(t.logprob))}`);
  if (t.trained !== null) parts.push(`in training ${number(t.trained)}`);
  if (t.gap !== null) parts.push(`gap ${signed(t.gap)} nats`, `ratio ${number(Math.exp(-t.gap))}`);
  return parts.join(', ');
}

function Coloured({ of, calls: plain, trained, advantage, explained, all }: { of: Rollout; calls: CallTokens[]; trained: Trained[]; advantage: number | null; explained: ExplainedAttempt | undefined; all: boolean }) {
  const [q, change] = useAddress();
  const by = q.get('by') ?? 'logprob';
  const set = (name: string, value: string | null) => change({ [name]: value });
  const [prompts, setPrompts] = useState('off');
  const [chosenID, setChosen] = useState<string | null>(null);
  const chosen = trained.find((t) => t.spanID === chosenID) ?? trained[0];
  const calls = useMemo(() => withTrained(plain, chosen), [plain, chosen]);
  const box = useRef<HTMLDivElement>(null);
  const token = q.get('token');
  const there = calls.length;
  useEffect(() => {
    if (token === null) return;
    const el = box.current?.querySelector<HTMLElement>(`[data-token="${CSS.escape(token)}"]`);
    el?.scrollIntoView({ block: 'center' });
    el?.focus({ preventScroll: true });
  }, [token, there]);
  const withTokens = calls.filter((c) => c.answer.length > 0);
  if (withTokens.length === 0) {
    return <Empty title="No token ids were recorded">{calls.length === 0 ? 'The attempt made no model call.' : 'Its calls came without ids, so that they cannot be trained on. The tab Training says why.'}</Empty>;
  }
  const legend = {
    logprob: 'The warmer a token, the less the policy that wrote it expected it (log-probability 0 is plain, −4 and below full).',
    mask: 'Green tokens are trained on; what is plain is context, what is red is left out.',
    advantage: advantage === null ? 'There is no group to compare with, so there is no advantage to show.' : `Advantage of this rollout in its group: ${number(advantage)} (reward less the mean, by the standard deviation, as GRPO has it). Other methods weight it differently.`,
    gap: 'Log-probability when a token was sampled less that under the policy in training, when the step took its first gradient. Warm: the sampling policy was surer of the token; blue: less sure. Full at 1 nat.',
  }[by];
  return (
    <Stack gap="sm" ref={box}>
      <Group gap="sm">
        <SegmentedControl
          aria-label="Colour by"
          size="xs"
          value={by}
          onChange={(v) => set('by', v)}
          data={[
            { value: 'logprob', label: 'Log-probability' },
            { value: 'mask', label: 'Mask' },
            { value: 'advantage', label: 'Advantage' },
            { value: 'gap', label: 'Gap' },
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
      {by === 'gap' && <Gap of={of} calls={calls} trained={trained} chosen={chosen} onChoose={setChosen} onJump={(t) => set('token', t)} explained={explained} all={all} />}
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
                  data-token={`${c.span.span_id}.${j}`}
                  tabIndex={token === `${c.span.span_id}.${j}` ? 0 : undefined}
                  aria-current={token === `${c.span.span_id}.${j}` ? true : undefined}
                  title={titleOf(t)}
                  style={{ background: by === 'gap' ? gapColour(t.gap) : by === 'logprob' ? logprobColour(t.logprob) : by === 'mask' ? (c.used ? 'rgba(30,150,80,.25)' : 'rgba(210,50,50,.2)') : c.used ? advantageColour(advantage) : undefined }}
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
