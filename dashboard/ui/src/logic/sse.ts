// Server-sent events out of a stream of text.

export interface ServerEvent {
  event: string;
  data: string;
}

/** Takes a stream apart. Feed it text as it comes; it returns the events that are complete. */
export function eventReader(): (chunk: string) => ServerEvent[] {
  let rest = '';
  return (chunk) => {
    rest += chunk;
    const out: ServerEvent[] = [];
    for (;;) {
      const end = /\r?\n\r?\n/.exec(rest);
      if (!end) return out;
      const block = rest.slice(0, end.index);
      rest = rest.slice(end.index + end[0].length);
      let event = 'message';
      const data: string[] = [];
      for (const line of block.split(/\r?\n/)) {
        if (line.startsWith('event:')) event = line.slice(6).trim();
        else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
      }
      if (data.length > 0) out.push({ event, data: data.join('\n') });
    }
  };
}

/** How long to wait before the n-th try to connect again, in ms. */
export function backoff(n: number, random: number): number {
  return Math.min(10_000, 400 * 2 ** n) * (0.75 + 0.5 * random);
}
