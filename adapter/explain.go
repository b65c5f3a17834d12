package adapter

import (
	"fmt"
	"math"
	"regexp"
	"strconv"

	agl "agentlightning"
	"agentlightning/rl"
)

// Why a call or a whole attempt is not trained on, beside the values of
// [semconv.CallProblem].
const (
	ReasonDuplicate        = "duplicate"           // another span records the same call
	ReasonAgent            = "agent_filtered"      // made by an agent that is not trained
	ReasonNoLogprobs       = "logprobs_missing"    // log-probabilities of its row are missing
	ReasonPromptTooLong    = "prompt_too_long"     // the prompt of its row is longer than its limit
	ReasonCutOff           = "response_cut"        // all that was sampled lies beyond a limit
	ReasonAttemptOpen      = "attempt_open"        // the attempt has not ended
	ReasonAttemptFailed    = "attempt_failed"      // it did not succeed
	ReasonSuperseded       = "attempt_superseded"  // a later attempt counts
	ReasonRolloutStatus    = "rollout_not_success" // the attempt succeeded, the rollout did not
	ReasonNoReward         = "no_reward"           // nobody put a reward on it
	ReasonRewardNotFinite  = "reward_not_finite"   // the reward is NaN or infinite
	ReasonRewardUnreadable = "reward_unreadable"   // the attributes of the reward do not add up
)

// ExplainConfig says how training would read an attempt. The zero value is what
// algorithm/pg does.
type ExplainConfig struct {
	TrajectoryConfig
	// Agent is searched in the names of agents whose calls are trained on; nil
	// trains on all calls.
	Agent *regexp.Regexp
	// OnFailure says what attempts are worth that failed or have no reward; empty
	// means [rl.DropFailed].
	OnFailure rl.OnFailure
	// LogprobsOptional trains on rows without log-probabilities too, as trainers
	// do that compute them again.
	LogprobsOptional bool
}

// Circumstances are what is known of an attempt beside its spans.
type Circumstances struct {
	AttemptID string
	// Number counts the attempts of a rollout from 1.
	Number int64
	Status agl.AttemptStatus
	// Rollout is the status of the rollout.
	Rollout agl.RolloutStatus
	// Superseded tells that a later attempt exists.
	Superseded bool
}

// ExplainedAttempt says what training makes of one attempt.
type ExplainedAttempt struct {
	AttemptID string            `json:"attempt_id"`
	Number    int64             `json:"sequence_id"`
	Status    agl.AttemptStatus `json:"status"`
	// Reason says why nothing of the attempt is trained on; empty when the
	// attempt as such counts. Detail says it in words.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Reward is the final reward, RewardSpan the span that carries it and
	// Rewards the number of spans that carry one.
	Reward     *float64 `json:"reward"`
	RewardSpan string   `json:"reward_span,omitempty"`
	Rewards    int      `json:"rewards"`
	Spans      int      `json:"spans"`
	// Rows is the number of rows trained on, Tokens that of their sampled tokens.
	Rows   int             `json:"rows"`
	Tokens int             `json:"tokens"`
	Calls  []ExplainedCall `json:"calls"`
}

// ExplainedCall says what training makes of one call.
type ExplainedCall struct {
	SpanID         string   `json:"span_id"`
	SequenceID     int64    `json:"sequence_id"`
	ResponseID     string   `json:"response_id,omitempty"`
	Source         string   `json:"source"` // who recorded it: proxy, tracer or the name of another tracer
	Agent          string   `json:"agent,omitempty"`
	Model          string   `json:"model,omitempty"`
	Version        int64    `json:"version"`
	FinishReason   string   `json:"finish_reason,omitempty"`
	PromptTokens   int      `json:"prompt_tokens"`
	ResponseTokens int      `json:"response_tokens"`
	Logprobs       bool     `json:"logprobs"`
	Reward         *float64 `json:"reward"` // given for this call
	Used           bool     `json:"used"`
	// Reason says why the call is not used, Detail says it in words.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Row is the row of the attempt that the call is part of, from 0; nil when
	// it is part of none.
	Row *int `json:"row"`
	// Mismatch says why the call opened a row of its own; nil for the first of
	// an attempt and for calls that continue a row. It is no reason to leave a
	// call out.
	Mismatch *ExplainedMismatch `json:"mismatch,omitempty"`
}

// ExplainedMismatch is a [Mismatch] with spans in place of indices.
type ExplainedMismatch struct {
	With     string `json:"with_span_id"`
	Sequence int64  `json:"with_sequence_id"`
	Position int    `json:"position"`
	Want     int32  `json:"want"`
	Got      int32  `json:"got"`
	Where    Place  `json:"where"`
}

func (m *ExplainedMismatch) String() string {
	switch m.Where {
	case InImages:
		return fmt.Sprintf("image %d differs from that of call %d", m.Position, m.Sequence)
	case AtEnd:
		return fmt.Sprintf("the prompt ends at token %d, within call %d", m.Position, m.Sequence)
	case InPrompt:
		return fmt.Sprintf("another conversation than call %d, from token %d on", m.Sequence, m.Position)
	case InAnswer, InContext:
	}
	return fmt.Sprintf("token %d is %d where the %s of call %d has %d", m.Position, m.Got, m.Where, m.Sequence, m.Want)
}

// Explain says of every call whether it is trained on and, when it is not, why.
func (r *Recording) Explain(at Circumstances, c ExplainConfig) ExplainedAttempt {
	e := ExplainedAttempt{
		AttemptID: at.AttemptID, Number: at.Number, Status: at.Status,
		Spans: r.spans, Rewards: len(r.rewards), Calls: []ExplainedCall{},
	}
	final := r.final()
	e.Reward, e.RewardSpan = final.value, final.span
	e.Reason, e.Detail = verdict(at, final, c.OnFailure)

	ordered := r.ordered()
	var calls []Call // those that count
	var places []int // of these among ordered
	for i := range ordered {
		o := &ordered[i]
		e.Calls = append(e.Calls, explained(o, c))
		if o.duplicate == nil {
			calls, places = append(calls, o.Call), append(places, i)
			if reason := e.Calls[i].Reason; reason != "" {
				calls[len(calls)-1].Problem = reason // so that it is in no row
			}
		}
	}
	for _, reward := range r.byOrder() {
		reward.assign(calls)
	}
	for i := range calls {
		e.Calls[places[i]].Reward = finite(calls[i].Reward)
	}
	rows, mismatches := Trajectories(calls, c.TrajectoryConfig)
	for _, m := range mismatches {
		with := &ordered[places[m.With]]
		e.Calls[places[m.Call]].Mismatch = &ExplainedMismatch{with.SpanID, with.SequenceID, m.Position, m.Want, m.Got, m.Where}
	}
	for i := range rows {
		e.row(i, &rows[i], calls, places, c)
	}
	if e.Reward != nil {
		e.Reward = finite(e.Reward)
	}
	for i := range e.Calls {
		call := &e.Calls[i]
		// What is wrong with a call is told before what is wrong with its attempt,
		// unless it makes no difference any more.
		if e.Reason != "" && (call.Reason == "" || at.Superseded) {
			call.Reason, call.Detail = e.Reason, e.Detail
		}
		call.Used = call.Reason == ""
	}
	return e
}

// verdict says why an attempt as a whole is not trained on.
func verdict(at Circumstances, final recordedReward, how rl.OnFailure) (reason, detail string) {
	drop := how != rl.KeepFailed && how != rl.ZeroFailed
	failed := at.Status != agl.AttemptSucceeded || at.Rollout != agl.RolloutSucceeded
	switch {
	case at.Superseded:
		return ReasonSuperseded, "a later attempt of the rollout counts"
	case !at.Status.Finished() && !at.Rollout.Terminal():
		return ReasonAttemptOpen, fmt.Sprintf("the attempt is %s", at.Status)
	case drop && at.Status != agl.AttemptSucceeded:
		return ReasonAttemptFailed, fmt.Sprintf("the attempt ended as %s; a failure is not a reward of 0", at.Status)
	case drop && failed:
		return ReasonRolloutStatus, fmt.Sprintf("the rollout is %s", at.Rollout)
	case how == rl.ZeroFailed && (failed || final.err == nil && final.value == nil):
		return "", "" // worth 0
	case final.err != nil:
		return ReasonRewardUnreadable, final.err.Error()
	case final.value == nil:
		return ReasonNoReward, "no span carries a reward"
	case finite(final.value) == nil:
		return ReasonRewardNotFinite, fmt.Sprintf("the reward is %v", *final.value)
	}
	return "", ""
}

func finite(v *float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil // JSON has no other
	}
	return v
}

// explained describes a call by itself.
func explained(o *recorded, c ExplainConfig) ExplainedCall {
	e := ExplainedCall{
		SpanID: o.SpanID, SequenceID: o.SequenceID, ResponseID: o.ResponseID, Source: o.source, Agent: o.Agent,
		Model: o.Model, Version: o.Version, FinishReason: o.FinishReason,
		PromptTokens: len(o.PromptIDs), ResponseTokens: len(o.ResponseIDs), Logprobs: o.hasLogprobs() && len(o.ResponseIDs) > 0,
		Reason: o.Problem, Detail: o.Detail,
	}
	switch {
	case o.duplicate != nil:
		e.Reason = ReasonDuplicate
		e.Detail = fmt.Sprintf("the same call is recorded by span %s (%s)", o.duplicate.SpanID, o.duplicate.source)
	case o.Problem != "":
	case c.Agent != nil && !c.Agent.MatchString(o.Agent):
		e.Reason, e.Detail = ReasonAgent, fmt.Sprintf("agent %q does not match %q", o.Agent, c.Agent)
	}
	return e
}

// row notes what became of the calls of a row.
func (e *ExplainedAttempt) row(number int, row *Trajectory, calls []Call, places []int, c ExplainConfig) {
	reason, detail := "", ""
	switch {
	case row.PromptCut:
		reason, detail = ReasonPromptTooLong, fmt.Sprintf("the first prompt of the row is longer than %d tokens", c.Limits.Prompt)
	case row.Logprobs == nil && !c.LogprobsOptional:
		reason, detail = ReasonNoLogprobs, "a call of the row came without a log-probability for each token: "+withoutLogprobs(row, calls)
	}
	sampled := map[int]bool{}
	for i, m := range row.Mask {
		if m != 0 {
			sampled[int(row.Origin[i])] = true
		}
	}
	for _, i := range row.Calls {
		call := &e.Calls[places[i]]
		call.Row = &number
		switch {
		case reason != "":
			call.Reason, call.Detail = reason, detail
		case !sampled[i]:
			call.Reason, call.Detail = ReasonCutOff, "the row is cut before what this call sampled"
		}
	}
	if reason == "" && e.Reason == "" && row.Sampled() > 0 {
		e.Rows++
		e.Tokens += row.Sampled()
	}
}

// withoutLogprobs names the calls of a row without log-probabilities.
func withoutLogprobs(row *Trajectory, calls []Call) string {
	names := ""
	for _, i := range row.Calls {
		if !calls[i].hasLogprobs() {
			if names != "" {
				names += ", "
			}
			names += "call " + strconv.FormatInt(calls[i].SequenceID, 10)
		}
	}
	return names
}
