import { readFile } from 'node:fs/promises';
import AxeBuilder from '@axe-core/playwright';
import { expect, type Page, test } from '@playwright/test';
import { longAttempt, modelBackend, need, Server } from './server';

let server: Server;
let run: string;
let rollout: string;

interface Found {
  items: { rollout_id: string; digest: { reward: number | null } }[];
  total: number;
}

test.beforeAll(async () => {
  server = await Server.start();
  const runs = await server.call<{ run_id: string; algorithm: string }[]>('v1/agl/runs');
  run = runs.find((r) => r.algorithm === 'pg')!.run_id;
  const found = await server.call<Found>(`v1/agl/browse/rollouts?run_id=${run}&mode_in=train&limit=1`);
  rollout = found.items[0]!.rollout_id;
});

test.afterAll(async () => {
  await server.close();
});

// Whatever a page does, it asks its own server only, and breaks nowhere.
let wrong: string[];
test.beforeEach(({ page }) => {
  wrong = [];
  page.on('request', (r) => {
    if (!r.url().startsWith(server.url) && !/^(data|blob):/.test(r.url()) && !allowed.some((o) => r.url().startsWith(o))) wrong.push(`request to ${r.url()}`);
  });
  page.on('pageerror', (e) => wrong.push(`error: ${e.message}`));
  page.on('console', (m) => {
    if (/Content Security Policy|Warning:|unique "key"/.test(m.text())) wrong.push(`console: ${m.text()}`);
  });
});
let allowed: string[] = [];
test.afterEach(() => {
  allowed = [];
  expect(wrong).toEqual([]);
});

async function accessible(page: Page): Promise<void> {
  // What fades in has other colours until it is there.
  await page.waitForFunction(
    () =>
      document.getAnimations().every((a) => a.playState !== 'running' || a.effect?.getTiming().iterations === Infinity) &&
      [...document.querySelectorAll('[role=dialog]')].every((d) => getComputedStyle(d).opacity === '1'),
  );
  const { violations } = await new AxeBuilder({ page }).analyze();
  const grave = violations.filter((v) => v.impact === 'serious' || v.impact === 'critical');
  expect(grave.map((v) => `${v.id}: ${v.nodes.map((n) => `${n.target.join(' ')} ${n.failureSummary ?? ''}`).join(' | ')}`)).toEqual([]);
}

const pages = (): [string, string, RegExp][] => [
  ['/', 'Overview', /Reward went from/],
  ['/runs', 'Runs', /run-/],
  [`/runs?run=${run}`, 'Runs', /Smoothing/],
  [`/runs/${run}`, '', /reward_std/],
  [`/runs/${run}?tab=batches&step=2`, '', /groups of step 2/],
  [`/runs/${run}?tab=samples`, '', /Most improved/],
  [`/runs/${run}?tab=checkpoints`, '', /checkpoints\/run/],
  [`/runs/${run}?tab=log`, '', /run succeeded/],
  [`/runs/${run}?tab=config`, '', /group_size/],
  ['/rollouts', 'Rollouts', /succeeded/],
  [`/rollouts/${rollout}`, '', /primary:/],
  [`/rollouts/${rollout}?tab=timeline`, '', /openai.chat.completion/],
  [`/rollouts/${rollout}?tab=tokens`, '', /mean log-probability/],
  [`/rollouts/${rollout}?tab=tokens&by=gap`, '', /Trained on at step|No step has trained on this rollout/],
  [`/rollouts/${rollout}?tab=rewards`, '', /the final reward/],
  [`/rollouts/${rollout}?tab=training`, '', /training row/],
  [`/rollouts/${rollout}?tab=raw`, '', /curl -s/],
  [`/groups?run=${run}&step=3`, 'Groups', /groups of step 3/],
  [`/groups?run=${run}&step=3&group=1`, 'Groups', /advantage/],
  ['/resources', 'Resources', /main_llm/],
  ['/models', 'Models', /calc-policy/],
  ['/workers', 'Workers', /Worker-0/],
  ['/store', 'Store', /sqlite/],
  ['/nowhere', '', /There is no such page/],
];

for (const scheme of ['light', 'dark'] as const) {
  test(`every page shows its data, ${scheme}, and axe finds nothing serious`, async ({ page }) => {
    test.setTimeout(240_000);
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
    for (const [path, title, text] of pages()) {
      await test.step(path, async () => {
        await page.goto(server.url + path);
        if (title !== '') await expect(page.getByRole('heading', { level: 1, name: title })).toBeVisible();
        await expect(page.getByText(text).first()).toBeVisible();
        await expect(page.locator('html')).toHaveAttribute('data-mantine-color-scheme', scheme);
        await accessible(page);
      });
    }
  });
}

test('every page fits a phone', async ({ page }) => {
  test.setTimeout(120_000);
  await page.setViewportSize({ width: 360, height: 740 });
  for (const [path, , text] of pages()) {
    await test.step(path, async () => {
      await page.goto(server.url + path);
      await expect(page.getByText(text).first()).toBeVisible();
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360);
    });
  }
  await page.getByRole('button', { name: 'Open the menu' }).click();
  await page.getByRole('link', { name: 'Rollouts' }).first().click();
  await expect(page.getByRole('heading', { level: 1, name: 'Rollouts' })).toBeVisible();
});

test('the overview says whether it learns, and leads on', async ({ page }) => {
  await page.goto(server.url);
  const card = page.getByRole('region', { name: 'Is it learning?' });
  await expect(card.locator('.status').first()).toHaveText(/learned|flat|getting worse/);
  await expect(card.getByRole('img', { name: /Curves of run/ })).toBeVisible();
  await card.getByRole('link', { name: new RegExp(run) }).click();
  await expect(page).toHaveURL(new RegExp(`/runs/${run}`));
});

test('every sort that is offered is answered, both ways', async ({ page }) => {
  test.setTimeout(180_000);
  await page.addInitScript(() => localStorage.setItem('agl-hidden-columns', '[]'));
  await page.goto(`${server.url}/rollouts?run_id=${run}&step=2`);
  await expect(page.locator('tr[data-row]').first()).toBeVisible();
  const headers = page.locator('.grid th button');
  await expect(headers.first()).toBeVisible();
  const n = await headers.count();
  expect(n).toBeGreaterThanOrEqual(18);
  for (let i = 0; i < n; i++) {
    for (const order of ['descending', 'ascending']) {
      const answer = page.waitForResponse((r) => r.url().includes('/browse/rollouts') && r.url().includes('sort_by='));
      await headers.nth(i).click();
      expect((await answer).status()).toBe(200);
      await expect(page.locator('.grid th').nth(i + 1)).toHaveAttribute('aria-sort', order);
    }
    await headers.nth(i).click();
  }
});

test('sorting by reward puts the best first', async ({ page }) => {
  await page.goto(`${server.url}/rollouts?run_id=${run}&step=1&sort=-reward`);
  const cells = page.locator('tr[data-row] td:nth-child(4)');
  await expect(cells.first()).toHaveText('1');
  await page.goto(`${server.url}/rollouts?run_id=${run}&step=1&sort=reward`);
  await expect(cells.first()).toHaveText('0');
});

test('every filter narrows the list and stands in the address', async ({ page }) => {
  const total = (await server.call<Found>('v1/agl/browse/rollouts?limit=1')).total;
  await page.goto(`${server.url}/rollouts`);
  const summary = page.getByText(/^[\d,]+ rollouts?/);
  await expect(summary).toHaveText(`${total.toLocaleString('en-GB')} rollouts`);
  await page.getByRole('searchbox', { name: /Search tasks/ }).fill('apples');
  await expect(page).toHaveURL(/text=apples/);
  await expect(page.locator('tr[data-row]').first()).toContainText(/apples/i);
  await page.getByRole('searchbox', { name: /Search tasks/ }).fill(rollout);
  await expect(page).toHaveURL(new RegExp(`id=${rollout}`));
  await expect(summary).toHaveText('1 rollout');
  await page.getByRole('button', { name: `Remove id ${rollout}` }).click();
  await expect(summary).toHaveText(`${total.toLocaleString('en-GB')} rollouts`);
  for (const [filter, want] of [
    ['status=failed', 0],
    ['status=succeeded', total],
    ['mode=test', undefined],
    ['attempt_status=succeeded', total],
    [`run_id=${run}&step=2`, 256],
    [`run_id=${run}&step=2&group=1&mode=train`, 8],
    ['model=calc', undefined],
    ['model=nothing', 0],
    ['worker_id=Worker-0', total],
    ['worker_id=nobody', 0],
    ['tag=example.when', undefined],
    ['rewarded=true', undefined],
    ['rewarded=false', 0],
    ['reward_min=2', 0],
    ['reward_max=0', undefined],
    ['problem=no_token_ids', 0],
    ['resources_id=nothing', 0],
    ['since=86400', total],
    ['from=1&to=2', 0],
  ] as [string, number | undefined][]) {
    await test.step(filter, async () => {
      await page.goto(`${server.url}/rollouts?${filter}`);
      if (want === 0) await expect(page.getByText('No rollout fits')).toBeVisible();
      else if (want === undefined) await expect(page.locator('tr[data-row]').first()).toBeVisible();
      else await expect(page.getByText(new RegExp(`^${want.toLocaleString('en-GB')} (rollout|found)`))).toBeVisible();
    });
  }
});

test('filters are set by hand, by keyboard too', async ({ page }) => {
  await page.goto(`${server.url}/rollouts`);
  await page.getByRole('button', { name: 'More filters' }).focus();
  await page.keyboard.press('Enter');
  await page.getByLabel('Run', { exact: true }).fill(run);
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(new RegExp(`run_id=${run}`));
  await page.getByLabel('Reward from').fill('1');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/reward_min=1/);
  await page.keyboard.press('Escape');
  await expect(page.locator('tr[data-row]').first()).toBeVisible();
});

test('a list of which the server has not looked at all says so', async ({ page }) => {
  await page.route('**/browse/rollouts*sort_by=reward*', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...((await answer.json()) as Found), complete: false, examined: 6000 } });
  });
  await page.goto(`${server.url}/rollouts?sort=-reward&mode=val`);
  await expect(page.getByText(/found among the 6,000 newest that were looked at, sorted among themselves: narrow by run, time or status/)).toBeVisible();
  await expect(page.locator('tr[data-row]').first()).toBeVisible();
});

test('a question that the server refuses shows the reason and a way out', async ({ page }) => {
  await page.route('**/browse/rollouts*sort_by=reward*', (route) => route.fulfill({ status: 400, json: { detail: 'no such sort here' } }));
  await page.goto(`${server.url}/rollouts?sort=-reward`);
  await expect(page.getByRole('alert')).toContainText('no such sort here');
  await page.getByRole('button', { name: 'Sort by the newest instead' }).click();
  await expect(page.locator('tr[data-row]').first()).toBeVisible();
});

test('a view is saved and opened again', async ({ page }) => {
  await page.goto(`${server.url}/rollouts?mode=test`);
  await page.getByRole('button', { name: 'Views' }).click();
  await page.getByLabel('Name of this view').fill('the test');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.goto(`${server.url}/rollouts`);
  await page.getByRole('button', { name: 'Views' }).click();
  await page.getByRole('menuitem', { name: 'the test' }).click();
  await expect(page).toHaveURL(/mode=test/);
});

test('scrolling brings the rows of later pages', async ({ page }) => {
  await page.goto(`${server.url}/rollouts`);
  await expect(page.locator('tr[data-row]').first()).toBeVisible();
  await page.locator('.grid').evaluate((el) => el.scrollTo({ top: 36 * 1500 }));
  await expect(page.locator('tr[aria-rowindex="1510"]')).toContainText(/ro-[0-9a-f]{12}/);
});

test('tokens are coloured in three ways', async ({ page }) => {
  await page.goto(`${server.url}/rollouts/${rollout}?tab=tokens`);
  const tokens = page.locator('.tokens').first().locator('span');
  await expect(tokens.first()).toBeVisible();
  await page.getByText('Mask', { exact: true }).click();
  await expect(tokens.first()).toHaveCSS('background-color', 'rgba(30, 150, 80, 0.25)');
  await page.getByText('Advantage', { exact: true }).click();
  await expect(page.getByText(/Advantage of this rollout in its group/)).toBeVisible();
  await page.getByText('Prompt ids too').click();
  await expect(page.locator('.tokens .prompt').first()).toContainText('→');
});

test('tokens show the gap between sampling and training, from the step to the token', async ({ page }) => {
  // Computed from the spans as they are stored, apart from the page.
  const values = (attributes: Record<string, unknown>, key: string) => attributes[key] as number[];
  const { items } = await server.call<{ items: { rollout_id: string; digest: { gap?: unknown } }[] }>(`v1/agl/browse/rollouts?run_id=${run}&step=6&mode_in=train&limit=1000`);
  const trained = items.filter((r) => r.digest.gap !== undefined);
  expect(trained.length).toBeGreaterThan(0);
  const far: { rollout: string; gap: number; call: string; position: number; id: number }[] = [];
  let sum = 0;
  let tokens = 0;
  for (const r of trained) {
    const spans = await server.call<{ items: { name: string; span_id: string; attributes: Record<string, unknown> }[] }>(`v1/agl/spans?rollout_id=${r.rollout_id}&attempt_id=latest&limit=-1`).then((p) => p.items);
    const kept = spans.find((s) => s.name === 'agentlightning.trained')!.attributes;
    for (let i = 0; kept[`agentlightning.trained.call.${i}.span_id`] !== undefined; i++) {
      const call = spans.find((s) => s.span_id === kept[`agentlightning.trained.call.${i}.span_id`])!;
      const logprobs = values(kept, `agentlightning.trained.call.${i}.logprobs`);
      const positions = values(kept, `agentlightning.trained.call.${i}.positions`) ?? logprobs.map((_, j) => j);
      positions.forEach((at, j) => {
        const gap = values(call.attributes, 'response_logprobs')[at]! - logprobs[j]!;
        sum += gap;
        tokens++;
        far.push({ rollout: r.rollout_id, gap, call: call.span_id, position: at, id: values(call.attributes, 'response_token_ids')[at]! });
      });
    }
  }
  const metrics = await server.call<{ step: number; values: Record<string, number> }[]>(`v1/agl/runs/${run}/metrics`);
  const step = metrics.find((m) => m.step === 6)!.values;
  expect(step['logprob_gap/tokens']).toBe(tokens);
  expect(Math.abs(step['logprob_gap/mean']! - sum / tokens)).toBeLessThan(1e-6);
  far.sort((a, b) => Math.abs(b.gap) - Math.abs(a.gap));
  const top = far[0]!;
  expect(Math.abs(step['logprob_gap/max']! - Math.abs(top.gap))).toBeLessThan(1e-5);

  await page.goto(`${server.url}/runs/${run}?tab=batches&step=6`);
  const section = page.getByRole('region', { name: 'Gap between sampling and training' });
  await expect(section).toContainText(`nats over ${tokens.toLocaleString('en-GB')} tokens`);
  await section.getByRole('link').first().click();
  await expect(page).toHaveURL(new RegExp(`/rollouts/${top.rollout}\\?tab=tokens&by=gap&token=${top.call}\\.${top.position}`));
  const token = page.locator(`[data-token="${top.call}.${top.position}"]`);
  await expect(token).toBeFocused();
  const shown = top.gap < 0 ? `−${String(Number(Math.abs(top.gap).toPrecision(3)))}` : `+${String(Number(top.gap.toPrecision(3)))}`;
  await expect(token).toHaveAttribute('title', new RegExp(`^${top.id}, .*in training .*gap ${shown.replace(/[+.]/g, '\\$&')} nats, ratio `));
  await expect(page.getByText(/Trained on at step 6 of/)).toBeVisible();
  await accessible(page);
  // The others are a click away.
  const next = page.getByRole('navigation', { name: 'Largest gaps' }).getByRole('button').nth(1);
  await next.click();
  await expect(token).not.toBeFocused();
  await expect(page.locator('.tokens [aria-current]')).toBeFocused();

  // Where there is none, the page says why.
  const validated = await server.call<Found>(`v1/agl/browse/rollouts?run_id=${run}&mode_in=val&limit=1`);
  await page.goto(`${server.url}/rollouts/${validated.items[0]!.rollout_id}?tab=tokens&by=gap`);
  await expect(page.getByText(/Rollouts for validation and tests are not trained on/)).toBeVisible();
  const left = items.find((r) => r.digest.gap === undefined);
  if (left !== undefined) {
    await page.goto(`${server.url}/rollouts/${left.rollout_id}?tab=tokens&by=gap`);
    await expect(page.getByText(/No step has trained on this rollout/)).toBeVisible();
  }
});

test('a span opens, and the tree is saved', async ({ page }) => {
  await page.goto(`${server.url}/rollouts/${rollout}?tab=timeline`);
  await page.getByRole('button', { name: /1 openai.chat.completion/ }).click();
  await expect(page.getByRole('region', { name: /Span openai/ })).toContainText('response_token_ids');
  for (const [name, ending] of [
    [/SVG/, '.svg'],
    [/DOT/, '.dot'],
  ] as const) {
    await page.getByRole('button', { name: 'Save the tree' }).click();
    const download = page.waitForEvent('download');
    await page.getByRole('menuitem', { name }).click();
    expect((await download).suggestedFilename()).toContain(ending);
  }
});

test('the members of a group are one click apart', async ({ page }) => {
  await page.goto(`${server.url}/rollouts/${rollout}`);
  await expect(page.getByText(/ of 8$/)).toBeVisible();
  const at = page.url();
  await page.getByRole('button', { name: /(Next|Previous) rollout of the group/ }).or(page.getByRole('link', { name: /(Next|Previous) rollout of the group/ })).first().click();
  await expect(page).not.toHaveURL(at);
  await expect(page.getByText(/ of 8$/)).toBeVisible();
});

test('a batch shows the groups of its step, with rewards and advantages', async ({ page }) => {
  const found = await server.call<{ items: { metadata: Record<string, unknown>; mode: string; digest: { reward: number | null } }[] }>(`v1/agl/browse/rollouts?run_id=${run}&step=2&mode_in=train&limit=1000`);
  const groups = new Map<string, number[]>();
  for (const r of found.items) {
    const name = String(r.metadata['agl.group']);
    groups.set(name, [...(groups.get(name) ?? []), r.digest.reward ?? NaN]);
  }
  await page.goto(`${server.url}/runs/${run}`);
  await page.getByRole('tab', { name: 'Batches' }).click();
  await page.getByLabel('Step', { exact: true }).fill('2');
  await page.keyboard.press('Tab');
  await expect(page).toHaveURL(/step=2/);
  const [name, rewards] = [...groups].find(([, r]) => new Set(r).size > 1)!;
  const row = page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) }).filter({ hasNotText: '(' }).first();
  await expect(row).toBeVisible();
  await expect(row.getByRole('link', { name: /^Rollout ro-/ })).toHaveCount(rewards.length);
  const advantages = (await row.locator('.mono').last().textContent())!.split(' ').map(Number);
  expect(advantages).toHaveLength(rewards.length);
  expect(Math.abs(advantages.reduce((a, b) => a + b, 0))).toBeLessThan(0.01 * rewards.length);
  expect(Math.max(...advantages)).toBeGreaterThan(0);
  const [constant] = [...groups].find(([, r]) => new Set(r).size === 1) ?? [];
  if (constant !== undefined) await expect(page.getByRole('row').filter({ has: page.getByRole('link', { name: constant, exact: true }) }).filter({ hasNotText: '(' }).first()).toContainText('none: all rewards are one');
  await row.getByRole('link', { name, exact: true }).click();
  await expect(page).toHaveURL(/\/groups\?/);
});

test('samples say which tasks went better or worse, and how the answers differ', async ({ page }) => {
  // Counted from the list of rollouts, apart from the route that the page asks.
  interface Validated {
    rollout_id: string;
    input: { id: string; question: string };
    metadata: Record<string, unknown>;
    digest: { reward: number };
  }
  const all: Validated[] = [];
  for (let offset = 0; ; offset += 1000) {
    const { items } = await server.call<{ items: Validated[] }>(`v1/agl/browse/rollouts?run_id=${run}&mode_in=val&limit=1000&offset=${offset}`);
    all.push(...items);
    if (items.length < 1000) break;
  }
  const steps = [...new Set(all.map((r) => r.metadata['agl.step'] as number))].sort((a, b) => a - b);
  const of = (step: number) => new Map(all.filter((r) => r.metadata['agl.step'] === step).map((r) => [r.input.id, r]));
  const [early, late] = [of(steps[0]!), of(steps.at(-1)!)];
  const changes = [...early].map(([id, r]) => ({ before: r, after: late.get(id)!, change: late.get(id)!.digest.reward - r.digest.reward }));
  const improved = changes.filter((c) => c.change > 0);
  const worsened = changes.filter((c) => c.change < 0);
  expect(improved.length).toBeGreaterThan(worsened.length);

  await page.goto(`${server.url}/runs/${run}`);
  await page.getByRole('tab', { name: 'Samples' }).click();
  await expect(page.getByText(`Most improved (${improved.length})`)).toBeVisible();
  await expect(page.getByText(`${worsened.length} of ${changes.length}`, { exact: true })).toBeVisible();
  const mean = (list: { digest: { reward: number } }[]) => String(Number((list.reduce((a, r) => a + r.digest.reward, 0) / list.length).toPrecision(3)));
  await expect(page.getByText(`${mean(changes.map((c) => c.before))} → ${mean(changes.map((c) => c.after))}`)).toBeVisible();

  const pair = page.getByRole('region', { name: 'Before and after' });
  const gain = improved[1]!;
  await page.getByRole('button', { name: gain.before.input.question, exact: true }).first().click();
  await expect(pair.getByText(`Before: step ${steps[0]}, reward ${gain.before.digest.reward}`)).toBeVisible();
  await expect(pair.getByRole('link', { name: gain.before.rollout_id })).toBeVisible();
  await expect(pair.locator('del').first()).toBeVisible();
  await expect(pair.locator('ins').first()).toBeVisible();
  await expect(pair.getByText('reward · differs')).toHaveCount(2);
  await accessible(page);

  await page.getByText(`Most worsened (${worsened.length})`).click();
  await expect(page).toHaveURL(/order=worsened/);
  if (worsened.length > 0) {
    await expect(pair.getByText(/After: step \d+, reward/)).toBeVisible();
    const shown = page.getByRole('region', { name: 'Tasks, scrolls' }).getByRole('row');
    await expect(shown).toHaveCount(worsened.length + 1);
  }
  await page.getByText(/^Unchanged, lowest first/).click();
  await expect(page.getByRole('region', { name: 'Tasks, scrolls' }).getByRole('row').nth(1)).toContainText(/0$/);

  // Another step to compare with, and what cannot be compared at all.
  await page.getByRole('combobox', { name: 'After' }).click();
  await page.getByRole('option', { name: `step ${steps[1]}`, exact: true }).click();
  await expect(page).toHaveURL(new RegExp(`after=${steps[1]}`));
  await expect(page.getByText('Most improved')).toBeVisible();
  await page.goto(`${server.url}/runs/${run}?tab=samples&mode=train`);
  await expect(page.getByText(/Each of the \d+ training tasks was tried at one step only/)).toBeVisible();
});

test('a group leads to the same task at other steps', async ({ page }) => {
  const steps = await server.call<{ steps: number[] }>(`v1/agl/runs/${run}/samples`).then((s) => s.steps);
  await page.goto(`${server.url}/groups?run=${run}&step=${steps[0]}&group=7&mode=val`);
  const nav = page.getByRole('navigation', { name: 'The same task at other steps' });
  await expect(nav.getByRole('link')).toHaveCount(steps.length);
  await nav.getByRole('link', { name: new RegExp(`^step ${steps.at(-1)}:`) }).click();
  await expect(page).toHaveURL(new RegExp(`step=${steps.at(-1)}&group=7&mode=val`));
  await expect(page.getByRole('heading', { name: `Group 7 of step ${steps.at(-1)}` })).toBeVisible();
  await expect(nav.getByRole('link', { name: new RegExp(`^step ${steps.at(-1)}:`) })).toHaveAttribute('aria-current', 'step');
});

test('the store says how large its database is', async ({ page }) => {
  await page.goto(`${server.url}/store`);
  const figure = page.getByTitle(/On the disk, .* of it in the write-ahead log/);
  await expect(figure).toHaveText(/Database\s*[\d.]+ (K|M)iB/);
});

test('links of other dashboards lead to the timeline', async ({ page }) => {
  await page.goto(`${server.url}/traces?rolloutId=${rollout}`);
  await expect(page).toHaveURL(new RegExp(`/rollouts/${rollout}\\?tab=timeline`));
});

test.describe('searches for prompts', () => {
  let own: Server;
  test.beforeAll(async () => {
    own = await Server.start({ database: need('AGL_PROMPTS') });
  });
  test.afterAll(async () => {
    await own.close();
  });

  for (const search of ['gepa', 'apo']) {
    test(`${search}: every prompt stands below the one that it was made of`, async ({ page }) => {
      allowed = [own.url];
      const runs = await own.call<{ run_id: string; algorithm: string }[]>('v1/agl/runs');
      const id = runs.find((r) => r.algorithm === search)!.run_id;
      await page.goto(`${own.url}/runs/${id}?tab=checkpoints`);
      const tree = page.getByRole('group', { name: 'Candidates by their parents' });
      const candidates = tree.getByRole('button');
      const number = await candidates.count().then(async (n) => n || (await candidates.first().waitFor(), candidates.count()));
      expect(number).toBeGreaterThan(3);
      // Each but the first has a line to a parent at least.
      expect(await tree.locator('line').count()).toBeGreaterThanOrEqual(number - 1);
      await candidates.last().click();
      await expect(page.getByText('beside its parent')).not.toHaveCount(0);
      await expect(page.getByText('You book meeting rooms.').first()).toBeVisible();
      await accessible(page);
    });
  }
});

test('the list of runs says how they went, and curves their newest values', async ({ page }) => {
  await page.goto(`${server.url}/runs`);
  const row = page.getByRole('row', { name: new RegExp(run) });
  await expect(row).toContainText(/learned|flat|getting worse/);
  const metrics = await server.call<{ values: Record<string, number> }[]>(`v1/agl/runs/${run}/metrics`);
  const rewards = metrics.map((m) => m.values['training/reward']).filter((v) => v !== undefined);
  const rounded = (v: number | undefined) => String(Number(v!.toPrecision(3)));
  await expect(row).toContainText(`reward ${rounded(rewards[0])} → ${rounded(rewards.at(-1))}`);
  await page.goto(`${server.url}/runs/${run}`);
  const legend = page.getByRole('img', { name: /^Reward by step/ }).locator('.u-legend');
  await expect(legend).toContainText(new RegExp(`step:? *${metrics.length - 1}`));
  await expect(legend).not.toContainText('–');
});

test('two runs are compared', async ({ page }) => {
  await page.goto(`${server.url}/runs`);
  const boxes = page.getByRole('checkbox', { name: /Compare run-/ });
  await boxes.nth(0).click();
  await expect(boxes.nth(0)).toBeChecked();
  await boxes.nth(1).click();
  await expect(page.getByRole('heading', { name: 'Compare 2 runs' })).toBeVisible();
  await expect(page.getByRole('region', { name: 'Differences of the configuration' })).toContainText('algorithm');
  await page.getByText('Seconds', { exact: true }).click();
  await expect(page).toHaveURL(/by=time/);
});

test.describe('actions', () => {
  let own: Server;
  test.beforeEach(async () => {
    own = await Server.start({ empty: true });
    allowed = [own.url];
  });
  test.afterEach(async () => {
    await own.close();
  });

  const enqueue = (n: number) => own.call<{ rollout_id: string }[]>('v1/agl/queues/rollouts/enqueue', { rollouts: Array.from({ length: n }, (_, i) => ({ input: `task ${i}` })) });
  const status = async (id: string) => (await own.call<{ status: string } | null>(`v1/agl/rollouts/${id}`))?.status;

  test('an empty server says what to do', async ({ page }) => {
    for (const [path, text] of [
      ['/', 'Nothing has been trained'],
      ['/rollouts', 'No rollout yet'],
      ['/runs', 'No run yet'],
      ['/groups', 'No run yet'],
      ['/resources', 'No resources yet'],
      ['/models', 'No model backend is registered'],
      ['/workers', 'No worker has come by'],
      ['/store', 'sqlite'],
    ] as const) {
      await page.goto(own.url + path);
      await expect(page.getByText(text).first()).toBeVisible();
    }
  });

  test('rollouts are cancelled, retried, exported and deleted, after a question', async ({ page }) => {
    const made = await enqueue(3);
    await page.goto(`${own.url}/rollouts`);
    await page.getByRole('checkbox', { name: `Choose ${made[0]!.rollout_id}` }).check();
    await page.getByRole('checkbox', { name: `Choose ${made[1]!.rollout_id}` }).check();
    const bar = page.getByRole('region', { name: 'Actions' });
    const dialog = page.getByRole('dialog');

    await bar.getByRole('button', { name: 'Cancel' }).click();
    await dialog.getByRole('button', { name: 'Leave it' }).click();
    expect(await status(made[0]!.rollout_id)).toBe('queuing');

    await bar.getByRole('button', { name: 'Cancel' }).click();
    await expect(dialog).toContainText('Cancel 2 rollouts?');
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await expect.poll(() => status(made[1]!.rollout_id)).toBe('cancelled');
    expect(await status(made[2]!.rollout_id)).toBe('queuing');
    await expect(bar).toContainText('Nothing chosen'); // what was done is chosen no more

    await page.getByRole('checkbox', { name: `Choose ${made[0]!.rollout_id}` }).check();
    await bar.getByRole('button', { name: 'Retry' }).click();
    await dialog.getByRole('button', { name: 'Retry' }).click();
    await expect.poll(() => status(made[0]!.rollout_id)).toBe('requeuing');

    await bar.getByRole('button', { name: /All 3/ }).click();
    const download = page.waitForEvent('download');
    await page.getByRole('menuitem', { name: 'Export all' }).click();
    await dialog.getByRole('button', { name: 'Export' }).click();
    const text = await readFile(await (await download).path(), 'utf8');
    expect(text.trim().split('\n').map((l) => (JSON.parse(l) as { rollout_id: string }).rollout_id).sort()).toEqual(made.map((m) => m.rollout_id).sort());

    await bar.getByRole('button', { name: /All 3/ }).click();
    await page.getByRole('menuitem', { name: 'Delete all' }).click();
    await dialog.getByRole('button', { name: 'Delete' }).click();
    await expect(page.getByText('No rollout yet')).toBeVisible();
    expect(await status(made[2]!.rollout_id)).toBeUndefined();
  });

  test('the log of a run is followed, searched and filtered, all 20,000 lines of it', async ({ page }) => {
    test.setTimeout(120_000);
    const { run_id } = await own.call<{ run_id: string }>('v1/agl/runs', { algorithm: 'pg' });
    const path = `v1/agl/runs/${run_id}/log`;
    const line = (i: number) =>
      i === 7000 || i === 15_000
        ? { level: 'error', message: 'the learner broke', attributes: { err: `no disk at ${i}`, step: i } }
        : { level: i % 1000 === 0 ? 'warn' : 'info', message: 'step recorded', attributes: { step: i, 'training/reward': 0.5 } };
    for (let from = 1; from <= 20_001; from += 4000) await own.call(path, Array.from({ length: Math.min(4000, 20_003 - from) }, (_, k) => line(from + k)));

    const since = Date.now();
    await page.goto(`${own.url}/runs/${run_id}?tab=log`);
    const log = page.getByRole('region', { name: 'Log, scrolls' });
    await expect(log.getByText('step=20002')).toBeVisible(); // the newest, at the bottom
    console.log(`the end of a log of 20,000 lines: ${Date.now() - since} ms`);
    await expect(page.getByText('20,000 lines, 2 errors, 18 warnings; 2 older ones have gone: a run keeps its newest')).toBeVisible();
    console.log(`all of it: ${Date.now() - since} ms`);
    expect(await log.getByRole('listitem').count()).toBeLessThan(120);
    await accessible(page);

    // What is said appears by itself, and moves nothing that is being read.
    await own.call(path, [{ level: 'info', message: 'hello there' }]);
    await log.scrollIntoViewIfNeeded();
    await expect(log.getByText('hello there')).toBeInViewport();
    await log.evaluate((el) => (el.scrollTop = 0));
    await expect(log.getByText('step=4', { exact: false }).first()).toBeInViewport();
    await expect(page.getByRole('button', { name: 'Follow the end' })).toBeVisible();
    await own.call(path, [{ level: 'info', message: 'not seen yet' }]);
    await expect(page.getByText(/4 older ones have gone/)).toBeVisible();
    expect(await log.evaluate((el) => el.scrollTop)).toBeLessThan(100);
    await page.getByRole('button', { name: 'Follow the end' }).click();
    await expect(log.getByText('not seen yet')).toBeInViewport();

    // Errors are a click away.
    await page.getByRole('button', { name: 'The next error' }).click();
    await expect(log.getByText('no disk at 7000')).toBeInViewport();
    await page.getByRole('button', { name: 'The next error' }).click();
    await expect(log.getByText('no disk at 15000')).toBeInViewport();
    await page.getByRole('button', { name: 'The error before' }).click();
    await log.getByRole('button', { name: /no disk at 7000/ }).click();
    await expect(log.getByText('line 7,000')).toBeVisible();

    await page.getByText('Errors 2').click();
    await expect(log.getByRole('listitem')).toHaveCount(2);
    await expect(page).toHaveURL(/level=error/);
    await page.getByText('All', { exact: true }).click();
    await page.getByRole('searchbox', { name: 'Search the log' }).fill('NO DISK AT 15');
    await expect(log.getByRole('listitem')).toHaveCount(1);
    await expect(log.locator('mark')).toHaveText('no disk at 15');
    await expect(page).toHaveURL(/find=NO/);
    await page.reload();
    await expect(log.getByRole('listitem')).toHaveCount(1);
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Download' }).click();
    expect(JSON.parse(await readFile(await (await download).path(), 'utf8'))).toMatchObject({ position: 15_000, level: 'error', message: 'the learner broke' });
    await page.getByRole('searchbox', { name: 'Search the log' }).fill('nobody said this');
    await expect(page.getByText('No line fits')).toBeVisible();
  });

  test('a run that failed leads to what it said', async ({ page }) => {
    const { run_id } = await own.call<{ run_id: string }>('v1/agl/runs', { algorithm: 'pg' });
    await page.goto(`${own.url}/runs/${run_id}?tab=log`);
    await expect(page.getByText('This run has said nothing')).toBeVisible();
    await own.call(`v1/agl/runs/${run_id}/log`, [{ level: 'error', message: 'run failed', attributes: { err: 'the trainer is gone' } }]);
    await own.call(`v1/agl/runs/${run_id}`, { status: 'failed', error: 'the trainer is gone' });
    await expect(page.getByRole('alert')).toContainText('the trainer is gone');
    await expect(page.getByRole('listitem')).toContainText('run failed');
    await page.goto(`${own.url}/runs/${run_id}`);
    await page.getByRole('alert').getByRole('link', { name: 'What it said before that' }).click();
    await expect(page.getByRole('region', { name: 'Log, scrolls' }).getByText('err="the trainer is gone"')).toBeVisible();
  });

  test('runs are deleted, after a question', async ({ page }) => {
    const ids: string[] = [];
    for (let i = 0; i < 11; i++) {
      const { run_id } = await own.call<{ run_id: string }>('v1/agl/runs', { algorithm: 'doomed' });
      if (i > 0) await own.call(`v1/agl/runs/${run_id}`, { status: 'failed' });
      ids.push(run_id);
    }
    const left = async () => (await own.call<{ run_id: string; algorithm: string }[]>('v1/agl/runs')).filter((r) => r.algorithm === 'doomed').map((r) => r.run_id);
    await page.goto(`${own.url}/runs`);
    const choose = async (id: string) => {
      const box = page.getByRole('checkbox', { name: `Compare ${id}` });
      await box.click();
      await expect(box).toBeChecked();
      await expect(page.getByText('These runs have recorded no metrics yet.')).toBeVisible(); // nothing moves any more
    };
    await choose(ids[0]!);
    await choose(ids[1]!);
    const bar = page.getByRole('region', { name: 'Actions' });
    const dialog = page.getByRole('dialog');
    await bar.getByRole('button', { name: 'Delete' }).click();
    await expect(dialog).toContainText('Delete 1 run?'); // the other one is running
    await dialog.getByRole('button', { name: 'Leave it' }).click();
    expect(await left()).toHaveLength(11);
    await bar.getByRole('button', { name: 'Delete' }).click();
    await accessible(page);
    await dialog.getByRole('button', { name: 'Delete 1 run' }).click();
    await expect.poll(left).toHaveLength(10);
    expect(await left()).toContain(ids[0]);
    await expect(bar).toContainText('1 chosen');

    await bar.getByRole('button', { name: 'Choose none' }).click();
    for (const id of ids.slice(0, 1).concat(ids.slice(2))) await choose(id);
    await expect(page.getByText('The first 8 that were chosen are compared.')).toBeVisible();
    await bar.getByRole('button', { name: 'Delete' }).click();
    await dialog.getByRole('checkbox', { name: /called running/ }).check();
    await dialog.getByRole('button', { name: 'Delete 10 runs' }).click();
    await expect.poll(left).toHaveLength(0);
    await page.goto(`${own.url}/runs/${ids[0]!}`);
    await expect(page.getByText('It may have been deleted')).toBeVisible();
  });

  test('rollouts are scored again on the server, after a question', async ({ page }) => {
    const a = await longAttempt(own, 20);
    const b = await longAttempt(own, 20);
    const [waiting] = await enqueue(1);
    await page.goto(`${own.url}/rollouts`);
    await page.getByRole('checkbox', { name: 'Choose the rows on the screen' }).check();
    const bar = page.getByRole('region', { name: 'Actions' });
    const dialog = page.getByRole('dialog');
    await bar.getByRole('button', { name: 'Score again' }).click();
    await expect(dialog).toContainText('Score 3 rollouts again?');
    await accessible(page);
    await dialog.getByLabel('Name of the set').fill('doubled');
    await dialog.getByLabel(/Expression/).fill('reward *');
    await dialog.getByRole('button', { name: 'Score again' }).click();
    await expect(dialog.getByRole('alert')).toContainText('Syntax error');
    expect(await own.call<unknown[]>('v1/agl/rescores')).toEqual([]);
    await dialog.getByLabel(/Expression/).fill('reward * 2.0');
    await dialog.getByRole('button', { name: 'Score again' }).click();
    await expect(dialog).toBeHidden();
    const set = page.getByLabel('Set doubled', { exact: true });
    await expect(set).toContainText('2 scored of 3, 1 has not ended; mean 1, before 0.5');
    await expect(set).toContainText('succeeded');
    await accessible(page);

    // All that are found, which have a reward in the set already.
    await bar.getByRole('button', { name: /All 3/ }).click();
    await page.getByRole('menuitem', { name: /Score all/ }).click();
    await dialog.getByLabel('Name of the set').fill('doubled');
    await dialog.getByLabel(/Expression/).fill('reward * 2.0');
    await dialog.getByRole('button', { name: 'Score again' }).click();
    await expect(set.first()).toContainText('2 had a reward in it');
    for (const r of [a, b]) {
      await page.goto(`${own.url}/rollouts/${r.rollout_id}?tab=rewards`);
      await expect(page.getByRole('row', { name: /doubled primary 1 / })).toBeVisible();
      await expect(page.getByRole('row', { name: /of the agent primary 0.5/ })).toContainText('the final reward');
    }
    expect(await status(waiting!.rollout_id)).toBe('queuing');
  });

  test('one rollout is cancelled and deleted on its page', async ({ page }) => {
    const [one] = await enqueue(1);
    await page.goto(`${own.url}/rollouts/${one!.rollout_id}`);
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    await expect.poll(() => status(one!.rollout_id)).toBe('cancelled');
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await expect(page).toHaveURL(/\/rollouts$/);
  });

  test('an attempt of 20,000 spans opens within a second, and all of it can be reached', async ({ page }) => {
    test.setTimeout(180_000);
    const { rollout_id: id } = await longAttempt(own, 20_000);
    const { rollout_id: short } = await longAttempt(own, 20);
    const open = async (rollout: string, spans: string) => {
      await page.goto(`${own.url}/store`);
      await expect(page.locator('[data-state=live]')).toBeVisible();
      const began = Date.now();
      await page.goto(`${own.url}/rollouts/${rollout}`);
      await page.waitForFunction((n) => {
        const text = document.body.textContent;
        return text.includes(`Timeline (${n})`) && text.includes('I do thing 10.') && text.includes('Reward0.5') && !text.includes('spans so far');
      }, spans);
      return Date.now() - began;
    };
    const took: number[] = [];
    const small: number[] = [];
    for (let i = 0; i < 5; i++) {
      took.push(await open(id, '20,000'));
      small.push(await open(short, '20'));
    }
    console.log(`from the address to all of an attempt: ${took.join(', ')} ms with 20,000 spans, ${small.join(', ')} ms with 20`);
    // A machine that others use, too, is slow with both.
    expect(Math.min(...took)).toBeLessThan(Math.max(1000, 3 * Math.min(...small)));

    await page.goto(`${own.url}/rollouts/${id}`);
    await page.getByRole('button', { name: /^Go on: 1,9\d\d more calls/ }).click();
    await expect(page.getByText('I do thing 2000.')).toBeVisible();

    await page.getByRole('tab', { name: /Timeline/ }).click();
    const list = page.getByRole('region', { name: 'Spans by time, scrolls' });
    await list.evaluate((el) => el.scrollTo({ top: el.scrollHeight }));
    await list.getByRole('button', { name: /^20000 / }).click();
    await expect(page.getByRole('region', { name: 'Span agentlightning.annotation' })).toContainText('agentlightning.reward.0.value');
    await page.getByLabel('Find spans by name or id').fill('0000000000000010');
    await list.getByRole('button', { name: /^16 / }).click();
    await expect(page.getByRole('region', { name: 'Span tool.2' })).toContainText('the output of 16');
    await page.getByLabel('Find spans by name or id').fill('');
    await page.getByRole('button', { name: 'Save the tree' }).click();
    const download = page.waitForEvent('download');
    await page.getByRole('menuitem', { name: /DOT/ }).click();
    expect((await readFile(await (await download).path(), 'utf8')).split(' -> ')).toHaveLength(18_001);

    await page.getByRole('tab', { name: 'Tokens' }).click();
    await expect(page.locator('.tokens')).toHaveCount(50);
    await page.getByRole('button', { name: 'Go on: 1,949 more calls' }).click();
    await expect(page.locator('.tokens')).toHaveCount(100);

    await page.getByRole('tab', { name: 'Rewards' }).click();
    await expect(page.getByRole('row', { name: /of the agent primary 0.5 span 20000/ })).toContainText('the final reward');

    await page.getByRole('tab', { name: 'Raw' }).click();
    await page.getByRole('button', { name: 'Show more of the 20,000 spans' }).click();
    await expect(page.getByLabel('Spans as JSON', { exact: true })).toContainText('the output of 219');
  });

  test('the server is checked on demand, and says what is wrong', async ({ page }) => {
    await own.call('v1/agl/models', [{ model: 'gone', endpoint: 'http://127.0.0.1:9/v1' }]);
    await page.goto(`${own.url}/store`);
    const card = page.getByRole('region', { name: 'Checks', exact: true });
    await card.getByRole('button', { name: 'Check now' }).click();
    await expect(card.getByRole('row', { name: /^database good .*agl.db is sound/ })).toBeVisible();
    await expect(card.getByRole('row', { name: /^disk/ })).toBeVisible();
    await expect(card.getByRole('row', { name: /bad .*127\.0\.0\.1:9/ })).toBeVisible();
    await expect(card.getByText(/need a look/)).toBeVisible();
    await accessible(page);
  });

  test('what is old is looked at, and deleted after a question', async ({ page }) => {
    await own.close();
    own = await Server.start();
    allowed = [own.url];
    const total = async () => (await own.call<{ total_rollouts: number }>('v1/agl/statistics')).total_rollouts;
    await own.call('v1/agl/queues/rollouts/enqueue', { rollouts: [{ input: 'waits' }] });
    const all = await total();
    const ended = (await own.call<Found>('v1/agl/browse/rollouts?status_in=succeeded&status_in=failed&status_in=cancelled&limit=1')).total;
    await page.goto(`${own.url}/store`);
    const card = page.getByRole('region', { name: 'Retention', exact: true });
    const age = card.getByLabel('Ended longer ago than');
    await age.fill('long ago');
    await expect(card.getByText('Write it as 12h, 30d or 2w')).toBeVisible();
    await expect(card.getByRole('button', { name: 'See what would go' })).toBeDisabled();

    await age.fill('365d');
    await card.getByRole('button', { name: 'See what would go' }).click();
    await expect(card.getByText(/^Nothing ended before/)).toBeVisible();
    await expect(card.getByText(/that ended since\./)).toContainText(ended.toLocaleString('en-GB'));
    await expect(card.getByRole('button', { name: /^Delete/ })).toHaveCount(0);

    await age.fill('0s');
    await card.getByRole('button', { name: 'See what would go' }).click();
    const would = card.getByText(/^Would go:/);
    await expect(would).toContainText(new RegExp(`${ended.toLocaleString('en-GB')} rollouts, .* about [\\d.]+ [KM]iB\\. The first of the rollouts ended`));
    await expect(card.getByText(/never deleted, however old/)).toContainText(/^1 rollout/);
    await accessible(page);
    await card.getByRole('button', { name: 'Delete …' }).click();
    const dialog = page.getByRole('dialog', { name: `Delete ${ended.toLocaleString('en-GB')} rollouts?` });
    await dialog.getByRole('button', { name: 'Leave it' }).click();
    expect(await total()).toBe(all);

    await card.getByRole('button', { name: 'Delete …' }).click();
    await dialog.getByRole('button', { name: 'Delete', exact: true }).click();
    await expect(card.getByText(/^succeeded Deleted: /)).toContainText(`${ended.toLocaleString('en-GB')} rollouts`, { timeout: 60_000 });
    await expect(card.getByText(/The file keeps its size until/)).toBeVisible();
    expect(await total()).toBe(all - ended);
    await expect(page.getByRole('link', { name: `Rollouts ${(all - ended).toLocaleString('en-GB')}` })).toBeVisible();
    await accessible(page);
  });

  test('model calls are paused, drained and resumed', async ({ page }) => {
    const paused = async () => (await own.call<{ paused: boolean }>('proxy/state')).paused;
    await page.goto(`${own.url}/models`);
    for (const action of ['Pause', 'Drain']) {
      await page.getByRole('button', { name: action }).click();
      await page.getByLabel(/Reason/).fill('new weights');
      await page.getByRole('dialog').getByRole('button', { name: action }).click();
      await expect(page.getByText(/Paused: new weights/)).toBeVisible();
      expect(await paused()).toBe(true);
      await page.getByRole('button', { name: 'Resume' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Resume' }).click();
      await expect(page.getByText(/^Open\./)).toBeVisible();
      expect(await paused()).toBe(false);
    }
  });

  test('a backend that fails is named, with since when and why, and a single one is paused, drained and resumed', async ({ page }) => {
    test.setTimeout(120_000);
    const [good, bad] = [await modelBackend(), await modelBackend()];
    try {
      await own.call('v1/agl/models', [
        { model: 'good', endpoint: good.url },
        { model: 'bad', endpoint: bad.url },
      ]);
      const ask = async (model: string) => {
        const { rollout_id, attempt } = await own.call<{ rollout_id: string; attempt: { attempt_id: string } }>('v1/agl/rollouts', { input: 'x' });
        const res = await fetch(`${own.url}/rollout/${rollout_id}/attempt/${attempt.attempt_id}/v1/chat/completions`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ model, messages: [{ role: 'user', content: 'x' }] }),
        });
        return { status: res.status, text: await res.text() };
      };
      for (let i = 0; i < 10; i++) expect((await ask('good')).status).toBe(200);
      expect((await ask('bad')).status).toBe(200);
      bad.fails('no room on the card');
      for (let i = 0; i < 3; i++) expect((await ask('bad')).status).toBe(503);

      await page.goto(`${own.url}/models`);
      const answer = page.getByRole('region', { name: 'Is a backend slow or failing?' });
      await expect(answer.getByRole('listitem')).toHaveText(new RegExp(`^bad at ${bad.url}: failing since .*, for \\d.*: the backend answered 503: no room on the card`));
      const row = (model: string) => page.getByRole('region', { name: 'Backends, scrolls' }).getByRole('row', { name: new RegExp(`^${model} `) });
      await expect(row('bad').getByRole('cell').nth(6)).toHaveText('4');
      await expect(row('bad').getByRole('cell').nth(7)).toHaveText('3');
      await expect(row('good')).toContainText('ok');
      const curves = page.getByRole('region', { name: 'Over time', exact: true });
      await expect(curves.getByRole('img', { name: /^Answer tokens \/ s\. / })).toBeVisible({ timeout: 40_000 });
      await expect(curves.getByText(/^The server started .* remembers nothing from before; a point every 5 s/)).toBeVisible();
      await curves.getByText('24 hours').click();
      await expect(curves.getByText(/a point every 1 min|two minutes after/).first()).toBeVisible();
      await accessible(page);

      bad.fails('');
      expect((await ask('bad')).status).toBe(200);
      await expect(answer).toContainText('No. All that were called answer', { timeout: 15_000 });
      const happened = page.getByRole('region', { name: 'What happened', exact: true });
      await expect(happened.getByRole('row', { name: /answers again after/ })).toContainText(bad.url);
      await expect(happened.getByRole('row', { name: /failed three calls in a row/ })).toContainText('no room on the card');

      await page.getByRole('button', { name: `Pause good at ${good.url}` }).click();
      const dialog = page.getByRole('dialog');
      await expect(dialog).toContainText('It is the only backend of its model');
      await dialog.getByRole('button', { name: 'Leave it' }).click();
      expect((await ask('good')).status).toBe(200);
      await page.getByRole('button', { name: `Drain good at ${good.url}` }).click();
      await dialog.getByLabel(/Reason/).fill('new weights');
      await dialog.getByRole('button', { name: 'Drain' }).click();
      await expect(row('good')).toContainText(/paused\s*for .*new weights/);
      await expect(answer).toContainText(`good at ${good.url}: paused since`);
      const refused = await ask('good');
      expect(refused.status).toBe(429);
      expect(refused.text).toContain('new weights');
      expect((await ask('bad')).status).toBe(200);
      await expect(happened.getByRole('row', { name: /drained: no open call/ })).toBeVisible();
      await page.getByRole('button', { name: `Resume good at ${good.url}` }).click();
      await dialog.getByRole('button', { name: 'Resume' }).click();
      await expect(row('good')).toContainText('ok');
      expect((await ask('good')).status).toBe(200);

      // The same numbers on the first page, and on that of the store.
      bad.fails('no room on the card');
      for (let i = 0; i < 3; i++) await ask('bad');
      await page.goto(`${own.url}/`);
      await expect(page.getByRole('region', { name: 'Needs attention' })).toContainText(`Model bad at ${bad.url} is failing for`);
      const rates = page.getByRole('region', { name: 'Calls and tokens per second' });
      await expect(rates.getByRole('img', { name: /^Model calls \/ s\. calls: from/ })).toBeVisible({ timeout: 20_000 });
      await expect(rates.getByRole('img', { name: /^Tokens \/ s\. answers: from/ })).toBeVisible();
      await page.goto(`${own.url}/store`);
      await expect(page.getByRole('img', { name: /^Spans and rollouts stored\. spans: from \d+ to \d+; rollouts: from/ })).toBeVisible({ timeout: 20_000 });
      await expect(page.getByRole('img', { name: /^Database with its log, MiB\. MiB: from/ })).toBeVisible();
      await expect(page.getByRole('img', { name: /^Commits \/ s\. commits: from/ })).toBeVisible();
    } finally {
      await Promise.all([good.close(), bad.close()]);
    }
  });

  test('what happens appears by itself, and again after the server was gone', async ({ page }) => {
    test.setTimeout(120_000);
    let streams = 0;
    page.on('request', (r) => (streams += Number(r.url().endsWith('/v1/agl/events'))));
    await page.goto(`${own.url}/rollouts`);
    await expect(page.locator('[data-state=live]')).toBeVisible();
    await enqueue(2);
    await expect(page.getByText('2 rollouts', { exact: true })).toBeVisible();
    expect(streams).toBeLessThanOrEqual(2); // React's strict mode starts twice in development only
    await own.stop();
    await expect(page.locator('[data-state=retrying]')).toBeVisible();
    await own.run();
    await expect(page.locator('[data-state=live]')).toBeVisible({ timeout: 30_000 });
    await enqueue(1);
    await expect(page.getByText('3 rollouts', { exact: true })).toBeVisible();
  });

  test('a busy server does not freeze a page', async ({ page }) => {
    await page.goto(`${own.url}/rollouts`);
    await expect(page.locator('[data-state=live]')).toBeVisible();
    let asked = 0;
    page.on('request', (r) => (asked += Number(r.url().includes('/v1/agl/'))));
    await page.evaluate(() => {
      const w = window as unknown as { longest: number };
      w.longest = 0;
      let last = performance.now();
      const tick = () => {
        const now = performance.now();
        w.longest = Math.max(w.longest, now - last);
        last = now;
        setTimeout(tick, 10);
      };
      tick();
    });
    const began = Date.now();
    let made = 0;
    while (Date.now() - began < 4000) {
      await enqueue(2000);
      made += 2000;
    }
    const seconds = (Date.now() - began) / 1000;
    const longest = await page.evaluate(() => (window as unknown as { longest: number }).longest);
    console.log(`${Math.round(made / seconds)} changes/s; the page stood still for ${Math.round(longest)} ms at the most and asked ${(asked / seconds).toFixed(1)} times a second`);
    expect(longest).toBeLessThan(1000);
    expect(asked / seconds).toBeLessThan(8);
    await expect(page.getByText(`${made.toLocaleString('en-GB')} rollouts`, { exact: true })).toBeVisible();
  });
});

test.describe('with a token', () => {
  let own: Server;
  test.beforeAll(async () => {
    own = await Server.start({ empty: true, args: ['--auth-token', 'secret'] });
  });
  test.afterAll(async () => {
    await own.close();
  });

  test('the server asks for it, takes it, and forgets it with the tab', async ({ page, context }) => {
    allowed = [own.url];
    await page.goto(`${own.url}/rollouts`);
    const token = page.getByLabel('Token', { exact: true });
    await accessible(page);
    await token.fill('wrong');
    await page.getByRole('button', { name: 'Open' }).click();
    await expect(page.getByText(/another token/)).toBeVisible();
    await token.fill('secret');
    await page.keyboard.press('Enter');
    await expect(page.getByText('No rollout yet')).toBeVisible();
    await expect(page.locator('[data-state=live]')).toBeVisible();
    await page.reload();
    await expect(page.getByText('No rollout yet')).toBeVisible();
    expect(await page.evaluate(() => [Object.values(localStorage), document.cookie].join(' '))).not.toContain('secret');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await expect(token).toBeVisible();
    const other = await context.newPage();
    await other.goto(own.url);
    await expect(other.getByLabel('Token', { exact: true })).toBeVisible();
  });
});

test('the theme is changed by hand and kept', async ({ page }) => {
  await page.emulateMedia({ colorScheme: 'light' });
  await page.goto(server.url);
  const html = page.locator('html');
  await expect(html).toHaveAttribute('data-mantine-color-scheme', 'light');
  const button = page.getByRole('button', { name: /Theme is/ });
  await button.click();
  await button.click();
  await expect(html).toHaveAttribute('data-mantine-color-scheme', 'dark');
  await page.reload();
  await expect(html).toHaveAttribute('data-mantine-color-scheme', 'dark');
});

test('it works below another path, behind a proxy that takes the path away', async ({ page }) => {
  const { createServer, request } = await import('node:http');
  const proxy = createServer((req, res) => {
    const inner = request(server.url + (req.url ?? '/').replace(/^\/tools\/agl/, ''), { method: req.method, headers: req.headers }, (got) => {
      res.writeHead(got.statusCode ?? 502, got.headers);
      got.pipe(res);
    });
    inner.on('error', () => res.destroy());
    req.pipe(inner);
    res.on('close', () => inner.destroy());
  });
  await new Promise<void>((r) => proxy.listen(0, '127.0.0.1', r));
  const address = proxy.address();
  const url = `http://127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`;
  allowed = [`${url}/tools/agl/`];
  await page.goto(`${url}/tools/agl/rollouts/${rollout}`);
  await expect(page.getByText(/primary:/).first()).toBeVisible();
  await page.getByRole('link', { name: 'Runs' }).click();
  await expect(page).toHaveURL(`${url}/tools/agl/runs`);
  await expect(page.locator('[data-state=live]')).toBeVisible();
  await page.close();
  proxy.closeAllConnections();
  await new Promise((r) => proxy.close(r));
});

test('the first load is small', async ({ page }) => {
  let bytes = 0;
  const sizes: Promise<void>[] = [];
  page.on('requestfinished', (r) => {
    if (/\/assets\/|\/$/.test(r.url())) sizes.push(r.sizes().then((s) => void (bytes += s.responseBodySize)));
  });
  await page.goto(server.url);
  await expect(page.getByText(/Reward went from/)).toBeVisible();
  await Promise.all(sizes);
  console.log(`first load: ${(bytes / 1024).toFixed(0)} KiB gzipped`);
  expect(bytes).toBeLessThan(450 * 1024);
});
