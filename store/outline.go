package store

import agl "agentlightning"

// SpanOutline is what a list of spans shows of one: all but its attributes and
// the other large members.
type SpanOutline struct {
	SequenceID         int64
	SpanID, TraceID    string
	ParentID           *string
	Name               string
	StartTime, EndTime *float64 // Unix seconds
	Status             string   // UNSET, OK or ERROR
	Kind               SpanKind
	// PromptTokens and AnswerTokens of a model call, as far as it says; else 0.
	PromptTokens, AnswerTokens int64
	// RewardSet is that of the rewards; empty for those that the agent gave.
	RewardSet string
	// Rewards that the span carries, the one that counts first.
	Rewards []agl.RewardDimension
	Events  []EventMark // the first [OutlineEvents]
}

// EventMark is an event of a span without its attributes.
type EventMark struct {
	Name      string
	Timestamp *float64 // Unix seconds
}

// SpanKind says what a span is to people who read what an agent did.
type SpanKind string

// The kinds of spans. One that is several is the first of them.
const (
	KindCall      SpanKind = "call" // of a model
	KindReward    SpanKind = "reward"
	KindMessage   SpanKind = "message" // that the agent wrote
	KindException SpanKind = "exception"
	KindOther     SpanKind = "span"
)

// SpanKinds lists all kinds.
func SpanKinds() []SpanKind {
	return []SpanKind{KindCall, KindReward, KindMessage, KindException, KindOther}
}
