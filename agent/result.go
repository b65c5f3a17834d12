package agent

import agl "agentlightning"

// Result is what an attempt came to. The zero value adds nothing to what was
// recorded while the agent ran.
type Result struct {
	// Reward is the final reward; nil when the agent does not give one.
	Reward *float64
	// Spans are written as they are, ids and sequence ids included.
	Spans []agl.Span
	// Cores are completed with ids and sequence ids and then written.
	Cores []agl.SpanCore
}

// Reward is the result of an agent that judges itself.
func Reward(v float64) Result { return Result{Reward: &v} }

// Output lists what the function of an agent may return: a reward, spans that
// it made itself, or a [Result].
type Output interface {
	float64 | []agl.Span | []agl.SpanCore | Result
}

func resultOf[R Output](out R) Result {
	switch out := any(out).(type) {
	case float64:
		return Reward(out)
	case []agl.Span:
		return Result{Spans: out}
	case []agl.SpanCore:
		return Result{Cores: out}
	case Result:
		return out
	}
	return Result{}
}
