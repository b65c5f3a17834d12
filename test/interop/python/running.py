"""Runs what is in the queue with LitAgentRunner. The task names what its agent does."""

import asyncio
import json
import logging
import time
import urllib.request

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from openai import OpenAI

import agentlightning as agl
import conversing
from agentlightning.utils.otel import make_link_attributes, make_tag_attributes


def emits():
    """Returns nothing: what counts is in the trace."""
    agl.emit_message("thinking", attributes={"round": 1})
    agl.emit_object({"answer": [1, 2.0, None], "ü": True})
    agl.emit_object("plain")
    agl.emit_object(b"\x00\xff")
    agl.emit_annotation({**make_tag_attributes(["a", "b"]), **make_link_attributes({"gen_ai.response.id": "r-1"}), "nested": {"list": [1, 2], "deep": {"x": "y"}}})
    with agl.operation(name="search", cost=1.5) as op:
        op.set_input("query", top_k=3)
        with trace.get_tracer("agent").start_as_current_span("inner", attributes={"ids": (1, 2, 3)}) as span:
            span.add_event("found", {"n": 2})
        op.set_output({"hits": ["a"]})
    try:
        raise ValueError("wrong turn")
    except ValueError as e:
        agl.emit_exception(e)
    agl.emit_reward({"format": 1, "correct": 0.25}, primary_key="correct")
    agl.emit_reward(0.75)


def sdk_spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("agent").start_as_current_span("outer"):
        with provider.get_tracer("agent").start_as_current_span("inner"):
            pass
    return list(exporter.get_finished_spans())


def whole_spans(rollout):
    ids = dict(rollout_id=rollout.rollout_id, attempt_id=rollout.attempt.attempt_id)
    return [agl.Span.from_attributes(**ids, sequence_id=n, name=f"own-{n}", attributes={"n": n}) for n in (5, 6)]


def beat(agent):
    """Blocks until the store has heard of this worker, which needs a thread."""
    runner = agent.runner
    for _ in range(400):
        with urllib.request.urlopen(f"{runner.get_store().server_address}/workers/{runner.get_worker_id()}") as answer:
            if json.load(answer)["heartbeat_stats"]:
                return 1.0
        time.sleep(0.05)
    raise TimeoutError("no heartbeat arrived")


def act(agent, task, rollout):
    case = task["case"]
    if case == "retry" and rollout.attempt.sequence_id == 1 or case == "fail":
        agl.emit_message("about to fail")
        raise RuntimeError(f"{case} as told")
    return {
        "float": lambda: 0.5, "int": lambda: 2, "emits": emits, "retry": lambda: 1.0, "empty": lambda: [],
        "core": lambda: [agl.emit_reward(0.5, propagate=False), agl.emit_object([1], propagate=False)],
        "sdk spans": sdk_spans, "spans": lambda: whole_spans(rollout), "text": lambda: "not a result",
        "mixed": lambda: [agl.emit_reward(1.0, propagate=False), 1.0], "mode": lambda: None,
        "beat": lambda: beat(agent),
    }[case]()


class Sync(agl.LitAgent):
    def training_rollout(self, task, resources, rollout):
        agl.emit_annotation({"method": "training_rollout", "prompt": resources["prompt"].template})
        return act(self, task, rollout)

    def validation_rollout(self, task, resources, rollout):
        agl.emit_annotation({"method": "validation_rollout", "prompt": resources["prompt"].template})
        return act(self, task, rollout)


class Async(agl.LitAgent):
    async def training_rollout_async(self, task, resources, rollout):
        agl.emit_annotation({"method": "training_rollout_async", "prompt": resources["prompt"].template})
        await asyncio.sleep(0)
        return act(self, task, rollout)

    async def validation_rollout_async(self, task, resources, rollout):
        agl.emit_annotation({"method": "validation_rollout_async", "prompt": resources["prompt"].template})
        return act(self, task, rollout)


class Quick(agl.LitAgent):
    """Leaves its mark in the trace, and a reward."""

    def rollout(self, task, resources, rollout):
        agl.emit_message(f"worker {self.runner.worker_id}")
        time.sleep(0.005)  # so that the others get their share
        return float(task["number"])


class Plain(agl.LitAgent):
    """Returns its reward and leaves nothing else, so that all it says goes through the client."""

    async def rollout_async(self, task, resources, rollout):
        await asyncio.sleep(0.03)
        return float(task["number"])


class Slow(agl.LitAgent):
    """Is late with the first attempt, and fails it, when the second is over."""

    async def rollout_async(self, task, resources, rollout):
        store = self.runner.get_store()
        agl.emit_message(f"attempt {rollout.attempt.sequence_id}")
        if rollout.attempt.sequence_id == 1:
            while (await store.get_rollout_by_id(rollout.rollout_id)).status != "succeeded":
                await asyncio.sleep(0.05)
            agl.emit_message("late")
            raise RuntimeError("late")
        return 1.0


class Caller(agl.LitAgent):
    """Calls a model through the proxy, with a tracer that watches the client too."""

    def rollout(self, task, resources, rollout):
        llm = agl.ProxyLLM(endpoint=f"{self.runner.get_store().server_address_root}/v1", model="agent").with_attempted_rollout(rollout)
        with OpenAI(base_url=llm.endpoint, api_key="none", max_retries=0) as client:
            answer = client.chat.completions.create(model=llm.model, messages=[{"role": "user", "content": task["question"]}])
        agl.emit_message(answer.choices[0].message.content)
        agl.emit_reward(0.5)


async def converse(task, llm):
    """Talks to the model at an address, as far as it is given, and returns a reward."""
    dialect = task["dialect"]
    async with conversing.connect(llm.endpoint.removesuffix("/v1"), llm.api_key, dialect, True, {"x-agl-agent": "accountant"}) as client:
        talk = conversing.DIALECTS[dialect](client, llm.model, task["mode"])
        for question in task["questions"]:
            await talk.turn(question)
    return 0.75


@agl.rollout
async def given_llm(task, llm):
    assert llm.resource_type == "llm" and llm.sampling_parameters == {"temperature": 0.5}, llm
    return await converse(task, llm)


class Routes(agl.LitAgent):
    """Asks the resource for the address of its attempt."""

    async def rollout_async(self, task, resources, rollout):
        proxy = resources["llm"]
        assert proxy.resource_type == "proxy_llm", proxy
        base = proxy.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id)
        return await converse(task, agl.LLM(endpoint=base, model=proxy.model, api_key=proxy.api_key))


class Recorder(agl.Hook):
    def __init__(self):
        self.seen = {}

    def note(self, rollout, event):
        self.seen.setdefault(rollout.rollout_id, []).append(event)

    async def on_rollout_start(self, *, agent, runner, rollout):
        self.note(rollout, "rollout start")

    async def on_trace_start(self, *, agent, runner, tracer, rollout):
        self.note(rollout, "trace start")
        raise RuntimeError("a hook may fail")

    async def on_trace_end(self, *, agent, runner, tracer, rollout):
        self.note(rollout, "trace end")
        agl.emit_message("from a hook")

    async def on_rollout_end(self, *, agent, runner, rollout, spans):
        self.note(rollout, f"rollout end, {len(spans)} spans")


def main(url, agent, executions, worker=0, watched=False):
    """Runs as many attempts as told and returns what the hooks saw."""
    logging.getLogger("agentlightning.store.client_server").setLevel(logging.WARNING)
    recorder = Recorder()
    cases = agent in ("sync", "async")

    async def run():
        store = agl.LightningStoreClient(url, health_retry_delays=(0.1,) * 100)  # waits out a restart
        runner = agl.LitAgentRunner(
            tracer=agl.AgentOpsTracer() if watched or agent == "caller" else agl.OtelTracer(),
            max_rollouts=executions, poll_interval=0.05, interval_jitter=0.01, heartbeat_interval=0.5,
        )
        told = {"sync": Sync, "async": Async, "quick": Quick, "plain": Plain, "slow": Slow, "caller": Caller, "routes": Routes}.get(agent, lambda: given_llm)()
        runner.init(told, hooks=[recorder] if cases else [])
        runner.init_worker(worker, store)
        try:
            await runner.iter()
            stepped = None
            if cases:
                stepped = await runner.step({"case": "float"}, resources={"prompt": agl.PromptTemplate(template="step", engine="f-string")}, mode="val")
                try:
                    await runner.step({"case": "fail"}, mode="train")
                except RuntimeError as e:
                    assert str(e) == "fail as told", e
                else:
                    raise AssertionError("a failing step did not raise")
        finally:
            runner.teardown_worker(worker)
            runner.teardown()
            await store.close()
        return stepped

    stepped = asyncio.run(run())
    return {"hooks": recorder.seen, "stepped": stepped and stepped.model_dump(mode="json")}
