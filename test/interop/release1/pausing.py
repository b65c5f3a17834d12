"""A trainer pauses model calls while an agent speaks to its model."""

import threading
import time

import httpx
from agentlightning.client import AgentLightningSyncClient
from openai import APIStatusError, OpenAI


def main(url, key, rollout):
    trainer = AgentLightningSyncClient(base_url=url, key=key)
    base = f"{url}/proxy/rollout/{rollout}/attempt/0/mode/train/openai/v1"

    def ask(retries):
        client = OpenAI(base_url=base, api_key=key, max_retries=retries)
        return client.chat.completions.with_raw_response.create(model="auto", messages=[{"role": "user", "content": "Are you there?"}])

    before = ask(0).text
    paused = trainer.post_with_retry("/proxy/pause", json={"retry_after_seconds": 1, "reason": "weights"}).json()
    try:
        ask(0)
        refused = None
    except APIStatusError as e:
        refused = {"status": e.status_code, "headers": {k: e.response.headers[k] for k in ("retry-after", "x-agl-paused")}, "body": e.response.text}
    answers = []
    agent = threading.Thread(target=lambda: answers.append(ask(6).text))
    agent.start()
    while not trainer.get("/proxy/state").json()["paused"]:
        time.sleep(0.05)
    time.sleep(1.5)
    early = len(answers)
    resumed = trainer.post_with_retry("/proxy/resume").json()
    agent.join(30)
    unauthorised = httpx.get(f"{url}/proxy/state").status_code
    return {
        "before": before, "paused": paused, "refused": refused, "early": early, "answers": answers, "resumed": resumed,
        "unauthorised": unauthorised,
    }
