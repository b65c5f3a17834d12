"""Records the spans that an instrumentation makes of one conversation; see README.md."""

import importlib.metadata
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # agentlightning imports it


calls = []  # that weave sent


class Model(BaseHTTPRequestHandler):
    """Calls a tool that is offered, and answers once it has the result."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.path.startswith("/v1/chat/"):
            return self.stand_in(body)
        request = json.loads(body)
        n = len(request["messages"])
        message = {"role": "assistant", "content": "It is 42."}
        if request["messages"][-1]["role"] != "tool":
            call = {"id": "call_1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 6, "b": 7}'}}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        answer = {
            "id": f"chatcmpl-{n}", "object": "chat.completion", "created": 1700000000, "model": request["model"],
            "choices": [{
                "index": 0, "message": message, "finish_reason": "stop" if message["content"] else "tool_calls",
                "token_ids": [100 + n, 101 + n],
            }],
            "prompt_token_ids": list(range(n * 3)),
            "usage": {"prompt_tokens": n * 3, "completion_tokens": 2, "total_tokens": n * 3 + 2},
        }
        self.reply(answer)

    def do_GET(self):
        self.stand_in(b"")

    def stand_in(self, body):
        """Answers as W&B's services do, as far as weave wants to hear from them, and takes
        what AgentOps sends."""
        if self.path == "/graphql":
            return self.reply({"data": {"project": {"name": "record"}, "viewer": {"username": "x"}}})
        if self.path.endswith("/calls/complete"):
            calls.extend(json.loads(body)["batch"])
        version = {"min_required_weave_python_version": "0.0.1", "trace_server_version": "1.0.0"}
        self.reply(version | {"id": "x", "trace_id": "x", "digest": "x"})

    def reply(self, answer):
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def instrument(source, exporter, url):
    """Returns the name of the package that records."""
    if source == "agentops":
        import agentops
        from opentelemetry import trace

        # Without a key it talks to no service but the exporter's; metrics go to the cloud
        # once a minute, which this program does not live to see.
        agentops.init(api_key="", endpoint=url, exporter_endpoint=url + "/v1/traces", auto_start_session=False, log_level="ERROR")
        trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
        return "agentops"
    if source == "weave":
        # W&B's own settings for servers of one's own.
        os.environ |= {"WANDB_BASE_URL": url, "WF_TRACE_SERVER_URL": url, "WANDB_API_KEY": "x" * 40, "WANDB_ERROR_REPORTING": "false"}
        import weave

        weave.init("record/record")
        return "weave"
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    if source == "logfire":
        import logfire

        logfire.configure(send_to_logfire=False, console=False, additional_span_processors=[SimpleSpanProcessor(exporter)])
        logfire.instrument_openai()
        return "logfire"
    if source == "openinference":
        from openinference.instrumentation.openai import OpenAIInstrumentor

        package = "openinference-instrumentation-openai"
    elif source == "openllmetry":
        from opentelemetry.instrumentation.openai import OpenAIInstrumentor

        package = "opentelemetry-instrumentation-openai"
    else:
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

        package = "opentelemetry-instrumentation-openai-v2"
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    return package


def multiply(a: float, b: float) -> str:
    return str(a * b)


def converse(base_url, multiply=multiply):
    import openai

    client = openai.OpenAI(base_url=base_url, api_key="x")
    parameters = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
    tools = [{"type": "function", "function": {"name": "multiply", "description": "Multiply two numbers.", "parameters": parameters}}]
    messages = [{"role": "system", "content": "Use the tool."}, {"role": "user", "content": "6*7?"}]
    asked = client.chat.completions.create(model="policy", messages=messages, tools=tools, temperature=0.5).choices[0].message
    messages.append({"role": "assistant", "content": None, "tool_calls": [c.model_dump() for c in asked.tool_calls]})
    result = multiply(**json.loads(asked.tool_calls[0].function.arguments))
    messages.append({"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": result})
    return client.chat.completions.create(model="policy", messages=messages, tools=tools, temperature=0.5).choices[0].message.content


def run(source, base_url):
    """Has the conversation, in an agent with a tool where a tracer has words for them."""
    if source == "agentops":
        import agentops
        from agentops.sdk.decorators import agent, tool

        @agent(name="calculator")
        class Calculator:
            @tool(name="multiply")
            def multiply(self, a, b):
                return multiply(a, b)

            def run(self):
                converse(base_url, self.multiply)

        trace = agentops.start_trace("record")
        Calculator().run()
        agentops.end_trace(trace, end_state="Success")
    elif source == "weave":
        import weave

        @weave.op
        def calculator(question: str) -> str:
            return converse(base_url, weave.op(multiply))

        calculator("6*7?")
        weave.finish()
    else:
        converse(base_url)


def recorded_call(i, call, ids):
    """Makes a span of a call as WeaveTracer of agentlightning 0.3.0 does, with its own functions."""
    from agentlightning.utils.otel import flatten_attributes, sanitize_attributes

    call["inputs"].get("self", {}).get("client", {}).pop("base_url", None)
    for key in ("os_name", "os_version", "os_release", "sys_version"):
        call["attributes"].get("weave", {}).pop(key, None)
    attributes = {"agentlightning.operation.name": call["op_name"]} | call["attributes"]
    attributes |= {"agentlightning.operation.input": call["inputs"]} if call["inputs"] else {}
    attributes |= {"agentlightning.operation.output": call["output"]} if call["output"] else {}
    attributes |= call["summary"] or {}
    return {
        "rollout_id": "ro", "attempt_id": "at", "sequence_id": i + 1, "trace_id": "t", "span_id": ids[call["id"]],
        "parent_id": ids.get(call["parent_id"]), "name": call["op_name"].rsplit("/", 1)[-1].split(":")[0],
        "status": {"status_code": "OK", "description": None}, "attributes": sanitize_attributes(flatten_attributes(attributes, expand_leaf_lists=False)),
        "events": [], "links": [], "start_time": float(i), "end_time": i + 0.5, "context": None, "parent": None,
        "resource": {"attributes": {"agentlightning.tracer.name": "weave"}, "schema_url": ""},
    }


def recorded(i, span, ids):
    attributes = {k: list(v) if isinstance(v, tuple) else v for k, v in span.attributes.items()}
    for key in ("code.filepath", "code.lineno"):
        attributes.pop(key, None)
    if "gen_ai.openai.api_base" in attributes:
        attributes["gen_ai.openai.api_base"] = "http://127.0.0.1:8000/v1/"
    return {
        "rollout_id": "ro", "attempt_id": "at", "sequence_id": i + 1, "trace_id": "t", "span_id": f"s{i + 1}", "parent_id": span.parent and ids.get(span.parent.span_id),
        "name": span.name, "status": {"status_code": span.status.status_code.name, "description": None}, "attributes": attributes,
        "events": [{"name": e.name, "attributes": dict(e.attributes), "timestamp": None} for e in span.events], "links": [],
        "start_time": float(i), "end_time": i + 0.5, "context": None, "parent": None, "resource": {"attributes": {}, "schema_url": ""},
    }


def main(source):
    exporter = InMemorySpanExporter()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    package = instrument(source, exporter, url)
    run(source, url + "/v1")
    packages = [package, "openai", "opentelemetry-sdk"]
    if source == "weave":
        calls.sort(key=lambda c: c["started_at"])
        ids = {c["id"]: f"s{i + 1}" for i, c in enumerate(calls)}
        spans = [recorded_call(i, c, ids) for i, c in enumerate(calls)]
        packages = [package, "openai", "agentlightning"]
    else:
        finished = exporter.get_finished_spans()
        ids = {s.context.span_id: f"s{i + 1}" for i, s in enumerate(finished)}
        spans = [recorded(i, s, ids) for i, s in enumerate(finished)]
    versions = {p: importlib.metadata.version(p) for p in packages}
    with open(f"{source}.json", "w") as file:
        json.dump({"source": source, "packages": versions, "spans": spans}, file, indent=1)
        file.write("\n")
    os._exit(0)  # nothing is sent on the way out


main(sys.argv[1])
