package openai

import "agentlightning/internal/jsonx"

// FieldTokenIDs is the member by which engines that know it are asked for the
// ids of the tokens that they read and sampled.
const FieldTokenIDs = "return_token_ids"

// CaptureChat returns what a chat completion has to ask for besides, so that
// its answer can be trained on: token ids, log-probabilities and usage.
func CaptureChat(r *Request) []Edit {
	return append([]Edit{
		{Key: FieldTokenIDs, Value: []byte("true")}, {Key: "logprobs", Value: []byte("true")},
	}, CaptureUsage(r)...)
}

// CaptureCompletion does the same for a completion. It asks for the
// log-probabilities of the sampled tokens where the caller does not ask for
// those and more.
func CaptureCompletion(r *Request) []Edit {
	edits := []Edit{{Key: FieldTokenIDs, Value: []byte("true")}}
	if kind := jsonx.KindOf(r.Raw("logprobs")); kind != jsonx.Number {
		edits = append(edits, Edit{Key: "logprobs", Value: []byte("1")})
	}
	return append(edits, CaptureUsage(r)...)
}

// CaptureUsage asks a stream for its usage, which whole answers have anyway.
func CaptureUsage(r *Request) []Edit {
	if !r.Stream || r.IncludeUsage {
		return nil
	}
	return []Edit{{Key: "stream_options", Value: r.UsageOptions()}}
}
