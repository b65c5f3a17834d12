package semconv

import "strconv"

// Attributes of model calls that OpenTelemetry's conventions for generative
// models name, in the spelling that readers of traces already understand.
const (
	GenAISystem          = "gen_ai.system"
	GenAIOperation       = "gen_ai.operation.name"
	GenAIAgentName       = "gen_ai.agent.name"
	GenAIRequestType     = "gen_ai.request.type"
	GenAIRequestModel    = "gen_ai.request.model"
	GenAIStreaming       = "gen_ai.request.streaming"
	GenAIResponseID      = "gen_ai.response.id"
	GenAIResponseModel   = "gen_ai.response.model"
	GenAIFinishReasons   = "gen_ai.response.finish_reasons"
	GenAIInputTokens     = "gen_ai.usage.input_tokens"
	GenAIOutputTokens    = "gen_ai.usage.output_tokens"
	GenAITotalTokens     = "gen_ai.usage.total_tokens"
	GenAIFirstToken      = "gen_ai.streaming.time_to_first_token" // seconds
	GenAIPrompt          = "gen_ai.prompt"                        // prefix of the messages asked with
	GenAICompletion      = "gen_ai.completion"                    // prefix of the messages answered
	GenAIRequest         = "gen_ai.request"                       // prefix of parameters
	GenAIRequestFunction = "gen_ai.request.functions"             // prefix of the tools offered
)

// Attributes that the proxy alone knows of a call.
const (
	ResponseLogprobs = "response_logprobs"            // of the sampled tokens, one for each id
	LogprobsRefusal  = "logprobs.refusal"             // as LogprobsContent, of a refusal
	CallBackend      = "agentlightning.call.backend"  // base URL of the backend that answered
	CallVersion      = "agentlightning.call.version"  // weights version that the backend served
	CallDialect      = "agentlightning.call.dialect"  // API that the caller spoke, the end of its path; absent for chat completions
	CallStatus       = "agentlightning.call.status"   // HTTP status of the backend's answer
	CallFailover     = "agentlightning.call.failover" // base URL of a backend that could not be reached before
	CallRefused      = "agentlightning.call.refused"  // fields that the backend does not accept and was spared
	CallRetries      = "agentlightning.call.retries"  // how often the call was sent again
	CallRetried      = "agentlightning.call.retried"  // why it was sent again the last time
	CallMessage      = "agentlightning.call.message"  // what went wrong, in words; beside [CallProblem]
)

// Values of [CallProblem].
const (
	ProblemTokenIDsMissing    = "token_ids_missing"    // the backend returned no token ids
	ProblemTokenIDsIncomplete = "token_ids_incomplete" // they do not add up with the usage
	ProblemUpstreamError      = "upstream_error"       // the backend refused the call or could not be reached
	ProblemUpstreamTimeout    = "upstream_timeout"     // the backend took longer than a limit allows
	ProblemTruncated          = "truncated"            // the answer ended before it was complete
	ProblemCancelled          = "cancelled"            // the caller went away
	ProblemContextOverflow    = "context_overflow"     // the prompt does not fit the model
	ProblemPaused             = "paused"               // calls were paused, so the backend was not called
)

// PromptKey returns the key of a member of message i of the prompt.
func PromptKey(i int, member string) string {
	return GenAIPrompt + "." + strconv.Itoa(i) + "." + member
}

// CompletionKey returns the key of a member of choice i of the answer.
func CompletionKey(i int, member string) string {
	return GenAICompletion + "." + strconv.Itoa(i) + "." + member
}

// FunctionKey returns the key of a member of tool i that the request offers.
func FunctionKey(i int, member string) string {
	return GenAIRequestFunction + "." + strconv.Itoa(i) + "." + member
}

// ToolCallKey returns the member name of tool call i within a message.
func ToolCallKey(i int, member string) string {
	return "tool_calls." + strconv.Itoa(i) + "." + member
}
