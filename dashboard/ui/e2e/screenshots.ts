// Takes the pictures of docs/dashboard.md from a server that runs, see there.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from '@playwright/test';

const url = process.env['AGL_URL'] ?? 'http://127.0.0.1:4747';
/** Names of pages, when not all of them are wanted. */
const only = (process.env['AGL_PAGES'] ?? '').split(',').filter((name) => name !== '');
const folder = join(import.meta.dirname, '../../../docs/dashboard');

async function json<T>(path: string): Promise<T> {
  const res = await fetch(`${url}/v1/agl/${path}`);
  if (!res.ok) throw new Error(`${path}: ${res.status}`);
  return res.json() as Promise<T>;
}

test('screenshots', async ({ browser }) => {
  test.setTimeout(600_000);
  const runs = await json<{ run_id: string; algorithm: string }[]>('runs');
  const alike = runs.filter((r) => r.algorithm === 'pg');
  const run = alike[0]?.run_id;
  if (run === undefined) throw new Error('the server has no run of examples/calc');
  const found = await json<{ items: { rollout_id: string }[] }>(`browse/rollouts?run_id=${run}&mode_in=train&limit=1&step=1`);
  const rollout = found.items[0]!.rollout_id;

  const pages: [string, string][] = [
    ['overview', '/'],
    ['runs', `/runs?${alike.slice(0, 2).map((r) => `run=${r.run_id}`).join('&')}`],
    ['run', `/runs/${run}`],
    ['batches', `/runs/${run}?tab=batches&step=1`],
    ['samples', `/runs/${run}?tab=samples`],
    ['log', `/runs/${run}?tab=log`],
    ['rollouts', `/rollouts?run_id=${run}&step=1&sort=reward`],
    ['rollout', `/rollouts/${rollout}`],
    ['tokens', `/rollouts/${rollout}?tab=tokens`],
    ['timeline', `/rollouts/${rollout}?tab=timeline`],
    ['training', `/rollouts/${rollout}?tab=training`],
    ['groups', `/groups?run=${run}&step=1`],
    ['group', `/groups?run=${run}&step=1&group=1`],
    ['resources', '/resources'],
    ['models', '/models'],
    ['workers', '/workers'],
    ['store', '/store'],
  ];

  const unknown = only.filter((name) => !pages.some(([known]) => known === name));
  if (unknown.length > 0) throw new Error(`AGL_PAGES: there is no page ${unknown.join(', ')}; there are ${pages.map(([name]) => name).join(', ')}`);
  mkdirSync(folder, { recursive: true });
  for (const colorScheme of ['light', 'dark'] as const) {
    const context = await browser.newContext({ viewport: { width: 1200, height: 760 }, colorScheme, reducedMotion: 'reduce' });
    const page = await context.newPage();
    for (const [name, path] of pages) {
      if (only.length > 0 && !only.includes(name)) continue;
      await page.goto(url + path);
      await page.locator('[data-state=live]').waitFor();
      await page.waitForFunction(() => document.querySelectorAll('[aria-busy=true], .mantine-Loader-root').length === 0);
      await page.evaluate(() => new Promise((r) => setTimeout(r, 700))); // charts are drawn in the next frames
      if (name === 'samples') await page.getByText('Most improved').evaluate((el) => window.scrollBy(0, el.getBoundingClientRect().top - 200));
      if (name === 'log') await page.getByRole('tab', { name: 'Log' }).evaluate((el) => window.scrollBy(0, el.getBoundingClientRect().top - 100));
      if (name === 'batches') await page.getByLabel('Step', { exact: true }).evaluate((el) => window.scrollBy(0, el.getBoundingClientRect().top - 100));
      await page.screenshot({ path: join(folder, `${name}-${colorScheme}.png`) });
    }
    await context.close();
  }
});
