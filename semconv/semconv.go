// Package semconv holds the names of spans and attributes that the protocol
// gives a meaning. It has constants and key builders only.
package semconv

import "strconv"

// Span names.
const (
	SpanAnnotation = "agentlightning.annotation" // annotations; rewards are annotations
	SpanMessage    = "agentlightning.message"    // text messages and logs
	SpanObject     = "agentlightning.object"     // serialised objects
	SpanException  = "agentlightning.exception"  // exceptions
	SpanOperation  = "agentlightning.operation"  // functions and blocks of code
	SpanVirtual    = "agentlightning.virtual"    // spans made from attributes alone
	SpanRescore    = "agentlightning.rescore"    // rewards of a named set, computed after the attempt
	SpanTrained    = "agentlightning.trained"    // what the policy in training thought of the tokens of an attempt
	SpanModelCall  = "openai.chat.completion"    // one call of a model, whatever its dialect

	// SpanEvent is the prefix of the spans of events of the 1.0 protocol; the
	// type of the event follows. Rewards and model calls have the names above.
	SpanEvent = "agentlightning.event."
)

// Attributes of the spans of events of the 1.0 protocol.
const (
	EventData     = "agentlightning.event.data"          // the data of the event, as JSON
	RoutedExperts = "agentlightning.call.routed_experts" // of a model call, as JSON; empty when a later call has them
)

// OperationReward marks an operation that computes a reward.
const OperationReward = "agentlightning.reward"

// Attributes that say where a span belongs. They are looked up in the span
// first, then in its resource.
const (
	RolloutID      = "agentlightning.rollout_id"
	AttemptID      = "agentlightning.attempt_id"
	SpanSequenceID = "agentlightning.span_sequence_id"
	TracerName     = "agentlightning.tracer.name"
)

// Attributes of the spans that emitters write.
const (
	Reward           = "agentlightning.reward" // prefix of reward dimensions
	Link             = "agentlightning.link"   // prefix of links
	Tag              = "agentlightning.tag"    // prefix of tags
	MessageBody      = "agentlightning.message.body"
	ObjectType       = "agentlightning.object.type"
	ObjectLiteral    = "agentlightning.object.literal"
	ObjectJSON       = "agentlightning.object.json"
	OperationName    = "agentlightning.operation.name"
	OperationInput   = "agentlightning.operation.input"
	OperationOutput  = "agentlightning.operation.output"
	ExceptionType    = "exception.type"
	ExceptionMessage = "exception.message"
	ExceptionStack   = "exception.stacktrace"
	ExceptionEscaped = "exception.escaped"
)

// Attributes of model calls.
const (
	CallProblem      = "agentlightning.call.problem" // why a call is left out of training
	PromptTokenIDs   = "prompt_token_ids"
	ResponseTokenIDs = "response_token_ids"
	LogprobsContent  = "logprobs.content"
)

// Attributes of messages that hold what a program wrote.
const (
	ProgramStream  = "agentlightning.program.stream"  // stdout or stderr
	ProgramBytes   = "agentlightning.program.bytes"   // how much was written
	ProgramOmitted = "agentlightning.program.omitted" // how much of it is not in the message, from the middle
)

// Metadata keys that tie a rollout to the run that asked for it.
const (
	MetadataRunID  = "agl.run_id"
	MetadataStep   = "agl.step"
	MetadataGroup  = "agl.group"
	MetadataMember = "agl.member"
	MetadataSeed   = "agl.seed" // integer from which an agent derives the seeds of its model calls
	// MetadataRequest names, within a step, what asked for the rollout.
	MetadataRequest = "agl.request"
	// MetadataBaseline is true for a rollout that others are compared with.
	MetadataBaseline = "agl.baseline"
)

// Attributes of the spans named [SpanRescore]. None of their keys begins like one
// of a reward, so that readers that know the default set only pass over them.
const (
	RescoreSet    = "agentlightning.rescore.set"           // name of the set
	RescoreReward = "agentlightning.rescore.reward"        // prefix of reward dimensions, as Reward
	RescoreScorer = "agentlightning.rescore.scorer"        // what computed it, in words
	RescoreDigest = "agentlightning.rescore.scorer_digest" // tells two scorers apart
	RescoreNote   = "agentlightning.rescore.note"          // what a judge said beside the number
	RescoreInput  = "agentlightning.rescore.input_tokens"  // that a judge read for it
	RescoreOutput = "agentlightning.rescore.output_tokens" // that a judge wrote for it
	RescoreCost   = "agentlightning.rescore.cost"          // what the judge took for it
)

// Attributes of the spans named [SpanTrained], one for each step that trained on
// an attempt. The gap of a token is its log-probability under the policy that
// sampled it less that under the policy in training, in nats; see
// [agentlightning/learner.Batch] for the moment.
const (
	TrainedRun      = "agentlightning.trained.run_id"
	TrainedStep     = "agentlightning.trained.step"
	TrainedTokens   = "agentlightning.trained.tokens"           // how many tokens were trained on
	TrainedOmitted  = "agentlightning.trained.omitted"          // of these, not listed for want of room
	TrainedGap      = "agentlightning.trained.gap"              // sum of the gaps of all of them
	TrainedLargest  = "agentlightning.trained.largest"          // gap that is the furthest from 0
	TrainedCall     = "agentlightning.trained.largest.span_id"  // model call that it is in
	TrainedPosition = "agentlightning.trained.largest.position" // and the token of its answer, from 0
)

// TrainedSpanID returns the key of the model call of list i of a span named
// [SpanTrained].
func TrainedSpanID(i int) string { return trainedCall(i) + "span_id" }

// TrainedLogprobs returns the key of the log-probabilities, in nats, of tokens of
// that call's answer.
func TrainedLogprobs(i int) string { return trainedCall(i) + "logprobs" }

// TrainedPositions returns the key of which tokens these are, from 0; without it
// they are the first ones.
func TrainedPositions(i int) string { return trainedCall(i) + "positions" }

func trainedCall(i int) string { return "agentlightning.trained.call." + strconv.Itoa(i) + "." }

// PrimaryReward is the name of the reward dimension that training reads.
const PrimaryReward = "primary"

// RewardName returns the key of the name of reward dimension i; 0 is the primary one.
func RewardName(i int) string { return Reward + "." + strconv.Itoa(i) + ".name" }

// RewardValue returns the key of the value of reward dimension i.
func RewardValue(i int) string { return Reward + "." + strconv.Itoa(i) + ".value" }

// LinkKeyMatch returns the key of the attribute name that link i compares.
func LinkKeyMatch(i int) string { return Link + "." + strconv.Itoa(i) + ".key_match" }

// LinkValueMatch returns the key of the value that link i expects.
func LinkValueMatch(i int) string { return Link + "." + strconv.Itoa(i) + ".value_match" }

// TagKey returns the key of tag i.
func TagKey(i int) string { return Tag + "." + strconv.Itoa(i) }
