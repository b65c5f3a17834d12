// The real server over a copy of a database that examples/calc has made.
import { type ChildProcess, spawn } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer as createHTTP } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export function need(name: string): string {
  const value = process.env[name];
  if (value === undefined || value === '') throw new Error(`${name} is not set: run the tests by 'bash .ci/run browser'`);
  return value;
}

async function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const s = createServer();
    s.on('error', reject);
    s.listen(0, '127.0.0.1', () => {
      const address = s.address();
      s.close(() => (typeof address === 'object' && address ? resolve(address.port) : reject(new Error('no port'))));
    });
  });
}

export class Server {
  private process: ChildProcess | undefined;
  private log = '';

  private constructor(
    readonly url: string,
    private readonly port: number,
    private readonly folder: string,
    private readonly args: string[],
  ) {}

  static async start(options: { empty?: boolean; args?: string[]; database?: string } = {}): Promise<Server> {
    const folder = mkdtempSync(join(tmpdir(), 'agl-browser-'));
    if (!options.empty) copyFileSync(options.database ?? need('AGL_DATABASE'), join(folder, 'agl.db'));
    const port = await freePort();
    const server = new Server(`http://127.0.0.1:${port}`, port, folder, options.args ?? []);
    await server.run();
    return server;
  }

  async run(): Promise<void> {
    const child = spawn(need('AGL_BINARY'), ['serve', '--port', String(this.port), '--db', `sqlite:${join(this.folder, 'agl.db')}`, ...this.args], { stdio: ['ignore', 'pipe', 'pipe'] });
    this.process = child;
    child.stdout.on('data', (d: Buffer) => (this.log += d.toString()));
    child.stderr.on('data', (d: Buffer) => (this.log += d.toString()));
    const until = Date.now() + 20_000;
    for (;;) {
      if (child.exitCode !== null || Date.now() > until) throw new Error(`the server did not start:\n${this.log}`);
      try {
        if ((await fetch(`${this.url}/healthz`)).ok) return;
      } catch {
        // not yet
      }
      await new Promise((r) => setTimeout(r, 50));
    }
  }

  /** Ends the process; the database stays for the next run. */
  async stop(): Promise<void> {
    const child = this.process;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((r) => child.once('exit', r));
    child.kill('SIGTERM');
    await ended;
  }

  async close(): Promise<void> {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async call<T>(path: string, body?: unknown, token = ''): Promise<T> {
    const res = await fetch(`${this.url}/${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { 'content-type': 'application/json', ...(token === '' ? {} : { authorization: `Bearer ${token}` }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (!res.ok) throw new Error(`${path}: ${res.status} ${await res.text()}`);
    return res.json() as Promise<T>;
  }
}

/** A model backend: it answers with so many tokens, or fails while it is told to. */
export async function modelBackend(): Promise<{ url: string; fails: (text: string) => void; close: () => Promise<void> }> {
  let failure = '';
  const s = createHTTP((req, res) => {
    req.resume();
    req.on('end', () => {
      res.setHeader('content-type', 'application/json');
      if (failure !== '') {
        res.statusCode = 503;
        res.end(JSON.stringify({ error: { message: failure } }));
        return;
      }
      res.end(JSON.stringify({ choices: [{ index: 0, message: { role: 'assistant', content: 'hi' }, finish_reason: 'stop' }], usage: { prompt_tokens: 30, completion_tokens: 20, total_tokens: 50 } }));
    });
  });
  await new Promise<void>((resolve) => s.listen(0, '127.0.0.1', resolve));
  const address = s.address();
  return {
    url: `http://127.0.0.1:${typeof address === 'object' && address ? address.port : 0}/v1`,
    fails: (text) => (failure = text),
    close: async () => {
      s.closeAllConnections();
      await new Promise((resolve) => s.close(resolve));
    },
  };
}

/** An attempt of many spans: every tenth is a model call, below which are calls of tools, and the last is a reward. */
export async function longAttempt(server: Server, n: number): Promise<{ rollout_id: string; attempt: { attempt_id: string } }> {
  const made = await server.call<{ rollout_id: string; attempt: { attempt_id: string } }>('v1/agl/rollouts', { input: 'a long task' });
  const { rollout_id, attempt } = made;
  const hex = (i: number, digits: number) => i.toString(16).padStart(digits, '0');
  const list = <T>(length: number, f: (k: number) => T) => Array.from({ length }, (_, k) => f(k));
  const attributes = (i: number): Record<string, unknown> => {
    if (i === n) return { 'agentlightning.reward.0.name': 'primary', 'agentlightning.reward.0.value': 0.5 };
    if (i % 10 !== 0) return { 'tool.name': `tool_${i % 7}`, 'tool.input': 'in '.repeat(130), 'tool.output': `the output of ${i}, `.repeat(30) };
    return {
      'gen_ai.request.model': 'm',
      'gen_ai.usage.input_tokens': 400,
      'gen_ai.usage.output_tokens': 60,
      'gen_ai.prompt.0.role': 'system',
      'gen_ai.prompt.0.content': 'You are a careful agent. '.repeat(20),
      'gen_ai.prompt.1.role': 'user',
      'gen_ai.prompt.1.content': `Step ${i}: what now? ${'and '.repeat(100)}`,
      'gen_ai.completion.0.role': 'assistant',
      'gen_ai.completion.0.content': `I do thing ${i}. ${'so '.repeat(60)}`,
      prompt_token_ids: list(400, (k) => (k * 7 + i) % 30000),
      response_token_ids: list(60, (k) => (k * 13) % 30000),
      response_logprobs: list(60, (k) => -((k * 37) % 100) / 50),
    };
  };
  const span = (i: number) => ({
    rollout_id,
    attempt_id: attempt.attempt_id,
    sequence_id: i,
    trace_id: hex(1, 32),
    span_id: hex(i, 16),
    parent_id: i % 10 === 1 ? null : hex(i - ((i - 1) % 10), 16),
    name: i === n ? 'agentlightning.annotation' : i % 10 === 0 ? 'openai.chat.completion' : `tool.${i % 7}`,
    status: { status_code: 'OK', description: null },
    attributes: attributes(i),
    events: [],
    links: [],
    start_time: 1.7e9 + i * 0.1,
    end_time: 1.7e9 + i * 0.1 + 0.08,
    context: null,
    parent: null,
    resource: { attributes: {}, schema_url: '' },
  });
  for (let from = 0; from < n; from += 1000) await server.call('v1/agl/spans/batch', { spans: list(Math.min(1000, n - from), (k) => span(from + k + 1)) });
  await server.call(`v1/agl/rollouts/${rollout_id}/attempts/${attempt.attempt_id}`, { status: 'succeeded' });
  return made;
}
