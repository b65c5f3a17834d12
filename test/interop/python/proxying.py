"""Calls a model through the LLM proxy of Agent Lightning, which writes to the store what it saw."""

import asyncio
import os

from openai import AsyncOpenAI

import agentlightning as agl


async def run(url, model, questions):
    store = agl.LightningStoreClient(url)
    proxy = agl.LLMProxy(
        model_list=[{"model_name": "agent", "litellm_params": {"model": "hosted_vllm/agent", "api_base": model, "api_key": "none"}}],
        store=store, host="127.0.0.1", launch_mode="thread",
    )
    await proxy.start()
    try:
        resource = proxy.as_resource(model="agent")
        rollout = await store.start_rollout({"questions": questions}, resources_id=(await store.add_resources({"llm": resource})).resources_id)
        llm = resource.with_attempted_rollout(rollout)
        async with AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0) as client:
            answers = []
            for question in questions:
                answer = await client.chat.completions.create(model=llm.model, messages=[{"role": "user", "content": question}])
                answers.append(answer.choices[0].message.content)
        await store.add_span(
            agl.Span.from_core_fields(
                agl.emit_reward(0.5, propagate=False), rollout_id=rollout.rollout_id, attempt_id=rollout.attempt.attempt_id,
                sequence_id=await store.get_next_span_sequence_id(rollout.rollout_id, rollout.attempt.attempt_id),
            )
        )
        await store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, status="succeeded")
    finally:
        await proxy.stop()
        await store.close()
    return {"rollout": rollout.rollout_id, "answers": answers}


def main(url, model, questions):
    # Agent Lightning 0.3 sets no key; newer LiteLLM starts without one only when
    # told to. Nothing listens beyond the loopback.
    os.environ["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "True"
    return asyncio.run(run(url, model, questions))
