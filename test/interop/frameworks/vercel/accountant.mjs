// The agent of agent.mjs and runner.mjs: it answers with two tools.

import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

export async function solve(task, model, stream) {
  const numbers = z.object({ a: z.number().int(), b: z.number().int() });
  const asked = {
    model,
    system: "Calculate with the tools.",
    prompt: task,
    tools: {
      add: tool({ description: "Add two numbers.", inputSchema: numbers, execute: ({ a, b }) => a + b }),
      multiply: tool({ description: "Multiply two numbers.", inputSchema: numbers, execute: ({ a, b }) => a * b }),
    },
    stopWhen: isStepCount(5),
    // With OpenAI's Responses the SDK otherwise refers to answers that it takes
    // the server to keep.
    providerOptions: { openai: { store: false } },
  };
  return stream ? await streamText(asked).text : (await generateText(asked)).text;
}
