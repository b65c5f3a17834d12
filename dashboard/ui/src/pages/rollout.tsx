import { Alert, Anchor, Button, Collapse, Grid, Group, Menu, Modal, SegmentedControl, Stack, Table, Tabs, Text, Tooltip } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useVirtualizer } from '@tanstack/react-virtual';
import { type ReactNode, useMemo, useRef, useState } from 'react';
import { Link, useNavigate, useParams, useSearchParams } from 'react-router-dom';
import { asCurl } from '../api';
import { spansPath, useAttempts, useBrowse, useCapabilities, useExplanation, useRollout, useSpans } from '../data';
import { actions, type ActionName, applies, runAction, save } from '../logic/actions';
import { conversation, isCall, type Message, type Part, rewardsOf, type Turn } from '../logic/conversation';
import { duration, member, moment, number, task, words } from '../logic/format';
import { asDot, asSVG, tree } from '../logic/spantree';
import { advantageColour, type CallTokens, groupAdvantage, logprobColour, tokensOf } from '../logic/tokens';
import { Copy, Empty, Failed, ID, Json, Loading, PageTitle, Status, When } from '../parts/bits';
import { useNow } from '../parts/now';
import type { Browsed, ExplainedAttempt, Explanation, Rollout, Span } from '../types';

export function Component() {
  const { id = '' } = useParams();
  const rollout = useRollout(id);
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
  const [q, setQ] = useSearchParams();
  const attempts = useAttempts(id);
  const explanation = useExplanation(id, true);
  const list = attempts.data?.items ?? [];
  const attemptID = q.get('attempt') ?? list.at(-1)?.attempt_id;
  const spans = useSpans(id, attemptID);
  const explained = explanation.data?.attempts.find((a) => a.attempt_id === attemptID);
  const members = useGroup(rollout);
  const tab = q.get('tab') ?? 'conversation';
  const set = (name: string, value: string) =>
    setQ(
      (old) => {
        const next = new URLSearchParams(old);
        next.set(name, value);
        return next;
      },
      { replace: true },
    );
  const panel = (body: () => ReactNode) => (spans.error ? <Failed error={spans.error} /> : spans.isPending && attemptID !== undefined ? <Loading what="the spans" /> : body());
  const advantage = groupAdvantage(
    members.map((m) => m.digest.reward),
    members.findIndex((m) => m.rollout_id === id),
  );
  return (
    <Stack gap="sm">
      <Head rollout={rollout} explained={explained} members={members} />
      {explanation.data && <Training explanation={explanation.data} explained={explained} brief />}
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
          <Tabs.Tab value="timeline">Timeline{spans.total > 0 && ` (${number(spans.total)})`}</Tabs.Tab>
          <Tabs.Tab value="tokens">Tokens</Tabs.Tab>
          <Tabs.Tab value="rewards">Rewards</Tabs.Tab>
          <Tabs.Tab value="training">Training</Tabs.Tab>
          <Tabs.Tab value="raw">Raw</Tabs.Tab>
        </Tabs.List>
        {spans.loading && (
          <Text size="xs" c="dimmed" role="status" mt={4}>
            {number(spans.spans.length)} of {number(spans.total)} spans so far …
          </Text>
        )}
        <Tabs.Panel value="conversation" pt="sm">
          {panel(() => (
            <Conversation spans={spans.spans} />
          ))}
        </Tabs.Panel>
        <Tabs.Panel value="timeline" pt="sm">
          {panel(() => (
            <Timeline spans={spans.spans} name={`${id}-${attemptID ?? ''}`} complete={!spans.loading} />
          ))}
        </Tabs.Panel>
        <Tabs.Panel value="tokens" pt="sm">
          {panel(() => (
            <Tokens calls={tokensOf(spans.spans, explained)} advantage={advantage} explained={explained} />
          ))}
        </Tabs.Panel>
        <Tabs.Panel value="rewards" pt="sm">
          {panel(() => (
            <Rewards spans={spans.spans} explained={explained} />
          ))}
        </Tabs.Panel>
        <Tabs.Panel value="training" pt="sm">
          {explanation.error ? <Failed error={explanation.error} /> : explanation.data ? <Training explanation={explanation.data} explained={explained} /> : <Loading what="what training makes of it" />}
        </Tabs.Panel>
        <Tabs.Panel value="raw" pt="sm">
          <Raw rollout={rollout} attempt={attemptID} spans={spans.spans} />
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

function Conversation({ spans }: { spans: Span[] }) {
  const turns = useMemo(() => conversation(spans), [spans]);
  const [most, setMost] = useState(200);
  if (turns.length === 0) {
    return (
      <Empty title="Nobody has said anything in this attempt">
        No model call, message or reward was recorded{spans.length > 0 ? `; its ${number(spans.length)} spans are in the timeline` : ''}.
      </Empty>
    );
  }
  return (
    <div>
      {turns.slice(0, most).map((t) => (
        <TurnShown key={t.key} turn={t} />
      ))}
      {turns.length > most && (
        <Button variant="default" onClick={() => setMost(most + 500)}>
          Show more of the {number(turns.length)} turns
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

function kindOf(s: Span): string {
  if (s.status.status_code === 'ERROR') return 'error';
  if (isCall(s)) return 'call';
  if (rewardsOf(s).length > 0) return 'reward';
  return 'span';
}

function Timeline({ spans, name, complete }: { spans: Span[]; name: string; complete: boolean }) {
  const [text, setText] = useState('');
  const [open, setOpen] = useState<string | null>(null);
  const nodes = useMemo(() => {
    const part = text.toLowerCase();
    const all = tree(spans);
    return part === '' ? all : all.filter((n) => n.span.name.toLowerCase().includes(part) || n.span.span_id.includes(part) || n.span.trace_id.includes(part));
  }, [spans, text]);
  const [from, to] = useMemo(() => {
    let a = Infinity;
    let b = -Infinity;
    for (const s of spans) {
      if (s.start_time !== null) a = Math.min(a, s.start_time);
      b = Math.max(b, s.end_time ?? s.start_time ?? b);
    }
    return [a, Math.max(b, a + 1e-6)];
  }, [spans]);
  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: nodes.length, getScrollElement: () => box.current, estimateSize: () => 28, overscan: 20, getItemKey: (i) => nodes[i]!.span.span_id + nodes[i]!.span.attempt_id });
  const place = (t: number | null) => (100 * ((t ?? from) - from)) / (to - from);
  const chosen = nodes.find((n) => n.span.span_id === open)?.span;
  if (spans.length === 0) return <Empty title="No span was recorded in this attempt" />;
  return (
    <Grid>
      <Grid.Col span={{ base: 12, lg: chosen ? 7 : 12 }}>
        <Group gap="xs" mb="xs" justify="space-between">
          <input className="mantine-Input-input" aria-label="Find spans by name or id" placeholder="Find spans by name or id" value={text} onChange={(e) => setText(e.currentTarget.value)} style={{ padding: '4px 8px', flex: '1 1 180px', maxWidth: 320, border: '1px solid var(--mantine-color-default-border)', borderRadius: 4, background: 'none', color: 'inherit', font: 'inherit' }} />
          <Text size="sm">
            {number(nodes.length)} spans over {duration(to - from)}
          </Text>
          <Menu shadow="md" disabled={!complete}>
            <Menu.Target>
              <Button size="compact-sm" variant="default">
                Save the tree
              </Button>
            </Menu.Target>
            <Menu.Dropdown>
              <Menu.Item onClick={() => save(`${name}.svg`, asSVG(spans), 'image/svg+xml')}>as a picture (SVG)</Menu.Item>
              <Menu.Item onClick={() => save(`${name}.dot`, asDot(spans), 'text/vnd.graphviz')}>for Graphviz (DOT)</Menu.Item>
            </Menu.Dropdown>
          </Menu>
        </Group>
        <div ref={box} className="grid" style={{ height: 'min(65vh, 720px)' }} tabIndex={0} role="region" aria-label="Spans by time, scrolls">
          <ul style={{ height: virtual.getTotalSize(), position: 'relative', margin: 0, padding: 0, listStyle: 'none' }}>
            {virtual.getVirtualItems().map((v) => {
              const { span, depth, orphan } = nodes[v.index]!;
              return (
                <li key={v.key} style={{ position: 'absolute', top: 0, left: 0, right: 0, transform: `translateY(${v.start}px)` }}>
                  <button type="button" className="span-row" aria-expanded={open === span.span_id} onClick={() => setOpen(open === span.span_id ? null : span.span_id)}>
                    <span className="one-line" style={{ paddingLeft: Math.min(depth, 12) * 14 }} title={span.name}>
                      <span className="dim">{span.sequence_id}</span> {span.name}
                      {orphan && <span title={`Its parent ${span.parent_id ?? ''} is not among these spans`}> ⚠</span>}
                    </span>
                    <span className="bar" aria-hidden>
                      <i data-kind={kindOf(span)} style={{ left: `min(${place(span.start_time)}%, calc(100% - 3px))`, width: `${Math.max(0, place(span.end_time ?? span.start_time) - place(span.start_time))}%` }} />
                      {span.events.slice(0, 20).map((e, i) => (
                        <b key={i} title={e.name} style={{ left: `${place(e.timestamp)}%` }} />
                      ))}
                    </span>
                    <span className="num">{duration((span.end_time ?? span.start_time ?? 0) - (span.start_time ?? 0))}</span>
                  </button>
                </li>
              );
            })}
          </ul>
        </div>
      </Grid.Col>
      {chosen && (
        <Grid.Col span={{ base: 12, lg: 5 }}>
          <SpanShown span={chosen} close={() => setOpen(null)} find={(id) => setOpen(id)} />
        </Grid.Col>
      )}
    </Grid>
  );
}

function SpanShown({ span, close, find }: { span: Span; close: () => void; find: (id: string) => void }) {
  return (
    <section aria-label={`Span ${span.name}`}>
      <Group justify="space-between" mb="xs">
        <Group gap="xs">
          <Text fw={600}>{span.name}</Text>
          <Status value={span.status.status_code} />
        </Group>
        <Button size="compact-sm" variant="default" onClick={close}>
          Close
        </Button>
      </Group>
      {span.status.description !== null && span.status.description !== '' && <Alert color="red">{span.status.description}</Alert>}
      <Table>
        <Table.Tbody>
          <Table.Tr>
            <Table.Th>Span</Table.Th>
            <Table.Td>
              <ID value={span.span_id} />
            </Table.Td>
          </Table.Tr>
          {span.parent_id !== null && (
            <Table.Tr>
              <Table.Th>Parent</Table.Th>
              <Table.Td>
                <Button size="compact-xs" variant="default" onClick={() => find(span.parent_id!)}>
                  {span.parent_id}
                </Button>
              </Table.Td>
            </Table.Tr>
          )}
          <Table.Tr>
            <Table.Th>Trace</Table.Th>
            <Table.Td>
              <ID value={span.trace_id} />
            </Table.Td>
          </Table.Tr>
          <Table.Tr>
            <Table.Th>Time</Table.Th>
            <Table.Td>
              {moment(span.start_time)}, {duration((span.end_time ?? span.start_time ?? 0) - (span.start_time ?? 0))}
            </Table.Td>
          </Table.Tr>
          {span.links.map((l) => (
            <Table.Tr key={l.context.span_id}>
              <Table.Th>Link</Table.Th>
              <Table.Td>
                <Button size="compact-xs" variant="default" onClick={() => find(l.context.span_id)}>
                  {l.context.span_id}
                </Button>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      {span.events.length > 0 && (
        <>
          <Text fw={600} mt="xs">
            Events
          </Text>
          <Json value={span.events} label="Events" />
        </>
      )}
      <Text fw={600} mt="xs">
        Attributes
      </Text>
      <Json value={span.attributes} label="Attributes" />
    </section>
  );
}

function Tokens({ calls, advantage, explained }: { calls: CallTokens[]; advantage: number | null; explained: ExplainedAttempt | undefined }) {
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

function Rewards({ spans, explained }: { spans: Span[]; explained: ExplainedAttempt | undefined }) {
  const rows = useMemo(() => spans.filter((s) => rewardsOf(s).length > 0).flatMap((s) => rewardsOf(s).map(([name, value]) => ({ s, name, value }))), [spans]);
  if (rows.length === 0) return <Empty title="This attempt has no reward">Without one it is not trained on. The agent returns a number, or emits a reward span.</Empty>;
  return (
    <Table>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Reward</Table.Th>
          <Table.Th className="num">Value</Table.Th>
          <Table.Th>From</Table.Th>
          <Table.Th>When</Table.Th>
          <Table.Th>Counts</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {rows.map(({ s, name, value }) => (
          <Table.Tr key={`${s.span_id} ${name}`}>
            <Table.Td>{name}</Table.Td>
            <Table.Td className="num">{number(value)}</Table.Td>
            <Table.Td>
              span {s.sequence_id}, {s.name} <Copy value={s.span_id} label={`Copy ${s.span_id}`} />
            </Table.Td>
            <Table.Td>{moment(s.start_time)}</Table.Td>
            <Table.Td>{explained?.reward_span === s.span_id ? 'the final reward: training reads it' : 'an earlier reward'}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

/** What became training data, and if nothing did, why. */
function Training({ explanation, explained, brief }: { explanation: Explanation; explained: ExplainedAttempt | undefined; brief?: boolean }) {
  const s = explanation.sums;
  const used = s.rows > 0;
  const reasons = [...Object.entries(s.attempt_reasons), ...Object.entries(s.reasons)];
  if (brief && (used || explanation.attempts.length === 0 || !['succeeded', 'failed', 'cancelled'].includes(explanation.status))) return null;
  return (
    <Stack gap="sm">
      <Alert color={used ? 'teal' : 'orange'} title={used ? `${number(s.rows)} training row${s.rows === 1 ? '' : 's'} with ${number(s.tokens)} sampled tokens` : 'Nothing of this rollout can be trained on'}>
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
              {explained.calls.map((c) => (
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
        </div>
      )}
    </Stack>
  );
}

function Raw({ rollout, attempt, spans }: { rollout: Rollout; attempt: string | undefined; spans: Span[] }) {
  const paths: [string, string][] = [[`v1/agl/rollouts/${encodeURIComponent(rollout.rollout_id)}`, 'the rollout']];
  if (attempt !== undefined) paths.push([spansPath(rollout.rollout_id, attempt), 'its spans'], [`v1/agl/rollouts/${encodeURIComponent(rollout.rollout_id)}/explain`, 'what training makes of it']);
  const [all, setAll] = useState(false);
  const some = all ? spans : spans.slice(0, 20);
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
      <Json value={some} label="Spans as JSON" />
      {some.length < spans.length && (
        <Button variant="default" onClick={() => setAll(true)}>
          Show all {number(spans.length)} spans
        </Button>
      )}
    </Stack>
  );
}
