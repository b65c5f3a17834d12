"""Agents that a controller starts. They know nothing but their environment."""

import os
import sys
import time

import httpx


def post(kind, data):
    answer = httpx.post(
        os.environ["AGL_EVENT_URL"],
        json={"event_type": kind, "data": data},
        headers={"Authorization": f"Bearer {os.environ['AGL_KEY']}"},
    )
    answer.raise_for_status()


class Solver:
    """Speaks to its model twice, the second time with what was said before."""

    async def run(self):
        from openai import AsyncOpenAI

        client = AsyncOpenAI(base_url=os.environ["AGL_OPENAI_BASE_URL"], api_key=os.environ["AGL_KEY"], max_retries=6)
        messages = [{"role": "user", "content": os.environ["QUESTION"]}]
        for _ in range(2):
            answer = await client.chat.completions.create(model="auto", messages=messages)
            messages.append({"role": "assistant", "content": answer.choices[0].message.content})
            messages.append({"role": "user", "content": "Are you sure?"})
        post("note", {"said": messages[1]["content"], "literal": os.environ["LITERAL"], "whole": os.environ["WHOLE"]})
        post("reward", {"value": 1.0 if os.environ["RESULT"] in messages[1]["content"] else 0.0, "source": "agent"})


class Streamer:
    """Takes its answer as a stream."""

    def run(self):
        from openai import OpenAI

        client = OpenAI(base_url=os.environ["AGL_OPENAI_BASE_URL"], api_key=os.environ["AGL_KEY"])
        with client.chat.completions.create(
            model="auto", messages=[{"role": "user", "content": os.environ["QUESTION"]}], stream=True
        ) as chunks:
            said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        post("reward", {"value": float(len(said))})


class Crash:
    def run(self):
        raise RuntimeError("no idea")


class Leave:
    def run(self):
        sys.exit(3)


class Sleep:
    def run(self):
        post("note", {"asleep": True})
        time.sleep(600)
