// A runner in TypeScript's world: it has nothing of this project and polls the
// REST interface. The arguments are the server, its token, and how many rollouts
// to run before it ends.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { solve } from "./accountant.mjs";

const [, , server, token, count] = process.argv;

async function post(path, body) {
  const answer = await fetch(`${server}/v1/agl${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

for (let done = 0; done < Number(count); ) {
  const [rollout] = await post("/queues/rollouts/dequeue", { worker_id: "typescript" });
  if (!rollout) {
    await new Promise((again) => setTimeout(again, 20));
    continue;
  }
  const ids = { rollout_id: rollout.rollout_id, attempt_id: rollout.attempt.attempt_id };
  const attempt = `/rollouts/${ids.rollout_id}/attempts/${ids.attempt_id}`;
  try {
    const baseURL = `${server}/rollout/${ids.rollout_id}/attempt/${ids.attempt_id}/v1`;
    const answer = await solve(rollout.input, createOpenAICompatible({ name: "agl", baseURL, apiKey: token })("agent"), false);
    const now = Date.now() / 1000;
    await post("/spans", {
      ...ids,
      sequence_id: (await post("/spans/next", ids)).sequence_id,
      trace_id: crypto.randomUUID().replaceAll("-", ""),
      span_id: crypto.randomUUID().replaceAll("-", "").slice(16),
      parent_id: null,
      name: "agentlightning.annotation",
      status: { status_code: "OK" },
      attributes: { "agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": Number(answer.includes("462")) },
      events: [],
      links: [],
      start_time: now,
      end_time: now,
      context: null,
      parent: null,
      resource: { attributes: {}, schema_url: "" },
    });
    await post(attempt, { status: "succeeded" });
  } catch (error) {
    console.error(error);
    await post(attempt, { status: "failed" });
  }
  done++;
}
