package credit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/semconv"
)

// Rollout is one attempt at a task, as rules see it.
type Rollout struct {
	ID string
	// Group names the task that it has in common with the others of its group.
	Group string
	// Failed tells that the rollout did not end as it should have. [Read] cannot
	// know; the caller sets it.
	Failed bool
	// Rejected tells that a correction took every token of the rollout away; it
	// takes no part. The caller sets it.
	Rejected bool
	// Final is the reward of the attempt, nil when it has none.
	Final *float64
	// Dimensions are the parts of the final reward, the primary one first.
	Dimensions []agl.RewardDimension
	// Baseline is the reward of the greedy rollout of the task, for
	// [agentlightning/rl.ReMax]; nil otherwise.
	Baseline *float64
	// Calls are the model calls, in order. Those that are not usable earn nothing.
	Calls []Call
	// Rewards are all rewards of the attempt, in order, the final one included.
	Rewards []Reward
	// Unreadable says of each reward that cannot be read why. When it is the last
	// one, there is no final reward.
	Unreadable []error
}

// Call is one model call and where it stood.
type Call struct {
	adapter.Call
	// State is what the call saw last: the text of the last message of its prompt,
	// empty when the span has none. Calls of a group that saw the same are
	// compared by [AnchorStates].
	State string
}

// Reward is a reward that was put on an attempt.
type Reward struct {
	SpanID     string
	SequenceID int64
	// Value is the primary dimension.
	Value      float64
	Dimensions []agl.RewardDimension
	// Before is the index of the last call before the reward, -1 when there is
	// none. A reward without links belongs to it.
	Before int
	// Linked tells that the reward names what it is for; Calls are the calls that
	// match all of its links, possibly none.
	Linked bool
	Calls  []int
}

// Read reads the spans of one attempt.
func Read(id, group string, spans []agl.Span) Rollout {
	r := Rollout{ID: id, Group: group}
	calls, _ := adapter.Calls(spans) // its error is that of a reward, read again below
	byID := make(map[string]*agl.Span, len(spans))
	for i := range spans {
		byID[spans[i].SpanID] = &spans[i]
	}
	for _, c := range calls {
		r.Calls = append(r.Calls, Call{Call: c, State: lastMessage(byID[c.SpanID])})
	}
	ordered := make([]*agl.Span, len(spans))
	for i := range spans {
		ordered[i] = &spans[i]
	}
	slices.SortStableFunc(ordered, func(a, b *agl.Span) int { return cmp.Compare(a.SequenceID, b.SequenceID) })
	for _, s := range ordered {
		reward, ok, err := readReward(s)
		if err == nil && !ok {
			continue
		}
		if err == nil {
			err = reward.resolve(s, r.Calls, spans)
		}
		if err != nil {
			r.Unreadable = append(r.Unreadable, err)
			r.Final, r.Dimensions = nil, nil
			continue
		}
		reward.Before = -1
		for i, c := range r.Calls {
			if c.SequenceID < s.SequenceID {
				reward.Before = i
			}
		}
		r.Rewards = append(r.Rewards, reward)
		r.Final, r.Dimensions = &reward.Value, reward.Dimensions
	}
	return r
}

func readReward(s *agl.Span) (Reward, bool, error) {
	value, err := agl.RewardValue(s)
	if err != nil || value == nil {
		return Reward{}, false, err
	}
	dimensions, err := agl.Rewards(s)
	if err != nil {
		return Reward{}, false, err
	}
	if len(dimensions) == 0 { // an older format, with one value
		dimensions = []agl.RewardDimension{{Name: semconv.PrimaryReward, Value: *value}}
	}
	return Reward{SpanID: s.SpanID, SequenceID: s.SequenceID, Value: *value, Dimensions: dimensions}, true, nil
}

// link is one condition of a reward: the attribute, or trace_id or span_id, of
// the span that it is for, and its value.
type link struct{ key, value string }

// resolve finds the calls that a reward names. A link may name the span that an
// agent's own tracer wrote for a call that counts by the proxy's span; the two
// share the id of the response.
func (r *Reward) resolve(s *agl.Span, calls []Call, spans []agl.Span) error {
	var links []link
	for i := 0; ; i++ {
		key, hasKey := s.Attributes.String(semconv.LinkKeyMatch(i))
		value, hasValue := s.Attributes.String(semconv.LinkValueMatch(i))
		if !hasKey && !hasValue {
			break
		}
		if hasKey != hasValue {
			return fmt.Errorf("span %s: link %d has only one of %s and %s", s.SpanID, i, semconv.LinkKeyMatch(i), semconv.LinkValueMatch(i))
		}
		links = append(links, link{key, value})
	}
	if len(links) == 0 {
		return nil
	}
	r.Linked = true
	spanIDs, responses := map[string]bool{}, map[string]bool{}
	for i := range spans {
		if t := &spans[i]; matches(t, links) {
			spanIDs[t.SpanID] = true
			if id, ok := t.Attributes.String(semconv.GenAIResponseID); ok {
				responses[id] = true
			}
		}
	}
	for i, c := range calls {
		if spanIDs[c.SpanID] || c.ResponseID != "" && responses[c.ResponseID] {
			r.Calls = append(r.Calls, i)
		}
	}
	return nil
}

func matches(s *agl.Span, links []link) bool {
	for _, l := range links {
		var got string
		switch l.key {
		case "trace_id":
			got = s.TraceID
		case "span_id":
			got = s.SpanID
		default:
			var ok bool
			if got, ok = s.Attributes.String(l.key); !ok {
				return false
			}
		}
		if got != l.value {
			return false
		}
	}
	return true
}

// lastMessage is the text of the last message of a call's prompt.
func lastMessage(s *agl.Span) string {
	if s == nil {
		return ""
	}
	last := ""
	for i := 0; ; i++ {
		text, hasText := s.Attributes.String(semconv.PromptKey(i, "content"))
		_, hasRole := s.Attributes.String(semconv.PromptKey(i, "role"))
		if !hasText && !hasRole {
			return last
		}
		last = text
	}
}

// usable returns the indices of the calls that can be trained on.
func (r *Rollout) usable() []int {
	var out []int
	for i := range r.Calls {
		if r.Calls[i].Usable() {
			out = append(out, i)
		}
	}
	return out
}

// SetFinal replaces the final reward, in everything that rules read: penalties
// and controls change it so. The rollout must have one, or no reward at all.
func (r *Rollout) SetFinal(value float64) {
	r.Final = &value
	if len(r.Dimensions) > 0 {
		r.Dimensions = slices.Clone(r.Dimensions)
		r.Dimensions[0].Value = value
	}
	if n := len(r.Rewards); n > 0 {
		r.Rewards = slices.Clone(r.Rewards)
		r.Rewards[n-1].Value, r.Rewards[n-1].Dimensions = value, r.Dimensions
	}
}

// TakeRewards gives the rollout all rewards of another one, those on the way too:
// controls exchange rewards so. Each belongs to the call in the same place, or to
// the last one where the rollout has fewer calls; what the other was given after its
// last call, this one is given after its own.
func (r *Rollout) TakeRewards(from *Rollout) {
	r.Final, r.Dimensions = from.Final, slices.Clone(from.Dimensions)
	r.Rewards = slices.Clone(from.Rewards)
	place := func(call int) int {
		if call < 0 {
			return -1
		}
		if call == len(from.Calls)-1 {
			return len(r.Calls) - 1
		}
		return min(call, len(r.Calls)-1)
	}
	for i := range r.Rewards {
		w := &r.Rewards[i]
		w.Before = place(w.Before)
		var calls []int
		for _, call := range w.Calls {
			if at := place(call); at >= 0 && !slices.Contains(calls, at) {
				calls = append(calls, at)
			}
		}
		w.Calls = calls
	}
}

// dimension returns a part of a reward; without a name the primary one.
func dimension(primary *float64, parts []agl.RewardDimension, name string) *float64 {
	if name == "" {
		return primary
	}
	for i := range parts {
		if parts[i].Name == name {
			return &parts[i].Value
		}
	}
	return nil
}

// Earned returns what each call earned by itself: the sum of the rewards that
// belong to it. A reward before the first call, or with links that match no
// call, belongs to none.
func (r *Rollout) Earned() []float64 {
	out := make([]float64, len(r.Calls))
	for _, w := range r.Rewards {
		switch {
		case w.Linked:
			for _, i := range w.Calls {
				out[i] += w.Value
			}
		case w.Before >= 0:
			out[w.Before] += w.Value
		}
	}
	return out
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func formatFloat(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
