// Package otlp receives traces over OTLP/HTTP and turns them into spans of the
// store, and the other way round.
//
// [NewHandler] serves POST /v1/traces, in protobuf and in JSON, gzip or not. A
// span belongs to the rollout and the attempt that its attributes name, or
// those of its resource (see package semconv); one that names none is left out.
// Spans without a sequence id get the next numbers of their rollout, issued for
// the whole request at once. What cannot be stored is counted and explained in
// the answer's partial success, and does not keep the rest from being stored.
//
// Metrics, logs and profiles are answered with 501, which exporters take as a
// no for good.
package otlp
