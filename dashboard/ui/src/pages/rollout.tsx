import { Alert, Anchor, Button, Collapse, Group, Modal, Stack, Table, Tabs, Text, Tooltip } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useMemo, useState } from 'react';
import { Link, useNavigate, useParams, useSearchParams } from 'react-router-dom';
import { useAddress } from '../parts/address';
import { asCurl } from '../api';
import { mostRows, spansPath, speaks, useAttempts, useBrowse, useCapabilities, useExplanation, useOutline, useRollout, useWhole } from '../data';
import { actions, type ActionName, applies, runAction } from '../logic/actions';
import { conversation, type Message, type Part, type Turn } from '../logic/conversation';
import { duration, member, moment, number, task, words } from '../logic/format';
import { groupAdvantage } from '../logic/tokens';
import { Copy, Empty, Failed, ID, Json, Loading, PageTitle, Status, When } from '../parts/bits';
import { useNow } from '../parts/now';
import { Timeline } from '../parts/timeline';
import { Tokens } from '../parts/tokens';
import type { Browsed, ExplainedAttempt, Explanation, Rollout, Span, SpanRow } from '../types';

/** How the server calls the attempt that is shown unless another one is chosen. */
const latest = 'latest';

export function Component() {
  const { id = '' } = useParams();
  const [q] = useSearchParams();
  const rollout = useRollout(id);
  // Asked for at the same time; the page takes them up once it knows that there is a rollout.
  useAttempts(id);
  useExplanation(id, true);
  useOutline(id, q.get('attempt') ?? latest);
  if (rollout.error) return <Failed error={rollout.error} retry={() => void rollout.refetch()} />;
  if (rollout.isPending) return <Loading what="the rollout" />;
  if (rollout.data === null) {
    return (
      <Empty title={`There is no rollout ${id}`}>
        It may have been deleted.{' '}
        <Anchor component={Link} to="/rollouts">
          All rollouts
        </Anchor>
      </Empty>
    );
  }
  return <Shown key={id} rollout={rollout.data} />;
}

function Shown({ rollout }: { rollout: Rollout }) {
  const id = rollout.rollout_id;
  const [q, change] = useAddress();
  const attempts = useAttempts(id);
  const explanation = useExplanation(id, true);
  const list = attempts.data?.items ?? [];
  const attemptID = q.get('attempt') ?? list.at(-1)?.attempt_id;
  // Its spans need not wait for its id.
  const asked = q.get('attempt') ?? latest;
  const outline = useOutline(id, asked);
  const explained = explanation.data?.attempts.find((a) => a.attempt_id === attemptID);
  const members = useGroup(rollout);
  const tab = q.get('tab') ?? 'conversation';
  const set = (name: string, value: string) => change({ [name]: value });
  const panel = (body: () => ReactNode) => (outline.error ? <Failed error={outline.error} /> : outline.isPending ? <Loading what="the spans" /> : body());
  const advantage = groupAdvantage(
    members.map((m) => m.digest.reward),
    members.findIndex((m) => m.rollout_id === id),
  );
  return (
    <Stack gap="sm">
      <Head rollout={rollout} explained={explained} members={members} />
      {explanation.data && <Training explanation={explanation.data} explained={explained} mode={rollout.mode} brief />}
      {list.length > 1 && (
        <Tabs value={attemptID ?? null} onChange={(v) => v !== null && set('attempt', v)} variant="pills">
          <Tabs.List aria-label="Attempts">
            {list.map((a) => (
              <Tabs.Tab key={a.attempt_id} value={a.attempt_id}>
                Attempt {a.sequence_id}: {words(a.status)}
              </Tabs.Tab>
            ))}
          </Tabs.List>
          {list.map((a) => (
            <Tabs.Panel key={a.attempt_id} value={a.attempt_id} aria-label={`Attempt ${a.sequence_id}`}>
              <Text size="sm" mt="xs">
                Started {moment(a.start_time)}, took {duration((a.end_time ?? a.last_heartbeat_time ?? a.start_time) - a.start_time)}
                {a.worker_id !== null && `, by ${a.worker_id}`}
              </Text>
            </Tabs.Panel>
          ))}
        </Tabs>
      )}
      {attempts.error && <Failed error={attempts.error} />}
      <Tabs value={tab} onChange={(v) => v !== null && set('tab', v)} keepMounted={false}>
        <Tabs.List aria-label="What to see of the attempt">
          <Tabs.Tab value="conversation">Conversation</Tabs.Tab>
          <Tabs.Tab value="timeline">Timeline{outline.total > 0 && ` (${number(outline.total)})`}</Tabs.Tab>
          <Tabs.Tab value="tokens">Tokens</Tabs.Tab>
          <Tabs.Tab value="rewards">Rewards</Tabs.Tab>
          <Tabs.Tab value="training">Training</Tabs.Tab>
          <Tabs.Tab value="raw">Raw</Tabs.Tab>
        </Tabs.List>
        {outline.total > mostRows && <Alert color="orange">{`The attempt has ${number(outline.total)} spans; the first ${number(mostRows)} are listed.`}</Alert>}
        {outline.loading && (
          <Text size="xs" c="dimmed" role="status" mt={4}>
            {number(outline.rows.length)} of {number(outline.total)} spans so far …
          </Text>
        )}
        <Tabs.Panel value="conversation" pt="sm">
          {panel(() => (
            <Conversation key={asked} rollout={id} attempt={asked} rows={outline.rows} />
          ))}
        </Tabs.Panel>
        <Tabs.Panel value="timeline" pt="sm">
          {panel(() => (
            <Timeline key={asked} rollout={id} attempt={asked} rows={outline.rows} complete={!outline.loading} />
          ))}
        </Tabs.Panel>
        <Tabs.Panel value="tokens" pt="sm">
          {panel(() => (
            <Tokens key={asked} of={rollout} attempt={asked} rows={outline.rows} advantage={advantage} explained={explained} />
          ))}
        </Tabs.Panel>
        <Tabs.Panel value="rewards" pt="sm">
          {panel(() => (
            <Rewards rows={outline.rows} explained={explained} />
          ))}
        </Tabs.Panel>
        <Tabs.Panel value="training" pt="sm">
          {explanation.error ? <Failed error={explanation.error} /> : explanation.data ? <Training explanation={explanation.data} explained={explained} mode={rollout.mode} /> : <Loading what="what training makes of it" />}
        </Tabs.Panel>
        <Tabs.Panel value="raw" pt="sm">
          <Raw rollout={rollout} attempt={attemptID} rows={outline.rows} />
        </Tabs.Panel>
      </Tabs>
    </Stack>
  );
}

/** The other rollouts of the group, in the order of its members. */
function useGroup(rollout: Rollout): Browsed[] {
  const m = rollout.metadata;
  const group = member(m, 'agl.group');
  const run = member(m, 'agl.run_id');
  const known = group !== undefined && run !== undefined;
  const found = useBrowse(
    {
      run_id: run,
      group,
      step: member(m, 'agl.step'),
      // Validation has groups of the same names.
      mode_in: [rollout.mode ?? 'none'],
      // Members are asked for together; this keeps the search short in a long run.
      from: String(Math.floor(rollout.start_time) - 600),
      to: String(Math.ceil(rollout.start_time) + 600),
    },
    200,
    0,
    known,
  );
  return useMemo(() => {
    if (!known) return [];
    return [...(found.data?.items ?? [])].sort((a, b) => Number(a.metadata?.['agl.member'] ?? 0) - Number(b.metadata?.['agl.member'] ?? 0));
  }, [known, found.data]);
}

function Head({ rollout, explained, members }: { rollout: Rollout; explained: ExplainedAttempt | undefined; members: Browsed[] }) {
  const now = useNow();
  const id = rollout.rollout_id;
  const m = rollout.metadata;
  const run = member(m, 'agl.run_id');
  const group = member(m, 'agl.group');
  const step = member(m, 'agl.step');
  const at = members.findIndex((r) => r.rollout_id === id);
  const neighbour = (r: Browsed | undefined, name: string, sign: string) => (
    <Tooltip label={r ? `${name} of the group` : 'none'}>
      {r ? (
        <Button component={Link} to={`/rollouts/${encodeURIComponent(r.rollout_id)}`} size="compact-sm" variant="default" aria-label={`${name} rollout of the group`}>
          {sign}
        </Button>
      ) : (
        <Button size="compact-sm" variant="default" disabled aria-label={`No ${name.toLowerCase()} rollout in the group`}>
          {sign}
        </Button>
      )}
    </Tooltip>
  );
  return (
    <div>
      <PageTitle right={<Actions rollout={rollout} />}>
        <Group gap="xs">
          <ID value={id} /> <Status value={rollout.status} size="lg" />
        </Group>
      </PageTitle>
      <Text fw={500} mb="xs" lineClamp={4} title={task(rollout.input, 2000)}>
        {task(rollout.input, 600)}
      </Text>
      <Group gap="lg" wrap="wrap" mb="xs">
        <Fact name="Reward">{number(explained?.reward)}</Fact>
        <Fact name="Mode">{rollout.mode ?? '–'}</Fact>
        <Fact name="Took">{duration((rollout.end_time ?? now) - rollout.start_time)}</Fact>
        <Fact name="Started">
          <When t={rollout.start_time} />
        </Fact>
        {run !== undefined && (
          <Fact name="Run">
            <Anchor component={Link} to={`/runs/${encodeURIComponent(run)}`}>
              {run}
            </Anchor>
          </Fact>
        )}
        {step !== undefined && <Fact name="Step">{step}</Fact>}
        {group !== undefined && run !== undefined && (
          <Fact name="Group">
            <Group gap={6}>
              <Anchor component={Link} to={`/groups?run=${encodeURIComponent(run)}&group=${encodeURIComponent(group)}${step === undefined ? '' : `&step=${step}`}&mode=${rollout.mode ?? 'none'}`}>
                {group}
              </Anchor>
              {members.length > 1 && at >= 0 && (
                <>
                  {neighbour(members[at - 1], 'Previous', '‹')}
                  <Text size="sm">
                    {at + 1} of {members.length}
                  </Text>
                  {neighbour(members[at + 1], 'Next', '›')}
                </>
              )}
            </Group>
          </Fact>
        )}
        {rollout.resources_id !== null && (
          <Fact name="Resources">
            <Anchor component={Link} to={`/resources/${encodeURIComponent(rollout.resources_id)}`}>
              {rollout.resources_id}
            </Anchor>
          </Fact>
        )}
      </Group>
    </div>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <Text size="xs" c="dimmed">
        {name}
      </Text>
      <Text size="sm" component="div">
        {children}
      </Text>
    </div>
  );
}

function Actions({ rollout }: { rollout: Rollout }) {
  const capabilities = useCapabilities();
  const client = useQueryClient();
  const navigate = useNavigate();
  const [asked, setAsked] = useState<ActionName | null>(null);
  const [busy, setBusy] = useState(false);
  const [wrong, setWrong] = useState('');
  const offered = (['retry', 'cancel', 'delete'] as const).filter((a) => applies(a, rollout.status) && (a !== 'delete' || capabilities.data?.delete));
  const go = async (a: ActionName) => {
    setBusy(true);
    const out = await runAction(a, [rollout], new AbortController().signal, () => undefined);
    setBusy(false);
    if (out.lines.length > 0) {
      setWrong(out.lines.join('; '));
      return;
    }
    setAsked(null);
    if (a === 'delete') await navigate('/rollouts');
    await client.invalidateQueries();
  };
  return (
    <Group gap="xs">
      {offered.map((a) => (
        <Button key={a} size="compact-sm" variant="default" color={a === 'delete' ? 'red' : undefined} onClick={() => setAsked(a)}>
          {actions[a].name}
        </Button>
      ))}
      <Button size="compact-sm" variant="default" onClick={() => void runAction('export', [rollout], new AbortController().signal, () => undefined)}>
        Export
      </Button>
      <Modal opened={asked !== null} onClose={() => setAsked(null)} title={asked && `${actions[asked].name} this rollout?`} closeButtonProps={{ 'aria-label': 'Close' }}>
        <Stack>
          <Text>{asked && actions[asked].means}</Text>
          {wrong !== '' && <Alert color="red">{wrong}</Alert>}
          <Group justify="end">
            <Button variant="default" onClick={() => setAsked(null)} data-autofocus>
              Leave it
            </Button>
            <Button loading={busy} color={asked === 'delete' ? 'red' : undefined} onClick={() => asked && void go(asked)}>
              {asked && actions[asked].name}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </Group>
  );
}

/** How many spans that speak are read at first, and how many more each time. */
const saidFirst = 50;
const saidMore = 300;

function Conversation({ rollout, attempt, rows }: { rollout: string; attempt: string | undefined; rows: SpanRow[] }) {
  const [most, setMost] = useState(saidFirst);
  const speaking = useMemo(() => rows.filter(speaks), [rows]);
  const whole = useWhole(rollout, attempt, useMemo(() => speaking.slice(0, most).map((r) => r.span_id), [speaking, most]));
  const turns = useMemo(() => conversation(whole.spans), [whole.spans]);
  if (whole.error) return <Failed error={whole.error} />;
  if (turns.length === 0) {
    if (whole.isPending) return <Loading what="what was said" />;
    return (
      <Empty title="Nobody has said anything in this attempt">
        No model call, message or reward was recorded{rows.length > 0 ? `; its ${number(rows.length)} spans are in the timeline` : ''}.
      </Empty>
    );
  }
  return (
    <div>
      {turns.map((t) => (
        <TurnShown key={t.key} turn={t} />
      ))}
      {speaking.length > most && (
        <Button variant="default" loading={whole.isPending} onClick={() => setMost(most + saidMore)}>
          Go on: {number(speaking.length - most)} more calls, messages and rewards
        </Button>
      )}
    </div>
  );
}

function TurnShown({ turn }: { turn: Turn }) {
  switch (turn.kind) {
    case 'thread':
      return (
        <Text c="dimmed" size="sm" my="md" ta="center">
          — another conversation begins here, with call {turn.span.sequence_id} —
        </Text>
      );
    case 'reward':
      return (
        <div className="turn" data-role="reward">
          <Text size="xs" c="dimmed">
            reward
          </Text>
          {turn.rewards!.map(([name, value]) => (
            <Text key={name} fw={600}>
              {name}: {number(value)}
            </Text>
          ))}
        </div>
      );
    case 'note':
      return (
        <div className="turn" data-role="note">
          <Text size="xs" c="dimmed">
            message of the agent
          </Text>
          <div className="said">{turn.text}</div>
        </div>
      );
    case 'exception':
      return (
        <div className="turn" data-role="exception">
          <Text size="xs" c="dimmed">
            error in {turn.span.name}
          </Text>
          <div className="said">{turn.text}</div>
        </div>
      );
    case 'message':
      return <Said message={turn.message!} answer={turn.answer === true} span={turn.span} />;
  }
}

function Said({ message, answer, span }: { message: Message; answer: boolean; span: Span }) {
  const [open, setOpen] = useState(false);
  const problem = span.attributes['agentlightning.call.problem'];
  const tokens = span.attributes['gen_ai.usage.output_tokens'] ?? span.attributes['gen_ai.usage.completion_tokens'];
  return (
    <div className="turn" data-role={message.role}>
      <Group gap="xs">
        <Text size="xs" c="dimmed">
          {message.role === 'tool' ? `result of the tool${message.name === '' ? '' : ` ${message.name}`}` : message.role}
          {answer && ` · call ${span.sequence_id} · ${duration((span.end_time ?? 0) - (span.start_time ?? 0))}${typeof tokens === 'number' ? ` · ${number(tokens)} tokens` : ''}`}
        </Text>
        {answer && typeof problem === 'string' && problem !== '' && <Status value={`left out: ${words(problem)}`} />}
      </Group>
      {message.reasoning !== '' && (
        <>
          <Button variant="subtle" size="compact-xs" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? 'Hide the reasoning' : `Reasoning, ${number(message.reasoning.length)} characters`}
          </Button>
          <Collapse expanded={open}>
            <pre className="code">{message.reasoning}</pre>
          </Collapse>
        </>
      )}
      {message.parts.map((p, i) => (
        <PartShown key={i} part={p} />
      ))}
      {message.toolCalls.map((c, i) => (
        <pre className="code" key={i} aria-label={`Call of the tool ${c.name}`}>
          {c.name}({pretty(c.arguments)})
        </pre>
      ))}
      {message.parts.length === 0 && message.toolCalls.length === 0 && message.reasoning === '' && <Text c="dimmed">(nothing)</Text>}
    </div>
  );
}

function pretty(json: string): string {
  try {
    const v = JSON.parse(json) as unknown;
    const short = JSON.stringify(v);
    return short.length < 80 ? short : JSON.stringify(v, null, 2);
  } catch {
    return json;
  }
}

function PartShown({ part }: { part: Part }) {
  if (part.type === 'text') return <div className="said">{part.text}</div>;
  if (part.type === 'other') return <pre className="code">{part.json}</pre>;
  // Pictures elsewhere are not fetched: nothing leaves this server.
  if (part.url.startsWith('data:image/')) return <img src={part.url} alt="part of the message" style={{ maxWidth: 'min(100%, 480px)', maxHeight: 360 }} />;
  return <Text c="dimmed">Image at {part.url} (not loaded: it is not on this server)</Text>;
}

function Rewards({ rows, explained }: { rows: SpanRow[]; explained: ExplainedAttempt | undefined }) {
  const rewards = useMemo(() => rows.flatMap((s) => (s.rewards ?? []).map((r) => ({ s, ...r }))), [rows]);
  if (rewards.length === 0) return <Empty title="This attempt has no reward">Without one it is not trained on. The agent returns a number, or emits a reward span.</Empty>;
  return (
    <Table>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Set</Table.Th>
          <Table.Th>Reward</Table.Th>
          <Table.Th className="num">Value</Table.Th>
          <Table.Th>From</Table.Th>
          <Table.Th>When</Table.Th>
          <Table.Th>Counts</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {rewards.map(({ s, name, value }) => (
          <Table.Tr key={`${s.span_id} ${name}`}>
            <Table.Td>{s.reward_set ?? 'of the agent'}</Table.Td>
            <Table.Td>{name}</Table.Td>
            <Table.Td className="num">{number(value)}</Table.Td>
            <Table.Td>
              span {s.sequence_id}, {s.name} <Copy value={s.span_id} label={`Copy ${s.span_id}`} />
            </Table.Td>
            <Table.Td>{moment(s.start_time)}</Table.Td>
            <Table.Td>{explained?.reward_span === s.span_id ? 'the final reward: training reads it' : s.reward_set === undefined ? 'an earlier reward' : 'where the set is asked for'}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

/** What became training data, and if nothing did, why. */
function Training({ explanation, explained, mode, brief }: { explanation: Explanation; explained: ExplainedAttempt | undefined; mode: string | null; brief?: boolean }) {
  const s = explanation.sums;
  const used = s.rows > 0;
  const [most, setMost] = useState(200);
  const reasons = [...Object.entries(s.attempt_reasons), ...Object.entries(s.reasons)];
  if (brief && (used || explanation.attempts.length === 0 || !['succeeded', 'failed', 'cancelled'].includes(explanation.status))) return null;
  return (
    <Stack gap="sm">
      <Alert color={used ? 'teal' : 'orange'} title={used ? `${number(s.rows)} training row${s.rows === 1 ? '' : 's'} with ${number(s.tokens)} sampled tokens` : 'Nothing of this rollout can be trained on'}>
        {used && (mode === 'val' || mode === 'test') && <div>Algorithms do not train on rollouts of {mode === 'val' ? 'validation' : 'tests'}; this is what it would give.</div>}
        {used && s.calls_used === s.calls && `All ${number(s.calls)} model calls are used.`}
        {used && s.calls_used < s.calls && `${number(s.calls_used)} of ${number(s.calls)} model calls are used.`}
        {reasons.map(([why, n]) => (
          <div key={why}>
            {words(why)}: {number(n)}
          </div>
        ))}
        {explained?.detail && <div>{explained.detail}</div>}
        {explanation.advice.map((a) => (
          <div key={a}>{a}</div>
        ))}
      </Alert>
      {!brief && explained && (
        <div style={{ overflowX: 'auto' }} tabIndex={0} role="region" aria-label="Model calls">
          <Table>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Call</Table.Th>
                <Table.Th>Model</Table.Th>
                <Table.Th className="num">Prompt</Table.Th>
                <Table.Th className="num">Answer</Table.Th>
                <Table.Th>Log-probabilities</Table.Th>
                <Table.Th>Row</Table.Th>
                <Table.Th>Used</Table.Th>
                <Table.Th>Why not, or why a new row</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {explained.calls.slice(0, most).map((c) => (
                <Table.Tr key={c.span_id}>
                  <Table.Td>{c.sequence_id}</Table.Td>
                  <Table.Td>
                    {c.model ?? '–'}, version {c.version}
                  </Table.Td>
                  <Table.Td className="num">{number(c.prompt_tokens)}</Table.Td>
                  <Table.Td className="num">{number(c.response_tokens)}</Table.Td>
                  <Table.Td>{c.logprobs ? 'yes' : 'no'}</Table.Td>
                  <Table.Td>{c.row ?? '–'}</Table.Td>
                  <Table.Td>{c.used ? 'yes' : 'no'}</Table.Td>
                  <Table.Td>{c.detail ?? (c.reason ? words(c.reason) : c.mismatch ? `token ${c.mismatch.position} differs from call ${c.mismatch.with_sequence_id}` : '')}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
          {explained.calls.length > most && (
            <Button variant="default" mt="xs" onClick={() => setMost(most + 1000)}>
              Show more of the {number(explained.calls.length)} calls
            </Button>
          )}
        </div>
      )}
    </Stack>
  );
}

function Raw({ rollout, attempt, rows }: { rollout: Rollout; attempt: string | undefined; rows: SpanRow[] }) {
  const paths: [string, string][] = [[`v1/agl/rollouts/${encodeURIComponent(rollout.rollout_id)}`, 'the rollout']];
  if (attempt !== undefined) paths.push([spansPath(rollout.rollout_id, attempt), 'its spans'], [`v1/agl/rollouts/${encodeURIComponent(rollout.rollout_id)}/explain`, 'what training makes of it']);
  const [most, setMost] = useState(20);
  const whole = useWhole(rollout.rollout_id, attempt, useMemo(() => rows.slice(0, most).map((r) => r.span_id), [rows, most]));
  return (
    <Stack gap="sm">
      {paths.map(([path, what]) => (
        <Group key={path} gap="xs" wrap="nowrap">
          <pre className="code" style={{ flex: 1, margin: 0 }}>
            {asCurl(path)}
          </pre>
          <Copy value={asCurl(path)} label={`Copy the command for ${what}`} />
        </Group>
      ))}
      <Json value={rollout} label="Rollout as JSON" />
      {whole.error ? <Failed error={whole.error} /> : <Json value={whole.spans} label="Spans as JSON" />}
      {most < rows.length && (
        <Button variant="default" loading={whole.isPending} onClick={() => setMost(most + 200)}>
          Show more of the {number(rows.length)} spans
        </Button>
      )}
    </Stack>
  );
}
