// Package adapter turns the spans of an attempt into what training reads.
//
// [Calls] is the way of this project: every model call with the engine's own
// token ids and log-probabilities, or with the reason why it cannot be trained
// on. [Trajectories] joins the calls that continue one another to training rows.
// [Recording] takes the spans a page at a time and also says of every call
// whether it is trained on and why not. [Conversations] reads what was said,
// whoever recorded it.
//
// [ProxyTriplets], [TracerTriplets] and [Messages] are the adapters of Agent
// Lightning 0.3 (LlmProxyTraceToTriplet, TracerTraceToTriplet and
// TraceToMessages) and read the same spans with the same results, except where
// those lose spans or fail: a span that encloses the one above it stays where it
// is, a key such as 01 is that of an object, a span without times matters only
// where it is compared, and tool calls that the proxy recorded with an answer are
// read. Regular expressions are Go's.
//
// All functions are pure: they do no I/O, ask for no time and leave the spans
// alone. They expect the spans of one attempt.
package adapter
