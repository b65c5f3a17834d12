"""Reads the spans of a rollout with the readers and adapters of Agent Lightning."""

import asyncio
import base64

import agentlightning as agl
from agentlightning.utils.otel import extract_links_from_attributes, extract_tags_from_attributes, filter_and_unflatten_attributes


def having(span, prefix, read):
    """Reads a list that the span need not have; the readers refuse to look for it in vain."""
    return read(span.attributes) if any(key.startswith(prefix) for key in span.attributes) else []


def seen(span):
    value = agl.get_object_value(span)
    return {
        "name": span.name,
        "reward": agl.get_reward_value(span),
        "rewards": [r.model_dump() for r in agl.get_rewards_from_span(span)],
        "message": agl.get_message_value(span),
        "object": {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes) else value,
        "type": type(value).__name__,
        "tags": having(span, "agentlightning.tag", extract_tags_from_attributes),
        "links": [link.model_dump() for link in having(span, "agentlightning.link", extract_links_from_attributes)],
        "output": filter_and_unflatten_attributes(span.attributes, "agentlightning.operation.output"),
    }


def main(url, rollout, messages=True):
    async def read():
        store = agl.LightningStoreClient(url)
        spans = list(await store.query_spans(rollout, "latest"))
        await store.close()
        return spans

    spans = asyncio.run(read())
    return {
        "spans": [seen(s) for s in spans],
        "final": agl.find_final_reward(spans),
        "triplets": [t.model_dump(mode="json") for t in agl.TracerTraceToTriplet().adapt(spans)],
        "proxied": [t.model_dump(mode="json") for t in agl.LlmProxyTraceToTriplet().adapt(spans)],
        "messages": agl.TraceToMessages().adapt(spans) if messages else None,
    }
