// How the page talks to its server: one origin, one token, errors in words.

const tokenKey = 'agl-token';

/** Thrown for every answer that is not a success. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** The address below which everything of the server lives; ends in a slash. */
export const base = typeof document === 'undefined' ? '/' : new URL('.', document.baseURI).pathname;

let token = typeof sessionStorage === 'undefined' ? '' : (sessionStorage.getItem(tokenKey) ?? '');
const deniedListeners = new Set<(reason: string) => void>();

export function hasToken(): boolean {
  return token !== '';
}

/** Keeps the token for as long as this tab lives. */
export function setToken(value: string): void {
  token = value;
  if (value === '') sessionStorage.removeItem(tokenKey);
  else sessionStorage.setItem(tokenKey, value);
}

/** Calls f whenever the server asks for another token. */
export function onDenied(f: (reason: string) => void): () => void {
  deniedListeners.add(f);
  return () => deniedListeners.delete(f);
}

export function headers(): Record<string, string> {
  return token === '' ? {} : { authorization: `Bearer ${token}` };
}

async function reason(res: Response): Promise<string> {
  const text = await res.text();
  try {
    const detail: unknown = (JSON.parse(text) as { detail?: unknown }).detail;
    if (typeof detail === 'string') return detail;
    if (Array.isArray(detail)) return detail.map((d: { loc?: unknown[]; msg?: string }) => `${(d.loc ?? []).slice(1).join('.')}: ${d.msg ?? ''}`).join('; ');
  } catch {
    // not JSON: the status says what there is to say
  }
  return `the server answered ${res.status} ${res.statusText}`.trim();
}

/** Sends a request below the base path and returns the answer once it is a success. */
export async function send(path: string, init: RequestInit = {}): Promise<Response> {
  let res: Response;
  try {
    res = await fetch(base + path, { ...init, headers: { ...headers(), ...(init.headers as Record<string, string> | undefined) } });
  } catch (err) {
    if (init.signal?.aborted) throw err;
    throw new ApiError(0, 'the server cannot be reached');
  }
  if (res.ok) return res;
  const why = await reason(res);
  if (res.status === 401) deniedListeners.forEach((f) => f(why));
  throw new ApiError(res.status, why);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await send(path, { signal })).json() as Promise<T>;
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  const res = await send(path, { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });
  const text = await res.text();
  return (text === '' ? null : JSON.parse(text)) as T;
}

export async function remove(path: string): Promise<void> {
  await send(path, { method: 'DELETE' });
}

type Value = string | number | boolean | undefined | null | readonly string[];

/** Writes a query string; what is empty is left out, lists repeat their name. */
export function query(values: Record<string, Value>): string {
  const q = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value === undefined || value === null || value === '') continue;
    if (Array.isArray(value)) value.forEach((v: string) => q.append(key, v));
    else q.set(key, String(value));
  }
  const text = q.toString();
  return text === '' ? '' : `?${text}`;
}

/** The same request as a line for a shell; the token is left for its owner to fill in. */
export function asCurl(path: string): string {
  const auth = hasToken() ? ` -H "Authorization: Bearer $AGL_AUTH_TOKEN"` : '';
  return `curl -s${auth} '${new URL(base + path, location.origin).href.replaceAll("'", `'\\''`)}'`;
}
