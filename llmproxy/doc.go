// Package llmproxy is the model proxy: agents call it as they would call the
// model, and what they asked and were answered is recorded as spans.
//
// [Proxy] serves OpenAI's chat completions, completions and Responses and
// Anthropic's Messages, each at
//
//	/rollout/{rollout}/attempt/{attempt}/v1/…    recorded for that attempt
//	/v1/…                                        passed on, not recorded
//
// with or without /v1 in the first, and the models at /models below both. A
// backend is asked in the caller's own dialect where it speaks that, and its
// answer is handed through byte for byte. Any other backend that speaks chat
// completions is asked for one, and the answer is translated as it comes.
//
// A recorded call asks the backend for token ids, log-probabilities and usage
// besides what the caller wants, hands the answer through as it comes, and
// becomes exactly one span, stored before the caller sees the end of the answer.
// Token ids are those of the bytes that the
// backend sent; when they are missing or do not add up the span says so in
// [semconv.CallProblem] and training leaves the call out.
//
// A call goes through these hands: path.go and caller.go find whose call it is,
// gate.go lets it in, models.go finds the model, balance.go and limit.go a place at
// one of its backends, dialect.go says how it is put to that one, upstream.go and
// retry.go send it, whole.go and stream.go bring the answer back, record.go writes
// the span and redact.go takes out of it what is not to be stored.
package llmproxy
