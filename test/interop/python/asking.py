"""Asks what clients ask besides conversations: which models there are, how long a prompt is, where texts lie."""

import asyncio

import openai
from conversing import DIALECTS, connect, opened


def main(url, key, question, awaited=False):
    async def run():
        async with opened(connect(url, key, "chat", False, {})) as client:
            models = [m.id for m in client.models.list()]
            embedded = client.embeddings.create(model="agent", input=[question, "und"])
            plain = client.embeddings.create(model="agent", input=question, encoding_format="float")
            try:
                client.models.retrieve("nobody")
            except openai.NotFoundError as e:
                missing = str(e)
        async with opened(connect(url, key, "messages", True, {})) as client:
            talk = DIALECTS["messages"](client, "agent", "whole")
            talk.ask(question)
            counted = talk.arguments()
            del counted["max_tokens"]
            count = (await client.messages.count_tokens(**counted)).input_tokens
            step = await talk.whole()
        return {
            "models": models, "missing": missing, "count": count, "used": step["usage"][0],
            "vectors": [e.embedding for e in embedded.data] + [e.embedding for e in plain.data],
        }

    return asyncio.run(run())
