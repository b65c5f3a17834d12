"""Sends spans with the OTLP exporter of the OpenTelemetry SDK, all of them in one request."""

import random

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

ROLLOUT, ATTEMPT, SEQUENCE = "agentlightning.rollout_id", "agentlightning.attempt_id", "agentlightning.span_sequence_id"

ATTRIBUTES = {
    "s": "ü\u2028\U0001f44b", "empty": "", "b": False, "i": -(2**62), "f": 2.0, "tiny": 5e-324,
    "ss": ["a", ""], "bs": [True, False], "is": [1, 2**53 + 1], "fs": [1.0, -0.5], "none": [],
}


class Recorded:
    def __init__(self, **resource):
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(resource=Resource.create(resource), span_limits=SpanLimits(max_span_attributes=1000))
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("interop")

    def spans(self):
        return list(self.exporter.get_finished_spans())


def many(attempt, count):
    r = Recorded(**{ROLLOUT: attempt["rollout_id"], ATTEMPT: attempt["attempt_id"], "service.name": "exporter"})
    with r.tracer.start_as_current_span("root", attributes=ATTRIBUTES) as root:
        root.add_event("e", {"k": [1, 2]}, timestamp=1700000000250000000)
        for i in range(count - 1):
            link = trace.Link(root.get_span_context(), {"n": i})
            r.tracer.start_span(f"step {i}", attributes={"number": i, "half": i / 2}, links=[link] if i == 0 else None).end()
        root.set_status(trace.StatusCode.ERROR, "told to")
    return r.spans()


def large(attempt, count):
    r = Recorded(**{ROLLOUT: attempt["rollout_id"], ATTEMPT: attempt["attempt_id"]})
    letters = random.Random(7)
    for i in range(count):
        text = "".join(letters.choices("abcdefghijklmnopqrstuvwxyzäöü", k=64 << 10))
        r.tracer.start_span(f"step {i}", attributes={"text": text, "length": len(text)}).end()
    return r.spans()


def mixed(attempt, others):
    """Spans that say themselves whose they are; some are nobody's, and some have no business here."""
    r = Recorded(**{ROLLOUT: attempt["rollout_id"], ATTEMPT: attempt["attempt_id"]})
    for i, other in enumerate(others):
        r.tracer.start_span(f"other {i}", attributes={ROLLOUT: other["rollout_id"], ATTEMPT: other["attempt_id"]}).end()
    r.tracer.start_span("numbered", attributes={SEQUENCE: "41"}).end()
    r.tracer.start_span("unknown", attributes={ROLLOUT: "ro-unknown", ATTEMPT: "at-unknown"}).end()
    r.tracer.start_span("own").end()
    nobody = Recorded()
    nobody.tracer.start_span("nobody's").end()
    return r.spans() + nobody.spans()


def over_grpc(endpoint, compression):
    import grpc
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GRPCSpanExporter

    how = {"none": grpc.Compression.NoCompression, "gzip": grpc.Compression.Gzip}[compression]
    return GRPCSpanExporter(endpoint=endpoint, insecure=True, compression=how, timeout=40)


def main(endpoint, kind, compression, **arguments):
    spans = {"many": many, "large": large, "mixed": mixed}[kind](**arguments)
    if endpoint.startswith("http"):
        exporter = OTLPSpanExporter(endpoint=endpoint, compression=Compression(compression), timeout=40)
    else:
        exporter = over_grpc(endpoint, compression)
    result = exporter.export(spans)
    exporter.shutdown()
    return {"exported": result is SpanExportResult.SUCCESS, "bytes": len(encode_spans(spans).SerializeToString())}
