package adapter

import (
	"cmp"
	"slices"

	agl "agentlightning"
	"agentlightning/semconv"
)

// Recording gathers what training reads of the spans of one attempt. Spans may
// come in any order and a page at a time; they are not kept. The zero value is
// empty.
type Recording struct {
	spans   int
	calls   []recorded
	rewards []recordedReward
	above   map[string]ancestor // by span id
}

// recorded is a span that looks like a model call.
type recorded struct {
	Call
	source string // who recorded it, see sourceOf
	parent string
	// duplicate is what counts in place of this one, nil when it counts itself.
	duplicate *recorded
}

type recordedReward struct {
	span     string
	sequence int64
	value    *float64
	err      error
}

// ancestor is what is needed to find the agent that a span belongs to.
type ancestor struct{ parent, agent string }

// Add reads spans of the attempt.
func (r *Recording) Add(spans ...agl.Span) {
	if r.above == nil {
		r.above = map[string]ancestor{}
	}
	for i := range spans {
		r.add(&spans[i])
	}
}

func (r *Recording) add(s *agl.Span) {
	r.spans++
	parent := ""
	if s.ParentID != nil {
		parent = *s.ParentID
	}
	agent := ownAgent(s)
	r.above[s.SpanID] = ancestor{parent, agent}
	if value, err := agl.RewardValue(s); value != nil || err != nil {
		r.rewards = append(r.rewards, recordedReward{s.SpanID, s.SequenceID, value, err})
	}
	source := sourceOf(s)
	if source == "" {
		return
	}
	call := recorded{Call: newCall(s, source), source: source, parent: parent}
	call.Agent = agent
	if source != sourceProxy && source != sourceTracer && call.Problem == semconv.ProblemTokenIDsMissing {
		call.Detail = "recorded by " + source + ", without token ids"
	}
	r.calls = append(r.calls, call)
}

// ownAgent returns the agent that a span names by itself.
func ownAgent(s *agl.Span) string {
	if name, ok := s.Attributes.String(semconv.GenAIAgentName); ok {
		return name
	}
	name, _ := agentName(s)
	return name
}

// agentOf returns the agent of a call: the one that it names, or that the
// nearest span above it names.
func (r *Recording) agentOf(c *recorded) string {
	if c.Agent != "" {
		return c.Agent
	}
	at := c.parent
	for range len(r.above) { // parents may go in a circle
		a, ok := r.above[at]
		if !ok || a.agent != "" {
			return a.agent
		}
		at = a.parent
	}
	return ""
}

// ordered returns the calls by sequence id, with rewards, agents and the marks
// of duplicates.
func (r *Recording) ordered() []recorded {
	calls := slices.Clone(r.calls)
	slices.SortStableFunc(calls, func(a, b recorded) int { return cmp.Compare(a.SequenceID, b.SequenceID) })
	counts := map[string]*recorded{} // by response id
	bySpan := map[string]*recorded{} // of the proxy, which may store a companion below its span
	var proxied *recorded
	for i := range calls {
		c := &calls[i]
		c.Agent = r.agentOf(c)
		first := counts[c.ResponseID]
		switch {
		case c.source == sourceProxy:
			proxied = c
			counts[c.ResponseID], bySpan[c.SpanID] = c, c
		case first == nil || first.source != sourceProxy && !first.Usable() && c.Usable():
			counts[c.ResponseID] = c
		}
	}
	for i := range calls {
		c := &calls[i]
		switch {
		case c.source == sourceProxy:
			// It saw the bytes of the answer, and two calls are two to it even if
			// a backend repeats its ids.
		case bySpan[c.parent] != nil:
			c.duplicate = bySpan[c.parent]
		case c.ResponseID != "":
			if first := counts[c.ResponseID]; first != c {
				c.duplicate = first
			}
		case !c.Usable() && proxied != nil:
			c.duplicate = proxied
		}
	}
	return calls
}

// Calls returns the model calls, as the function [Calls] does. With an error, of a
// reward that cannot be read, come the calls without the rewards from there on.
func (r *Recording) Calls() ([]Call, error) {
	var calls []Call
	for _, c := range r.ordered() {
		if c.duplicate == nil {
			calls = append(calls, c.Call)
		}
	}
	for _, reward := range r.byOrder() {
		if reward.err != nil {
			return calls, reward.err
		}
		reward.assign(calls)
	}
	return calls, nil
}

// byOrder returns the rewards by sequence id.
func (r *Recording) byOrder() []recordedReward {
	rewards := slices.Clone(r.rewards)
	slices.SortStableFunc(rewards, func(a, b recordedReward) int { return cmp.Compare(a.sequence, b.sequence) })
	return rewards
}

// final returns the reward of the attempt; its value is nil without one.
func (r *Recording) final() recordedReward {
	if rewards := r.byOrder(); len(rewards) > 0 {
		return rewards[len(rewards)-1]
	}
	return recordedReward{}
}

func (w recordedReward) assign(calls []Call) {
	if w.value != nil {
		assign(w.sequence, w.value, len(calls),
			func(i int) int64 { return calls[i].SequenceID },
			func(i int) **float64 { return &calls[i].Reward })
	}
}
