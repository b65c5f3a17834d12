// Holds a conversation with a model, as agents do it with the official clients
// for TypeScript. A step is one call of the model; what the client made of each
// answer is returned. python/conversing.py is its twin.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const tools = { add: ({ a, b }) => a + b, multiply: ({ a, b }) => a * b };
const numbers = { type: "object", properties: { a: { type: "integer" }, b: { type: "integer" } }, required: ["a", "b"] };
const schemas = (form) => Object.keys(tools).map((name) => form(name, `${name}s two numbers`));
const use = (name, args) => String(tools[name](JSON.parse(args)));

/** A conversation in one dialect; mode is how its answers are taken: whole, stream, helper or runner. */
class Talk {
  constructor(client, model, mode, thinks = false) {
    Object.assign(this, { client, model, mode, thinks, history: [], steps: [] });
  }

  create(more, options) {
    return this.endpoint().create({ ...this.arguments(), ...more }, options);
  }

  /** Asks, and uses the tools that the model calls until it calls none. */
  async turn(question) {
    this.ask(question);
    if (this.mode === "runner") {
      this.steps.push(...(await this.runner()));
      return;
    }
    let step;
    do {
      step = await this[this.mode]();
      this.steps.push(step);
    } while (this.answer(step));
  }
}

class Chat extends Talk {
  endpoint() {
    return this.client.chat.completions;
  }

  arguments() {
    const form = (name, description) => ({ type: "function", function: { name, description, parameters: numbers } });
    return { model: this.model, messages: this.history, tools: schemas(form), temperature: 0.5 };
  }

  ask(question) {
    if (this.history.length === 0) this.history.push({ role: "system", content: "You add and multiply." });
    this.history.push({ role: "user", content: question });
  }

  answer(step) {
    const message = { role: "assistant", content: step.text || null };
    if (step.reasoning) message.reasoning_content = step.reasoning;
    if (step.calls.length > 0) {
      message.tool_calls = step.calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } }));
    }
    this.history.push(message);
    for (const c of step.calls) this.history.push({ role: "tool", tool_call_id: c.id, content: use(c.name, c.arguments) });
    return step.calls.length > 0;
  }

  step(completion, types = []) {
    const [choice] = completion.choices;
    return {
      id: completion.id, text: choice.message.content ?? "", reasoning: choice.message.reasoning_content ?? "", finish: choice.finish_reason, types,
      calls: (choice.message.tool_calls ?? []).map((c) => ({ id: c.id, name: c.function.name, arguments: c.function.arguments })),
      usage: completion.usage && [completion.usage.prompt_tokens, completion.usage.completion_tokens],
      token_ids: [completion.prompt_token_ids, choice.token_ids],
    };
  }

  async whole() {
    return this.step(await this.create());
  }

  async stream() {
    const step = { text: "", reasoning: "", calls: [], types: [], usage: null, finish: null, token_ids: [null, []] };
    for await (const chunk of await this.create({ stream: true })) {
      step.id = chunk.id;
      step.types.push(chunk.object);
      if (chunk.usage) step.usage = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens];
      step.token_ids[0] = chunk.prompt_token_ids ?? step.token_ids[0];
      for (const choice of chunk.choices) {
        step.text += choice.delta.content ?? "";
        step.reasoning += choice.delta.reasoning_content ?? "";
        step.finish = choice.finish_reason ?? step.finish;
        step.token_ids[1].push(...(choice.token_ids ?? []));
        for (const c of choice.delta.tool_calls ?? []) {
          if (c.index === step.calls.length) step.calls.push({ id: c.id, name: c.function.name, arguments: "" });
          step.calls[c.index].arguments += c.function.arguments ?? "";
        }
      }
    }
    return step;
  }

  async helper() {
    const stream = this.endpoint().stream({ ...this.arguments(), stream_options: { include_usage: true } });
    return this.step(await stream.finalChatCompletion());
  }

  /** The client itself calls the tools, and the model again, until it is done. */
  async runner() {
    const known = this.arguments().tools.map((t) => ({
      ...t,
      function: { ...t.function, parse: JSON.parse, function: (args) => String(tools[t.function.name](args)) },
    }));
    const runner = this.endpoint().runTools({ ...this.arguments(), tools: known, stream: true, stream_options: { include_usage: true } });
    await runner.done();
    this.history = runner.messages.map(({ parsed, ...message }) => message);
    return runner.allChatCompletions().map((c) => this.step(c));
  }
}

/** No tools here, and the program keeps the conversation in its prompt. */
class Completions extends Talk {
  endpoint() {
    return this.client.completions;
  }

  arguments() {
    return { model: this.model, prompt: this.history.join(""), max_tokens: 64 };
  }

  ask(question) {
    this.history.push(question);
  }

  answer(step) {
    this.history.push(step.text);
    return false;
  }

  async whole() {
    const answer = await this.create();
    return {
      id: answer.id, text: answer.choices[0].text, finish: answer.choices[0].finish_reason, calls: [], types: [],
      usage: [answer.usage.prompt_tokens, answer.usage.completion_tokens],
    };
  }

  async stream() {
    const step = { text: "", calls: [], types: [], usage: null, finish: null };
    for await (const chunk of await this.create({ stream: true, stream_options: { include_usage: true } })) {
      step.id = chunk.id;
      if (chunk.usage) step.usage = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens];
      for (const choice of chunk.choices) {
        step.text += choice.text;
        step.finish = choice.finish_reason ?? step.finish;
      }
    }
    return step;
  }
}

/** An answer that the stream itself says has failed, of which the client makes no error. */
export class Failed extends Error {}

class Responses extends Talk {
  endpoint() {
    return this.client.responses;
  }

  arguments() {
    const form = (name, description) => ({ type: "function", name, description, parameters: numbers, strict: false });
    return { model: this.model, instructions: "You add and multiply.", input: this.history, tools: schemas(form), store: false };
  }

  ask(question) {
    this.history.push({ role: "user", content: question });
  }

  answer(step) {
    this.history.push(...step.output);
    delete step.output;
    for (const c of step.calls) this.history.push({ type: "function_call_output", call_id: c.id, output: use(c.name, c.arguments) });
    return step.calls.length > 0;
  }

  step(response, types = []) {
    return {
      id: response.id, text: response.output_text, finish: response.status, types,
      reasoning: response.output.flatMap((i) => (i.type === "reasoning" ? i.content.map((c) => c.text) : [])).join(""),
      output: response.output.map(({ parsed_arguments, ...item }) => item),
      calls: response.output.filter((i) => i.type === "function_call").map((i) => ({ id: i.call_id, name: i.name, arguments: i.arguments })),
      usage: [response.usage.input_tokens, response.usage.output_tokens],
    };
  }

  async whole() {
    return this.step(await this.create());
  }

  /** Puts the answer together from the deltas, and compares with what the end says of it. */
  async stream() {
    const types = [], thoughts = [], texts = [], args = [];
    let step, number;
    for await (const event of await this.create({ stream: true })) {
      types.push(event.type);
      if (number !== undefined && event.sequence_number !== number + 1) throw new Error(`event ${event.sequence_number} follows event ${number}`);
      number = event.sequence_number;
      if (event.type === "response.output_text.delta") {
        texts[event.output_index] = (texts[event.output_index] ?? "") + event.delta;
      } else if (event.type === "response.reasoning_text.delta") {
        thoughts.push(event.delta);
      } else if (event.type === "response.function_call_arguments.delta") {
        args[event.output_index] = (args[event.output_index] ?? "") + event.delta;
      } else if (event.type === "response.failed") {
        throw new Failed(event.response.error.message);
      } else if (event.type === "response.completed") {
        const text = event.response.output.flatMap((i) => (i.type === "message" ? i.content.map((c) => c.text) : [])).join("");
        step = this.step({ ...event.response, output_text: text }, types);
      }
    }
    const said = [step.reasoning, step.text, ...step.calls.map((c) => c.arguments)];
    const heard = [thoughts.join(""), texts.join(""), ...args.filter((a) => a !== undefined)];
    if (JSON.stringify(said) !== JSON.stringify(heard)) throw new Error(`${JSON.stringify(said)} was streamed as ${JSON.stringify(heard)}`);
    return step;
  }

  async helper() {
    return this.step(await this.endpoint().stream(this.arguments()).finalResponse());
  }
}

class Messages extends Talk {
  endpoint() {
    return this.client.messages;
  }

  arguments() {
    const form = (name, description) => ({ name, description, input_schema: numbers });
    const system = [{ type: "text", text: "You add and multiply.", cache_control: { type: "ephemeral" } }];
    const thinking = this.thinks ? { thinking: { type: "enabled", budget_tokens: 1024 } } : {};
    return { model: this.model, system, messages: this.history, tools: schemas(form), max_tokens: 2048, ...thinking };
  }

  ask(question) {
    this.history.push({ role: "user", content: question });
  }

  answer(step) {
    this.history.push({ role: "assistant", content: step.content });
    delete step.content;
    if (step.calls.length === 0) return false;
    this.history.push({ role: "user", content: step.calls.map((c) => ({ type: "tool_result", tool_use_id: c.id, content: use(c.name, c.arguments) })) });
    return true;
  }

  step(message, types = []) {
    const { content, usage } = message;
    return {
      id: message.id, text: content.filter((b) => b.type === "text").map((b) => b.text).join(""), finish: message.stop_reason, types, content,
      reasoning: content.filter((b) => b.type === "thinking").map((b) => b.thinking).join(""),
      calls: content.filter((b) => b.type === "tool_use").map((b) => ({ id: b.id, name: b.name, arguments: JSON.stringify(b.input) })),
      usage: [usage.input_tokens, usage.output_tokens],
    };
  }

  async whole() {
    return this.step(await this.create());
  }

  async stream() {
    const types = [];
    let message;
    for await (const event of await this.create({ stream: true })) {
      types.push(event.type);
      if (event.type === "message_start") {
        message = structuredClone(event.message);
      } else if (event.type === "content_block_start") {
        if (event.index !== message.content.length) throw new Error(`block ${event.index} follows ${message.content.length} others`);
        message.content.push({ ...event.content_block, ...(event.content_block.type === "tool_use" && { input: "" }) });
      } else if (event.type === "content_block_delta") {
        const block = message.content[event.index];
        if (event.delta.type === "text_delta") block.text += event.delta.text;
        else if (event.delta.type === "thinking_delta") block.thinking += event.delta.thinking;
        else if (event.delta.type === "signature_delta") block.signature = event.delta.signature;
        else block.input += event.delta.partial_json;
      } else if (event.type === "content_block_stop") {
        const block = message.content[event.index];
        if (block.type === "tool_use") block.input = JSON.parse(block.input || "{}");
      } else if (event.type === "message_delta") {
        message.stop_reason = event.delta.stop_reason;
        message.usage.output_tokens = event.usage.output_tokens;
        message.usage.input_tokens = event.usage.input_tokens ?? message.usage.input_tokens;
      }
    }
    return this.step(message, types);
  }

  async helper() {
    return this.step(await this.endpoint().stream(this.arguments()).finalMessage());
  }

  /** The client itself calls the tools, and the model again, until it is done. */
  async runner() {
    const known = this.arguments().tools.map((t) => ({ ...t, type: "custom", parse: (args) => args, run: (args) => String(tools[t.name](args)) }));
    const runner = this.client.beta.messages.toolRunner({ ...this.arguments(), tools: known, stream: true });
    const steps = [];
    for await (const stream of runner) steps.push(this.step(await stream.finalMessage()));
    this.history = runner.params.messages.slice();
    for (const step of steps) delete step.content;
    return steps;
  }
}

export const dialects = { chat: Chat, completions: Completions, responses: Responses, messages: Messages };

export function connect({ url, key, dialect, headers, ...more }) {
  const options = { apiKey: key, maxRetries: 0, defaultHeaders: headers, ...more };
  return dialect === "messages" ? new Anthropic({ ...options, baseURL: url }) : new OpenAI({ ...options, baseURL: `${url}/v1` });
}

export async function main({ url, key, model, dialect, mode, questions, headers, thinks }) {
  const talk = new dialects[dialect](connect({ url, key, dialect, headers }), model, mode, thinks);
  for (const question of questions) await talk.turn(question);
  return talk.steps;
}
