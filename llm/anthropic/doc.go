// Package anthropic puts Anthropic's Messages as chat completions, and chat
// completions as Messages.
//
// [ChatRequest] turns a request of the one into a request of the other;
// [Translator] turns what is answered back, whole or event by event as it
// comes. Text and tool arguments are handed on as the backend spelled them.
// [Accumulator] takes from an answer that is in the Messages form already what
// tracing needs. Errors, the list of models and an estimate of tokens are here
// as well, in the shapes that Anthropic's clients read.
//
// [MessageRequest] and [ChatTranslator] do the same the other way round, for
// callers of chat completions at a server that has Messages only.
//
// What the other dialect has no place for is refused by name. Left out are
// members that do not change what is asked: cache_control, metadata and is_error
// of a message; seed, store, metadata and the like of a chat completion.
//
// The package is no client: use the official anthropic-sdk-go for that.
package anthropic
