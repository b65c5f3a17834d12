import { ActionIcon, Anchor, AppShell, Badge, Burger, Button, Center, Group, NavLink, Paper, PasswordInput, Stack, Text, Title, Tooltip, useMantineColorScheme } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, use, useEffect, useState } from 'react';
import { Link, Outlet, ScrollRestoration, useLocation } from 'react-router-dom';
import { ApiError, get, hasToken, onDenied, setToken } from './api';
import { useLive } from './live';
import { LiveContext } from './parts/livecontext';

const pages = [
  ['/', 'Overview'],
  ['/runs', 'Runs'],
  ['/rollouts', 'Rollouts'],
  ['/groups', 'Groups'],
  ['/resources', 'Resources'],
  ['/models', 'Models'],
  ['/workers', 'Workers'],
  ['/store', 'Store'],
] as const;

/** The frame around every page: login, navigation, whether what is shown is live. */
export function App() {
  const live = use(LiveContext);
  const client = useQueryClient();
  const [denied, setDenied] = useState<string | null>(null);
  useEffect(() => onDenied(setDenied), []);
  // Asked first, so that a page that needs a token does not flash before the login.
  const admitted = useQuery({
    queryKey: ['admitted'],
    queryFn: ({ signal }) => get('v1/agl/capabilities', signal),
    retry: false,
    staleTime: Infinity,
  });
  // Before anything is asked, since all that came before it is asked again. Where
  // a token is needed and missing, the login starts it anew.
  useEffect(() => {
    live.start();
    return () => live.end();
  }, [live]);

  const needsLogin = denied !== null || (admitted.error instanceof ApiError && admitted.error.status === 401);
  if (needsLogin) {
    return (
      <Login
        reason={hasToken() ? (denied ?? '') : ''}
        enter={async (token) => {
          setToken(token);
          live.end();
          try {
            await get('v1/agl/capabilities');
          } catch (err) {
            return err instanceof Error ? err.message : String(err);
          }
          setDenied(null);
          await client.resetQueries();
          live.start();
          return '';
        }}
      />
    );
  }
  if (admitted.isPending) return <></>;
  return (
    <Frame
      leave={() => {
        live.end();
        setToken('');
        client.clear();
        setDenied('signed out');
      }}
    />
  );
}

function Login({ enter, reason }: { enter: (token: string) => Promise<string>; reason: string }) {
  const [token, change] = useState('');
  const [busy, setBusy] = useState(false);
  const [why, setWhy] = useState(reason);
  const submit = (e: FormEvent) => {
    e.preventDefault();
    setBusy(true);
    void enter(token.trim()).then((problem) => {
      setBusy(false);
      setWhy(problem);
    });
  };
  return (
    <Center mih="100vh" p="md" component="main">
      <Paper withBorder p="xl" w={380} maw="100%">
        <form onSubmit={submit}>
          <Stack>
            <Title order={1} size="h3">
              ⚡ Agent Lightning
            </Title>
            <Text>This server asks for its token: the value of --auth-token, or of AGL_AUTH_TOKEN.</Text>
            <PasswordInput label="Token" value={token} onChange={(e) => change(e.currentTarget.value)} error={why === '' ? undefined : why} autoComplete="off" data-autofocus autoFocus />
            <Button type="submit" loading={busy} disabled={token.trim() === ''}>
              Open
            </Button>
            <Text size="xs" c="dimmed">
              It stays in this tab and is forgotten when you close it.
            </Text>
          </Stack>
        </form>
      </Paper>
    </Center>
  );
}

function Frame({ leave }: { leave: () => void }) {
  const [opened, { toggle, close }] = useDisclosure();
  const { pathname } = useLocation();
  useEffect(close, [pathname, close]);
  return (
    <AppShell header={{ height: 48 }} navbar={{ width: 176, breakpoint: 'sm', collapsed: { mobile: !opened } }} padding="md">
      <a className="skip" href="#main">
        Skip to the page
      </a>
      <AppShell.Header px="md">
        <Group h="100%" justify="space-between" wrap="nowrap" gap="xs">
          <Group gap="xs" wrap="nowrap">
            <Burger opened={opened} onClick={toggle} hiddenFrom="sm" size="sm" aria-label={opened ? 'Close the menu' : 'Open the menu'} />
            <Anchor component={Link} to="/" c="inherit" fw={700} underline="never" className="one-line">
              ⚡ Agent Lightning
            </Anchor>
          </Group>
          <Group gap="xs" wrap="nowrap">
            <Connection />
            <Theme />
            {hasToken() && (
              <Button size="compact-sm" variant="default" onClick={leave}>
                Sign out
              </Button>
            )}
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" component="nav" aria-label="Pages">
        {pages.map(([to, name]) => {
          const active = to === '/' ? pathname === '/' : pathname === to || pathname.startsWith(`${to}/`);
          return <NavLink key={to} component={Link} to={to} label={name} active={active} aria-current={active ? 'page' : undefined} />;
        })}
      </AppShell.Navbar>
      <AppShell.Main id="main" tabIndex={-1}>
        <Outlet />
      </AppShell.Main>
      <ScrollRestoration getKey={(l) => l.pathname} />
    </AppShell>
  );
}

const states = {
  live: ['teal', 'Live', 'Changes appear as they happen'],
  connecting: ['gray', 'Connecting', 'Waiting for the stream of events'],
  retrying: ['orange', 'Reconnecting', 'The server cannot be reached; what is shown may be old'],
  denied: ['red', 'No access', 'The server asks for another token'],
} as const;

function Connection() {
  const state = useLive(use(LiveContext));
  const [colour, word, hint] = states[state];
  return (
    <Tooltip label={hint}>
      <Badge color={colour} variant="light" tt="none" role="status" aria-label={`${word}: ${hint}`} data-state={state} className="status">
        {word}
      </Badge>
    </Tooltip>
  );
}

const next = { auto: 'light', light: 'dark', dark: 'auto' } as const;
const signs = { auto: '◐', light: '☀', dark: '☾' } as const;

function Theme() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const said = { auto: 'that of the system', light: 'light', dark: 'dark' }[colorScheme];
  return (
    <Tooltip label={`Theme: ${said}`}>
      <ActionIcon variant="default" aria-label={`Theme is ${said}; change it`} onClick={() => setColorScheme(next[colorScheme])}>
        {signs[colorScheme]}
      </ActionIcon>
    </Tooltip>
  );
}
