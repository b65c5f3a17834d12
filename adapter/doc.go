// Package adapter turns the spans of an attempt into what training reads.
//
// [Calls] is the way of this project: every model call with the engine's own
// token ids and log-probabilities, or with the reason why it cannot be trained
// on. [Trajectories] joins them to training rows. [ProxyTriplets], [TracerTriplets] and [Messages] are the adapters of
// Agent Lightning 0.3 (LlmProxyTraceToTriplet, TracerTraceToTriplet and
// TraceToMessages) and read the same spans with the same results.
//
// All functions are pure: they do no I/O, ask for no time and leave the spans
// alone. They expect the spans of one attempt.
package adapter
