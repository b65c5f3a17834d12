// Package openai reads and writes OpenAI's chat completions as far as a proxy
// has to understand them.
//
// Requests and answers stay the bytes they arrived as. [ParseRequest] looks at
// a request and [Request.Edit] changes single members of it; everything else,
// known here or not, passes untouched. [ParseAnswer] and [Accumulator] take
// from a whole answer or from the chunks of a stream what tracing and training
// need: text, tool calls, the engine's token ids, log-probabilities, usage and
// finish reasons. [EventReader] splits a stream of server-sent events without
// losing a byte of it.
//
// The package is no client: use the official openai-go for that.
package openai
