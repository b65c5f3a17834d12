"""Reads the log of completions to its end, as it grows."""

import asyncio

from agentlightning.client import AgentLightningAsyncClient


async def read(url, key, until):
    seen, after, waits = [], 0, 0
    async with AgentLightningAsyncClient(base_url=url, key=key, timeout=30) as client:
        while len(seen) < until:
            answer = await client.get("/api/rollouts/terminal", params={"after": after, "limit": 2, "wait": 20})
            answer.raise_for_status()
            page = answer.json()
            seen += page["items"]
            waits += 1
            assert page["next_after"] >= after + len(page["items"])
            after = page["next_after"]
    return {"items": seen, "after": after, "requests": waits}


def main(url, key, until):
    return asyncio.run(read(url, key, until))
