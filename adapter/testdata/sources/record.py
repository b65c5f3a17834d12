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


class Model(BaseHTTPRequestHandler):
    """Calls a tool that is offered, and answers once it has the result."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
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
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def instrument(source, exporter):
    """Returns the name of the package that records."""
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


def converse(base_url):
    import openai

    client = openai.OpenAI(base_url=base_url, api_key="x")
    parameters = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
    tools = [{"type": "function", "function": {"name": "multiply", "description": "Multiply two numbers.", "parameters": parameters}}]
    messages = [{"role": "system", "content": "Use the tool."}, {"role": "user", "content": "6*7?"}]
    asked = client.chat.completions.create(model="policy", messages=messages, tools=tools, temperature=0.5).choices[0].message
    messages.append({"role": "assistant", "content": None, "tool_calls": [c.model_dump() for c in asked.tool_calls]})
    messages.append({"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "42"})
    client.chat.completions.create(model="policy", messages=messages, tools=tools, temperature=0.5)


def recorded(i, span):
    attributes = {k: list(v) if isinstance(v, tuple) else v for k, v in span.attributes.items()}
    for key in ("code.filepath", "code.lineno"):
        attributes.pop(key, None)
    if "gen_ai.openai.api_base" in attributes:
        attributes["gen_ai.openai.api_base"] = "http://127.0.0.1:8000/v1/"
    return {
        "rollout_id": "ro", "attempt_id": "at", "sequence_id": i + 1, "trace_id": "t", "span_id": f"s{i + 1}", "parent_id": None,
        "name": span.name, "status": {"status_code": span.status.status_code.name, "description": None}, "attributes": attributes,
        "events": [{"name": e.name, "attributes": dict(e.attributes), "timestamp": None} for e in span.events], "links": [],
        "start_time": float(i), "end_time": i + 0.5, "context": None, "parent": None, "resource": {"attributes": {}, "schema_url": ""},
    }


def main(source):
    exporter = InMemorySpanExporter()
    package = instrument(source, exporter)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    converse(f"http://127.0.0.1:{server.server_port}/v1")
    spans = [recorded(i, s) for i, s in enumerate(exporter.get_finished_spans())]
    packages = {p: importlib.metadata.version(p) for p in (package, "openai", "opentelemetry-sdk")}
    with open(f"{source}.json", "w") as file:
        json.dump({"source": source, "packages": packages, "spans": spans}, file, indent=1)
        file.write("\n")


main(sys.argv[1])
