// The real server over a copy of a database that examples/calc has made.
import { type ChildProcess, spawn } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

function need(name: string): string {
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
