// Small things that all pages use.
import { ActionIcon, Alert, Anchor, Badge, Button, Group, Loader, Paper, Text, Title, Tooltip } from '@mantine/core';
import { useClipboard } from '@mantine/hooks';
import type { ReactNode } from 'react';
import { Link } from 'react-router-dom';
import { ApiError } from '../api';
import { ago, moment, words } from '../logic/format';
import { useNow } from './now';

const colours: Record<string, string> = {
  succeeded: 'teal',
  ok: 'teal',
  idle: 'teal',
  failed: 'red',
  error: 'red',
  timeout: 'orange',
  unresponsive: 'orange',
  interrupted: 'orange',
  failing: 'red',
  'cannot be reached': 'red',
  'key missing': 'red',
  paused: 'orange',
  slow: 'orange',
  full: 'orange',
  stopped: 'orange',
  preparing: 'violet',
  running: 'blue',
  busy: 'blue',
  learning: 'teal',
  learned: 'teal',
  flat: 'orange',
  'getting worse': 'red',
};

/** A status as a word in a colour; the word says it all without the colour. */
export function Status({ value, size = 'sm' }: { value: string; size?: string }) {
  return (
    <Badge color={colours[value.toLowerCase()] ?? 'gray'} variant="light" size={size} radius="sm" tt="none" className="status" style={{ flexShrink: 0 }}>
      {words(value)}
    </Badge>
  );
}

export function Copy({ value, label }: { value: string; label: string }) {
  const clipboard = useClipboard({ timeout: 1200 });
  return (
    <Tooltip label={clipboard.copied ? 'Copied' : label}>
      <ActionIcon size="sm" variant="subtle" color="gray" aria-label={label} onClick={() => clipboard.copy(value)}>
        {clipboard.copied ? (
          '✓'
        ) : (
          <svg width="14" height="14" viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.4" aria-hidden>
            <rect x="5.5" y="5.5" width="8" height="8" rx="1.5" />
            <path d="M10.5 5.5v-2a1 1 0 0 0-1-1h-6a1 1 0 0 0-1 1v6a1 1 0 0 0 1 1h2" />
          </svg>
        )}
      </ActionIcon>
    </Tooltip>
  );
}

export function ID({ value, to }: { value: string; to?: string }) {
  return (
    <Group gap={2} wrap="nowrap" style={{ display: 'inline-flex', maxWidth: '100%' }}>
      {to === undefined ? (
        <span className="mono one-line">{value}</span>
      ) : (
        <Anchor component={Link} to={to} className="mono one-line" inherit>
          {value}
        </Anchor>
      )}
      <Copy value={value} label={`Copy ${value}`} />
    </Group>
  );
}

/** A time, relative to now, with the absolute one beside it. */
export function When({ t }: { t: number | null | undefined }) {
  const now = useNow();
  return <span title={moment(t)}>{ago(t, now)}</span>;
}

export function Failed({ error, retry }: { error: unknown; retry?: () => void }) {
  const err = error instanceof Error ? error : new Error(String(error));
  const title = err instanceof ApiError && err.status === 400 ? 'That question has no quick answer' : 'This could not be read';
  return (
    <Alert color={err instanceof ApiError && err.status === 400 ? 'yellow' : 'red'} title={title} role="alert">
      {err.message}
      {retry && (
        <Button size="xs" variant="default" ml="sm" onClick={retry}>
          Try again
        </Button>
      )}
    </Alert>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <Group p="md" role="status">
      <Loader size="sm" />
      <Text>Reading {what} …</Text>
    </Group>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Paper withBorder p="lg" ta="center">
      <Text fw={600}>{title}</Text>
      <Text c="dimmed" component="div">
        {children}
      </Text>
    </Paper>
  );
}

export function Card({ title, right, children, label }: { title: ReactNode; right?: ReactNode; children: ReactNode; label?: string }) {
  return (
    <Paper withBorder p="md" component="section" aria-label={label ?? (typeof title === 'string' ? title : undefined)} miw={0}>
      <Group justify="space-between" mb="xs" wrap="wrap" gap="xs">
        <Title order={2} size="h5">
          {title}
        </Title>
        {right}
      </Group>
      {children}
    </Paper>
  );
}

export function PageTitle({ children, right }: { children: ReactNode; right?: ReactNode }) {
  return (
    <Group justify="space-between" mb="md" gap="sm">
      <Title order={1} size="h3">
        {children}
      </Title>
      {right}
    </Group>
  );
}

/** A number with what it is. */
export function Figure({ label, value, to, hint }: { label: string; value: ReactNode; to?: string; hint?: string }) {
  const body = (
    <div title={hint}>
      <Text size="xs" c="dimmed">
        {label}
      </Text>
      <Text fz={22} fw={600} lh={1.2} style={{ fontVariantNumeric: 'tabular-nums' }}>
        {value}
      </Text>
    </div>
  );
  if (to === undefined) return body;
  return (
    <Anchor component={Link} to={to} c="inherit" underline="hover">
      {body}
    </Anchor>
  );
}

/** A value as JSON to read and to copy. */
export function Json({ value, label }: { value: unknown; label: string }) {
  const text = JSON.stringify(value, null, 2) ?? 'null';
  return (
    <div style={{ position: 'relative' }}>
      <div style={{ position: 'absolute', right: 6, top: 8 }}>
        <Copy value={text} label={`Copy ${label}`} />
      </div>
      <pre className="code" tabIndex={0} aria-label={label}>
        {text}
      </pre>
    </div>
  );
}
