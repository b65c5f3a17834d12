// Measures pages on a server with a large database, see bench/README.md: how long
// until they show their data, and for how long they stand still meanwhile.
import { expect, type Page, test } from '@playwright/test';

const url = process.env['AGL_URL'] ?? 'http://127.0.0.1:4747';
const looks = 3;

interface Stood {
  long: number;
  longest: number;
}

/** What kept the page from answering since the last call: tasks of more than 50 ms. */
async function stood(page: Page): Promise<Stood> {
  return page.evaluate(() => {
    const w = window as unknown as { tasks: number[] };
    const tasks = w.tasks.splice(0);
    return { long: tasks.length, longest: Math.round(Math.max(0, ...tasks)) };
  });
}

const rows = (page: Page) => page.locator('tr[data-row][aria-busy=false]');

async function heap(page: Page): Promise<number> {
  const session = await page.context().newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = (await session.send('Runtime.getHeapUsage')) as { usedSize: number };
  await session.detach();
  return Math.round(usedSize / 1e6);
}

test('pages of a large database', async ({ page }) => {
  await page.addInitScript(() => {
    const w = window as unknown as { tasks: number[] };
    w.tasks = [];
    new PerformanceObserver((list) => list.getEntries().forEach((e) => w.tasks.push(e.duration))).observe({ type: 'longtask', buffered: true });
  });
  const runs = (await (await fetch(`${url}/v1/agl/runs`)).json()) as { run_id: string }[];
  const run = runs[0]!.run_id;
  const found = async (query: string) => ((await (await fetch(`${url}/v1/agl/browse/rollouts?${query}`)).json()) as { items: { rollout_id: string; digest: { spans: number } }[]; total: number });
  const long = (await found('text=a+task+of&limit=10')).items.sort((a, b) => a.digest.spans - b.digest.spans);
  const short = (await found(`run_id=${run}&step=50&limit=1`)).items[0]!;

  const lines: string[] = ['| what | ms until it is seen | tasks over 50 ms | longest, ms |', '|---|---|---|---|'];
  const measure = async (name: string, act: () => Promise<unknown>, seen: () => Promise<unknown>) => {
    const took: number[] = [];
    let worst: Stood = { long: 0, longest: 0 };
    for (let i = 0; i < looks; i++) {
      const began = Date.now();
      await act();
      await seen();
      took.push(Date.now() - began);
      const s = await stood(page);
      if (s.longest > worst.longest) worst = s;
    }
    took.sort((a, b) => a - b);
    lines.push(`| ${name} | ${took[Math.floor(looks / 2)]} (${took[0]} to ${took.at(-1)}) | ${worst.long} | ${worst.longest} |`);
    console.log(lines.at(-1));
  };
  const open = (name: string, path: string, seen: () => Promise<unknown>) => measure(name, () => page.goto(url + path), seen);
  const firstRow = () => rows(page).first().waitFor();

  await open('overview', '/', () => page.getByText('Newest rollouts').waitFor());
  await open('list, newest first', '/rollouts', firstRow);
  console.log(`${await heap(page)} MB of heap with the list`);
  const grid = page.locator('.grid');
  let at = 0;
  await measure(
    'the list scrolled by 1,000 rows',
    async () => {
      at += 36_000;
      await grid.evaluate((el, top) => el.scrollTo({ top }), at);
    },
    () => page.waitForFunction((row) => document.querySelector(`tr[aria-rowindex="${row}"][aria-busy=false]`) !== null, at / 36 + 5),
  );
  await measure(
    'the list scrolled through 2,000 rows, 36 steps of a wheel',
    async () => {
      for (let i = 0; i < 36; i++) {
        at += 2000;
        await grid.evaluate((el, top) => {
          el.scrollTo({ top });
          return new Promise((r) => requestAnimationFrame(r));
        }, at);
      }
    },
    () => page.waitForFunction((row) => document.querySelector(`tr[aria-rowindex="${row}"][aria-busy=false]`) !== null, Math.round(at / 36) + 5),
  );
  console.log(`${await heap(page)} MB of heap after scrolling`);
  await open('list from row 500,000 on', '/rollouts?row=500000', firstRow);
  for (const [name, search] of [
    ['failed', 'status=failed'],
    ['a text that many have', 'text=friends'],
    ['a text that few have', 'text=task-000123'],
    ['metadata', 'tag=buses-3'],
    ['a worker', 'worker_id=night-03'],
    ['a run', `run_id=${run}`],
    ['a step of a run', `run_id=${run}&step=50`],
    ['reward from 0.9', 'reward_min=0.9'],
    ['a problem', 'problem=any'],
    ['sorted by reward', 'sort=-reward'],
    ['sorted by duration', 'sort=-duration'],
    ['a step of a run, by reward', `run_id=${run}&step=50&sort=-reward`],
  ] as const) {
    await open(`list: ${name}`, `/rollouts?${search}`, firstRow);
  }
  await page.goto(`${url}/rollouts`);
  await firstRow();
  await measure(
    'typing a search',
    async () => {
      await page.getByRole('searchbox', { name: /Search tasks/ }).fill('');
      await page.getByRole('searchbox', { name: /Search tasks/ }).pressSequentially('task-000123', { delay: 30 });
    },
    () => expect(rows(page).first()).toContainText('On bus'),
  );
  await open('a run', `/runs/${run}`, () => page.getByText('reward_std').first().waitFor());
  await open('groups of a step', `/groups?run=${run}&step=50`, () => page.getByText(/groups of step 50/).waitFor());
  await open('a group', `/groups?run=${run}&step=50&group=3`, () => page.getByText(/advantage/).first().waitFor());
  await open('resources', '/resources', () => page.getByText('main_llm').first().waitFor());
  await open('a rollout of 5 spans', `/rollouts/${short.rollout_id}`, () => page.getByText(/Timeline \(\d/).waitFor());
  for (const r of [long[0]!, long.at(-1)!]) {
    const n = r.digest.spans.toLocaleString('en-GB');
    await open(`a rollout of ${n} spans, the first`, `/rollouts/${r.rollout_id}`, () => page.getByText('Let me see').first().waitFor());
    await open(`a rollout of ${n} spans, all rows`, `/rollouts/${r.rollout_id}`, () => page.waitForFunction((text) => document.body.textContent.includes(`Timeline (${text})`) && !document.body.textContent.includes('spans so far'), n));
    await open(`its timeline`, `/rollouts/${r.rollout_id}?tab=timeline`, () => page.getByRole('button', { name: /^1 openai/ }).first().waitFor());
    console.log(`${await heap(page)} MB of heap with ${n} spans`);
  }
  console.log(`\n${lines.join('\n')}`);
});
