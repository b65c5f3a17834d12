// Package llmproxy is the model proxy: agents call it as they would call the
// model, and what they asked and were answered is recorded as spans.
//
// [Proxy] serves OpenAI's chat completions at
//
//	/rollout/{rollout}/attempt/{attempt}/v1/chat/completions    recorded for that attempt
//	/v1/chat/completions                                        passed through, not recorded
//	…/v1/models                                                 the registered models
//
// with or without /v1. A recorded call asks the backend for token ids,
// log-probabilities and usage besides what the caller wants, hands the answer
// through as it comes, and becomes exactly one span, stored before the caller
// sees the end of the answer. Token ids are those of the bytes that the
// backend sent; when they are missing or do not add up the span says so in
// [semconv.CallProblem] and training leaves the call out.
//
// A call goes through four hands, one file each: path.go finds whose call it
// is, balance.go which backend serves it, upstream.go sends it, whole.go and
// stream.go bring the answer back, record.go writes the span.
package llmproxy
