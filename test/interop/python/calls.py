"""Calls every public method of LightningStoreClient and checks what it returns."""

import asyncio
import contextvars
import functools
import inspect
import time
import urllib.parse

import aiohttp
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource as SDKResource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import agentlightning as agl
from agentlightning.types import EnqueueRolloutRequest, Event, Link

# What JSON of other languages loses: integers beyond 64 bits, 1.0 as opposed
# to 1, characters that some encoders escape, the order of members.
INPUT = {"z": 1.0, "a": 1, "big": 123456789012345678901234567890, "text": "ü \u2028 <b>&</b> \U0001f44b", "deep": [[], {}, None, True, -0.5]}


def recording(cls):
    """Returns a subclass that notes which public members a caller uses."""
    public = sorted(name for name in dir(cls) if not name.startswith("_"))
    used = set()
    inside = contextvars.ContextVar("inside", default=False)

    def note(name, call):
        @functools.wraps(call)
        def plain(*args, **kwargs):
            if not inside.get():
                used.add(name)
            return call(*args, **kwargs)

        @functools.wraps(call)
        async def asynchronous(*args, **kwargs):
            if inside.get():
                return await call(*args, **kwargs)
            used.add(name)
            token = inside.set(True)
            try:
                return await call(*args, **kwargs)
            finally:
                inside.reset(token)

        return asynchronous if inspect.iscoroutinefunction(call) else plain

    members = {}
    for name in public:
        member = inspect.getattr_static(cls, name)
        members[name] = property(note(name, member.fget)) if isinstance(member, property) else note(name, member)
    return type("Recording", (cls,), members), public, used


class Checks:
    def __init__(self):
        self.failures = []
        self.seconds = {}

    def equal(self, what, got, want):
        if got != want or type(got) is not type(want):
            self.failures.append(f"{what} = {got!r}, want {want!r}")

    def true(self, what, claim):
        if not claim:
            self.failures.append(f"not so: {what}")

    async def quick(self, what, call, want):
        """Makes a call a few times and keeps the shortest time, the one that a busy machine disturbed least."""
        times = []
        for _ in range(5):
            started = time.monotonic()
            try:
                got = await call()
            except aiohttp.ClientResponseError as e:
                got = e.status
            times.append(time.monotonic() - started)
            self.equal(what, got, want)
        self.seconds[what] = min(times)


def span(rollout, attempt, number, name="step", parent=None, **more):
    ids = {"trace_id": f"{number:032x}", "span_id": f"{number:016x}"}
    context = agl.SpanContext(**ids, is_remote=False, trace_state={"vendor": "x"})
    fields = dict(
        rollout_id=rollout, attempt_id=attempt, sequence_id=number, **ids, parent_id=parent, name=name,
        status=agl.TraceStatus(status_code="ERROR", description="ü"),
        attributes={"s": "ü", "b": True, "i": 7, "f": 7.0, "ss": ["a", "b"], "is": [1, 2], "fs": [1.0, 2.5], "bs": [True, False]},
        events=[Event(name="e", attributes={"k": 1}, timestamp=1700000000.25)],
        links=[Link(context=context, attributes=None)],
        start_time=1700000000.125, end_time=None, context=context, parent=None,
        resource=agl.OtelResource(attributes={"service.name": "interop"}, schema_url="https://example.com/s"),
    )
    return agl.Span(**{**fields, **more})


def sdk_span():
    """Makes a span with the OpenTelemetry SDK, with a child below it."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=SDKResource.create({"service.name": "sdk"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("interop")
    with tracer.start_as_current_span("parent"):
        with tracer.start_as_current_span("child", kind=trace.SpanKind.CLIENT, attributes={"list": (1, 2)}) as child:
            child.add_event("happened", {"k": "v"})
            child.record_exception(ValueError("wrong"))
            child.set_status(trace.StatusCode.ERROR, "wrong")
    return exporter.get_finished_spans()[0]


async def resources(c, store):
    c.equal("get_latest_resources of nothing", await store.get_latest_resources(), None)
    llm = agl.LLM(endpoint="http://127.0.0.1:1/v1", model="m", sampling_parameters={"temperature": 1.0, "n": 1})
    proxied = agl.ProxyLLM(endpoint="http://127.0.0.1:1/v1", model="p", api_key="k")
    prompt = agl.PromptTemplate(template="Say {what}", engine="f-string")
    added = await store.add_resources({"main": llm, "proxy": proxied, "prompt": prompt})
    c.true("a new id is rs- and 12 digits", added.resources_id.startswith("rs-") and len(added.resources_id) == 15)
    c.equal("version", added.version, 1)
    c.equal("order of resources", list(added.resources), ["main", "proxy", "prompt"])
    c.equal("llm", added.resources["main"], llm)
    c.equal("proxy_llm", added.resources["proxy"].model_dump(), proxied.model_dump())
    c.equal("prompt", added.resources["prompt"].format(what="hi"), "Say hi")
    c.equal("update_resources of an unknown id", (await store.update_resources("mine", {"prompt": prompt})).version, 1)
    c.equal("update_resources again", (await store.update_resources("mine", {})).version, 2)
    c.equal("get_resources_by_id", (await store.get_resources_by_id(added.resources_id)).model_dump(), added.model_dump())
    c.equal("get_latest_resources", (await store.get_latest_resources()).resources_id, "mine")
    page = await store.query_resources(sort_by="resources_id", sort_order="desc", limit=1, offset=1)
    c.equal("query_resources", (len(page), page.total, page[0].resources_id), (1, 2, "mine"))
    c.equal("resources_id_contains", [r.resources_id for r in await store.query_resources(resources_id_contains="in")], ["mine"])
    c.equal("resources_id", [r.resources_id for r in await store.query_resources(resources_id=added.resources_id)], [added.resources_id])
    return added.resources_id


async def queue(c, store, resources_id):
    config = agl.RolloutConfig(timeout_seconds=90, unresponsive_seconds=30.5, max_attempts=3, retry_condition=["failed", "timeout"])
    first = await store.enqueue_rollout(INPUT, mode="train", resources_id=resources_id, config=config, metadata={"k": [1, 1.0]})
    c.equal("input", repr(first.input), repr(INPUT))
    c.equal("config", first.config, config)
    c.equal("metadata", repr(first.metadata), repr({"k": [1, 1.0]}))
    c.equal("status", first.status, "queuing")
    c.equal("enqueue_many_rollouts of none", await store.enqueue_many_rollouts([]), [])
    more = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=i, mode=m) for i, m in ((1, "val"), ("two", "test"), (None, None))])
    c.equal("inputs", [r.input for r in more], [1, "two", None])
    c.equal("resources at this moment", {r.resources_id for r in more}, {"mine"})
    got = await store.dequeue_rollout(worker_id="w-1")
    c.equal("the first of the queue", got.rollout_id, first.rollout_id)
    c.equal("its attempt", (got.attempt.sequence_id, got.attempt.status, got.attempt.worker_id), (1, "preparing", "w-1"))
    c.equal("dequeue_many_rollouts(0)", await store.dequeue_many_rollouts(limit=0), [])
    rest = await store.dequeue_many_rollouts(limit=9, worker_id="w-2")
    c.equal("the rest of the queue", [r.rollout_id for r in rest], [r.rollout_id for r in more])
    c.equal("dequeue_rollout of nothing", await store.dequeue_rollout(), None)
    c.equal("dequeue_many_rollouts of nothing", await store.dequeue_many_rollouts(limit=2), [])
    c.equal("get_rollout_by_id", (await store.get_rollout_by_id(first.rollout_id)).model_dump(), got.model_dump())
    return got, rest


async def attempts(c, store):
    started = await store.start_rollout({"task": 1}, mode="val", resources_id="mine", config=agl.RolloutConfig(max_attempts=2), metadata={"m": 1}, worker_id="w-3")
    c.equal("start_rollout", (started.status, started.attempt.sequence_id, started.attempt.worker_id), ("preparing", 1, "w-3"))
    again = await store.start_attempt(started.rollout_id, worker_id="w-4")
    c.equal("start_attempt", (again.rollout_id, again.attempt.sequence_id, again.attempt.worker_id), (started.rollout_id, 2, "w-4"))
    c.equal("start_attempt without a worker", (await store.start_attempt(started.rollout_id)).attempt.worker_id, None)
    page = await store.query_attempts(started.rollout_id, sort_order="desc", limit=2)
    c.equal("query_attempts", ([a.sequence_id for a in page], page.total), ([3, 2], 3))
    c.equal("query_attempts sorted by insertion", [a.sequence_id for a in await store.query_attempts(started.rollout_id, sort_by=None)], [1, 2, 3])
    c.equal("get_latest_attempt", (await store.get_latest_attempt(started.rollout_id)).sequence_id, 3)
    c.equal("attempts of an unknown rollout", len(await store.query_attempts("ro-unknown")), 0)
    return started.rollout_id


async def spans(c, store, claimed):
    rollout, attempt = claimed.rollout_id, claimed.attempt.attempt_id
    c.equal("get_next_span_sequence_id", await store.get_next_span_sequence_id(rollout, attempt), 1)
    c.equal("get_many_span_sequence_ids", list(await store.get_many_span_sequence_ids([(rollout, attempt)] * 2)), [2, 3])
    # Members that are not declared belong to the span all the same.
    sent = span(rollout, attempt, 1, kind="SpanKind.INTERNAL", limits=None)
    c.equal("add_span", (await store.add_span(sent)).model_dump(), sent.model_dump())
    c.equal("add_span of a duplicate", await store.add_span(sent), None)
    many = [span(rollout, attempt, 3, name="late"), span(rollout, attempt, 2, name="early", parent=f"{1:016x}")]
    c.equal("add_many_spans", [s.model_dump() for s in await store.add_many_spans([*many, sent])], [s.model_dump() for s in many])
    made = sdk_span()
    stored = await store.add_otel_span(rollout, attempt, made)
    c.equal("sequence id of add_otel_span", stored.sequence_id, 4)
    c.equal("add_otel_span", stored.model_dump(mode="json"), agl.Span.from_opentelemetry(made, rollout, attempt, 4).model_dump(mode="json"))
    c.equal("add_otel_span with a number", await store.add_otel_span(rollout, attempt, made, 9), None)
    c.equal("query_spans", [s.sequence_id for s in await store.query_spans(rollout)], [1, 2, 3, 4])
    c.equal("query_spans of the latest", [s.name for s in await store.query_spans(rollout, "latest", sort_by="name", sort_order="desc")], ["step", "late", "early", "child"])
    page = await store.query_spans(rollout, attempt, limit=2, offset=1)
    c.equal("page of spans", ([s.model_dump() for s in page], page.total), ([s.model_dump() for s in reversed(many)], 4))
    for what, conditions, want in [
        ("name", dict(name="late"), [3]),
        ("name_contains", dict(name_contains="l"), [2, 3, 4]),
        ("trace_id", dict(trace_id=f"{2:032x}"), [2]),
        ("trace_id_contains", dict(trace_id_contains="0" * 31), [1, 2, 3]),
        ("span_id", dict(span_id=f"{3:016x}"), [3]),
        ("span_id_contains", dict(span_id_contains="00000000003"), [3]),
        ("parent_id", dict(parent_id=f"{1:016x}"), [2]),
        ("parent_id_contains", dict(parent_id_contains="0000001"), [2]),
        ("all of several", dict(name_contains="l", parent_id=f"{1:016x}"), [2]),
        ("any of several", dict(name="late", span_id=f"{1:016x}", filter_logic="or"), [1, 3]),
    ]:
        c.equal(f"query_spans by {what}", [s.sequence_id for s in await store.query_spans(rollout, **conditions)], want)
    c.equal("the first span sets the rollout running", (await store.get_rollout_by_id(rollout)).status, "running")


async def updates(c, store, claimed, rest):
    rollout, attempt = claimed.rollout_id, claimed.attempt.attempt_id
    now = float(int(time.time()))
    a = await store.update_attempt(rollout, "latest", worker_id="w-5", last_heartbeat_time=now, metadata={"a": 1.0})
    c.equal("update_attempt", (a.attempt_id, a.worker_id, a.last_heartbeat_time, repr(a.metadata)), (attempt, "w-5", now, "{'a': 1.0}"))
    r = await store.update_rollout(rollout, input="new", mode=None, resources_id="mine", config=agl.RolloutConfig(max_attempts=5), metadata={"n": None})
    c.equal("update_rollout", (r.input, r.mode, r.resources_id, r.config.max_attempts, r.metadata), ("new", None, "mine", 5, {"n": None}))
    c.equal("update_rollout of nothing", (await store.update_rollout(rollout)).model_dump(exclude={"attempt"}), r.model_dump(exclude={"attempt"}))
    a = await store.update_attempt(rollout, attempt, status="succeeded")
    c.true("a finished attempt has an end", a.status == "succeeded" and a.end_time >= a.start_time)
    c.equal("a finished rollout", (await store.get_rollout_by_id(rollout)).status, "succeeded")
    c.equal("update_rollout of the status", (await store.update_rollout(rest[0].rollout_id, status="cancelled")).status, "cancelled")
    c.equal("update_attempt to failed", (await store.update_attempt(rest[1].rollout_id, rest[1].attempt.attempt_id, status="failed")).status, "failed")


async def waits(c, store, finished, open_one):
    ids = [open_one.rollout_id, "ro-unknown", finished.rollout_id]
    for timeout in (0.0, 0.05):
        c.equal(f"wait_for_rollouts({timeout})", [r.rollout_id for r in await store.wait_for_rollouts(rollout_ids=ids, timeout=timeout)], [finished.rollout_id])
    try:
        await store.wait_for_rollouts(rollout_ids=ids, timeout=1)
        c.true("a long wait is refused", False)
    except ValueError:
        pass
    waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=[open_one.rollout_id]))
    await asyncio.sleep(0.2)
    c.true("the wait goes on while the rollout does", not waiting.done())
    await store.update_attempt(open_one.rollout_id, open_one.attempt.attempt_id, status="succeeded")
    finished_at = time.monotonic()
    c.equal("wait_for_rollouts without a limit", [r.status for r in await waiting], ["succeeded"])
    return time.monotonic() - finished_at


async def workers(c, store):
    c.equal("a worker that finished", (await store.get_worker_by_id("w-2")).status, "idle")
    c.equal("a worker that did not", (await store.get_worker_by_id("w-4")).status, "busy")
    w = await store.update_worker("w-6", {"cpu": 1.0, "gpus": []})
    c.equal("update_worker", (w.status, repr(w.heartbeat_stats)), ("unknown", repr({"cpu": 1.0, "gpus": []})))
    c.equal("update_worker without stats", repr((await store.update_worker("w-6")).heartbeat_stats), repr({"cpu": 1.0, "gpus": []}))
    c.equal("query_workers", [w.worker_id for w in await store.query_workers(worker_id_contains="w-", sort_by="worker_id")], ["w-1", "w-2", "w-3", "w-4", "w-5", "w-6"])
    c.equal("query_workers by status", [w.worker_id for w in await store.query_workers(status_in=["unknown"])], ["w-6"])
    c.equal("query_workers by any", {w.worker_id for w in await store.query_workers(status_in=["unknown"], worker_id_contains="3", filter_logic="or")}, {"w-3", "w-6"})


async def rollouts(c, store, claimed, rest):
    ids = [claimed.rollout_id, *(r.rollout_id for r in rest)]
    c.equal("query_rollouts", len(await store.query_rollouts()), 5)
    for what, conditions, want in [
        ("status_in", dict(status_in=["cancelled", "failed"]), {ids[1], ids[2]}),
        ("an empty status_in", dict(status_in=[]), set()),
        ("status", dict(status=["cancelled"]), {ids[1]}),
        ("rollout_id_in", dict(rollout_id_in=ids[:2]), set(ids[:2])),
        ("rollout_ids", dict(rollout_ids=ids[:1]), {ids[0]}),
        ("rollout_id_contains", dict(rollout_id_contains=ids[3][4:]), {ids[3]}),
        ("all of several", dict(status_in=["failed"], rollout_id_in=ids), {ids[2]}),
        ("any of several", dict(status_in=["failed"], rollout_id_in=ids[:1], filter_logic="or"), {ids[0], ids[2]}),
    ]:
        c.equal(f"query_rollouts by {what}", {r.rollout_id for r in await store.query_rollouts(**conditions)}, want)
    page = await store.query_rollouts(sort_by="rollout_id", sort_order="desc", limit=2, offset=1, rollout_id_in=ids)
    c.equal("page of rollouts", ([r.rollout_id for r in page], page.total, page.limit, page.offset), (sorted(ids, reverse=True)[1:3], 4, 2, 1))
    c.true("rollouts carry their attempts", all(isinstance(r, agl.AttemptedRollout) for r in page))


async def mistakes(c, store, claimed):
    rollout, attempt = claimed.rollout_id, claimed.attempt.attempt_id
    await c.quick("get_rollout_by_id of an unknown rollout", lambda: store.get_rollout_by_id("ro-unknown"), None)
    await c.quick("get_latest_attempt of an unknown rollout", lambda: store.get_latest_attempt("ro-unknown"), None)
    await c.quick("get_resources_by_id of unknown resources", lambda: store.get_resources_by_id("rs-unknown"), None)
    await c.quick("get_worker_by_id of an unknown worker", lambda: store.get_worker_by_id("w-unknown"), None)
    await c.quick("update_rollout of an unknown rollout", lambda: store.update_rollout("ro-unknown", status="failed"), 404)
    await c.quick("update_rollout to no status", lambda: store.update_rollout(rollout, status=None), 400)
    await c.quick("update_rollout to a wrong status", lambda: store.update_rollout(rollout, status="done"), 422)
    await c.quick("start_attempt of an unknown rollout", lambda: store.start_attempt("ro-unknown"), 404)
    await c.quick("update_attempt of an unknown attempt", lambda: store.update_attempt(rollout, "at-unknown", status="failed"), 404)
    await c.quick("update_attempt to no status", lambda: store.update_attempt(rollout, attempt, status=None), 400)
    await c.quick("add_span of an unknown rollout", lambda: store.add_span(span("ro-unknown", attempt, 1)), 404)
    await c.quick("add_span of an unknown attempt", lambda: store.add_span(span(rollout, "at-unknown", 1)), 404)
    await c.quick("update_worker to null", lambda: store.update_worker("w-6", None), 400)
    await c.quick("query_rollouts by an unknown field", lambda: store.query_rollouts(sort_by="colour"), 400)
    await c.quick("query_spans of 0", lambda: store.query_spans(rollout, limit=0), 400)


async def crowds(c, store):
    """Many calls at once: nothing is made twice, and nothing is given twice."""
    made = await asyncio.gather(*(store.enqueue_rollout({"n": n}) for n in range(20)), *(store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n)] * 3) for n in range(5)))
    queued = [r.rollout_id for r in made[:20]] + [r.rollout_id for batch in made[20:] for r in batch]
    c.equal("different ids", len(set(queued)), 35)
    got = await asyncio.gather(*(store.dequeue_rollout() for _ in range(30)), *(store.dequeue_many_rollouts(limit=3) for _ in range(4)))
    given = [r.rollout_id for r in got[:30] if r] + [r.rollout_id for batch in got[30:] for r in batch]
    c.equal("what the queue gave", sorted(given), sorted(queued))
    attempt = next(r for r in got if r)
    numbers = await asyncio.gather(*(store.get_next_span_sequence_id(attempt.rollout_id, attempt.attempt.attempt_id) for _ in range(40)))
    c.equal("numbers", sorted(numbers), list(range(1, 41)))


SCALARS = {
    "rollouts": ["rollout_id", "start_time", "end_time", "mode", "resources_id", "status"],
    "attempts": ["attempt_id", "sequence_id", "start_time", "end_time", "status", "worker_id", "last_heartbeat_time"],
    "spans": ["attempt_id", "sequence_id", "trace_id", "span_id", "parent_id", "name", "start_time", "end_time"],
    "resources": ["resources_id", "create_time", "update_time", "version"],
    "workers": ["worker_id", "status", "last_heartbeat_time", "last_dequeue_time", "last_busy_time", "last_idle_time", "current_rollout_id", "current_attempt_id"],
}


async def sorting(c, store, claimed, started):
    """Sorts by every scalar member and compares with what Python's own sort makes of it."""
    queries = {
        "rollouts": store.query_rollouts, "resources": store.query_resources, "workers": store.query_workers,
        "attempts": functools.partial(store.query_attempts, started), "spans": functools.partial(store.query_spans, claimed.rollout_id),
    }
    for noun, query in queries.items():
        base = list(await query(sort_by=None))
        if noun == "spans":
            base = [base[0], base[2], base[1], base[3]]  # in the order in which they were added
        for field in SCALARS[noun]:
            for order in ("asc", "desc"):
                missing = float("inf") if field.endswith("_time") else ""
                want = sorted(base, key=lambda item: missing if getattr(item, field) is None else getattr(item, field), reverse=order == "desc")
                got = await query(sort_by=field, sort_order=order)
                c.equal(f"{noun} by {field} {order}", list(got), want)
                if noun != "workers":  # whose pages the client cannot ask for
                    c.equal(f"page of {noun} by {field} {order}", list(await query(sort_by=field, sort_order=order, limit=2, offset=1)), want[1:3])


async def oddities(c, store):
    """What people do with ids and inputs because nothing forbids it."""
    for name in ("a b+c", "wörker", "50%", "a&b=c", "?", "#1", "..."):
        quoted = urllib.parse.quote(name, safe="")  # the client takes ids for parts of an address
        await store.update_worker(quoted, {"n": name})
        c.equal(f"worker {name}", (await store.get_worker_by_id(quoted)).worker_id, name)
        await store.update_resources(quoted, {})
        c.equal(f"resources {name}", [r.resources_id for r in await store.query_resources(resources_id=name)], [name])
    large = {"text": "ü" * (2 << 20), "list": list(range(100_000))}
    made = await store.enqueue_rollout(large, metadata={"also": large["text"]})
    c.true("a large input comes back", (await store.get_rollout_by_id(made.rollout_id)).input == large)
    await store.update_rollout(made.rollout_id, status="cancelled")
    empty = await store.start_rollout(None)
    c.equal("an input of nothing", empty.input, None)
    bare = span(empty.rollout_id, empty.attempt.attempt_id, 1, name="", attributes={"empty": [], "many": list(range(5000))}, events=[], links=[], start_time=None, context=None)
    c.equal("a bare span", (await store.add_span(bare)).model_dump(), bare.model_dump())


async def run(url):
    cls, public, used = recording(agl.LightningStoreClient)
    c = Checks()
    store = cls(url + "/")
    c.equal("capabilities", dict(store.capabilities), {"thread_safe": True, "async_safe": True, "zero_copy": True, "otlp_traces": True})
    c.equal("otlp_traces_endpoint", store.otlp_traces_endpoint(), url + "/v1/traces")
    c.equal("total_rollouts of nothing", (await store.statistics())["total_rollouts"], 0)
    resources_id = await resources(c, store)
    claimed, rest = await queue(c, store, resources_id)
    started = await attempts(c, store)
    await spans(c, store, claimed)
    await updates(c, store, claimed, rest)
    waking = await waits(c, store, claimed, rest[2])
    await workers(c, store)
    await rollouts(c, store, claimed, rest)
    await mistakes(c, store, claimed)
    await crowds(c, store)
    await sorting(c, store, claimed, started)
    await oddities(c, store)
    statistics = await store.statistics()
    await store.close()
    return {
        "public": public, "used": sorted(used), "failures": c.failures, "seconds": c.seconds, "waking": waking, "statistics": statistics,
        "claimed": claimed.rollout_id, "rest": [r.rollout_id for r in rest], "started": started,
    }


def main(url):
    return asyncio.run(run(url))
