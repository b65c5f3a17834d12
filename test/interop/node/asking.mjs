// Asks what clients ask besides conversations: which models there are, how long
// a prompt is, where texts lie. python/asking.py is its twin.

import OpenAI from "openai";

import { connect, dialects } from "./conversing.mjs";

export async function main({ url, key, question }) {
  const client = connect({ url, key, dialect: "chat", headers: {} });
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  const embedded = await client.embeddings.create({ model: "agent", input: [question, "und"] });
  const plain = await client.embeddings.create({ model: "agent", input: question, encoding_format: "float" });
  const missing = await client.models.retrieve("nobody").catch((e) => {
    if (!(e instanceof OpenAI.NotFoundError)) throw e;
    return e.message;
  });
  const talk = new dialects.messages(connect({ url, key, dialect: "messages", headers: {} }), "agent", "whole");
  talk.ask(question);
  const { max_tokens, ...counted } = talk.arguments();
  const { input_tokens } = await talk.client.messages.countTokens(counted);
  const step = await talk.whole();
  const vectors = [...embedded.data, ...plain.data].map((e) => e.embedding);
  return { models, missing, count: input_tokens, used: step.usage[0], vectors };
}
