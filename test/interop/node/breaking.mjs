// What clients do when a call does not go well: they leave, or take in what went
// wrong. python/breaking.py is its twin.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

import { connect, dialects, Failed } from "./conversing.mjs";

const enough = 4; // events of a stream, of those that then do not come any more

const ways = {
  /** Leaves the loop, and with it the stream. */
  async close(talk) {
    let seen = 0, left;
    for await (const _ of await talk.create({ stream: true })) {
      if (++seen === enough) {
        left = Date.now() / 1000;
        break;
      }
    }
    return { left };
  },

  async abort(talk) {
    const stream = await talk.create({ stream: true });
    let seen = 0, left;
    for await (const _ of stream) {
      if (++seen === enough) {
        left = Date.now() / 1000;
        stream.controller.abort();
      }
    }
    return { left };
  },

  /** Leaves on cue while an answer is awaited that comes in one piece. */
  async whole(talk, cue) {
    const controller = new AbortController();
    let left;
    await Promise.all([
      talk.create({}, { signal: controller.signal }).catch((e) => {
        if (!(e instanceof OpenAI.APIUserAbortError || e instanceof Anthropic.APIUserAbortError)) throw e;
      }),
      fetch(cue).then(() => {
        left = Date.now() / 1000;
        controller.abort();
      }),
    ]);
    return { left };
  },

  /** Says what the client made of an error. */
  async fails(talk) {
    const began = Date.now();
    try {
      const step = await talk[talk.mode]();
      return { text: step.text, seconds: (Date.now() - began) / 1000 };
    } catch (e) {
      if (!(e instanceof OpenAI.APIError || e instanceof Anthropic.APIError || e instanceof Failed)) throw e;
      return { error: e.constructor.name, message: e.message, status: e.status, seconds: (Date.now() - began) / 1000 };
    }
  },
};

export async function main({ url, key, model, dialect, mode, way, cue, retries, timeout }) {
  const limit = timeout ? { timeout: timeout * 1000 } : {};
  const talk = new dialects[dialect](connect({ url, key, dialect, headers: {}, maxRetries: retries ?? 0, ...limit }), model, mode);
  talk.ask("What is (12+30)·(5+6)?");
  return await ways[way](talk, cue);
}
