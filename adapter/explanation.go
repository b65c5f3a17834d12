package adapter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	agl "agentlightning"
	"agentlightning/semconv"
)

// Sums count what became of attempts and their calls.
type Sums struct {
	Rollouts     int `json:"rollouts"`
	Used         int `json:"rollouts_used"`          // of which something is trained on
	WithoutCalls int `json:"rollouts_without_calls"` // in which no call was seen
	Attempts     int `json:"attempts"`
	Calls        int `json:"calls"`
	CallsUsed    int `json:"calls_used"`
	Rows         int `json:"rows"`
	Tokens       int `json:"tokens"` // sampled, in rows that are trained on
	Mismatches   int `json:"mismatches"`
	// Reasons count the calls that are not used, AttemptReasons the attempts.
	Reasons        map[string]int `json:"reasons"`
	AttemptReasons map[string]int `json:"attempt_reasons"`
}

// Add adds what was counted elsewhere.
func (s *Sums) Add(o Sums) {
	s.Rollouts += o.Rollouts
	s.Used += o.Used
	s.WithoutCalls += o.WithoutCalls
	s.Attempts += o.Attempts
	s.Calls += o.Calls
	s.CallsUsed += o.CallsUsed
	s.Rows += o.Rows
	s.Tokens += o.Tokens
	s.Mismatches += o.Mismatches
	s.Reasons = added(s.Reasons, o.Reasons)
	s.AttemptReasons = added(s.AttemptReasons, o.AttemptReasons)
}

func added(to, from map[string]int) map[string]int {
	if to == nil {
		to = map[string]int{}
	}
	for k, n := range from {
		to[k] += n
	}
	return to
}

// Handed is a model that a rollout was given.
type Handed struct {
	Name string `json:"name"` // of the resource
	Kind string `json:"kind"` // of the resource: llm or proxy_llm
	// URL is the address that the agent of the attempt was told to call.
	URL   string `json:"url"`
	Model string `json:"model"`
}

// HandedOut lists the models among resources as an attempt is given them.
func HandedOut(resources agl.NamedResources, rolloutID, attemptID string) []Handed {
	out := []Handed{}
	for _, r := range resources {
		switch m := r.Resource.(type) {
		case agl.LLM:
			out = append(out, Handed{r.Name, m.Kind(), m.Endpoint, m.Model})
		case agl.ProxyLLM:
			out = append(out, Handed{r.Name, m.Kind(), m.Route(rolloutID, attemptID).Endpoint, m.Model})
		}
	}
	return out
}

// Explanation says what training makes of a rollout.
type Explanation struct {
	RolloutID string            `json:"rollout_id"`
	Status    agl.RolloutStatus `json:"status"`
	Mode      agl.Mode          `json:"mode,omitempty"`
	// Models are what the latest attempt was given.
	Models   []Handed           `json:"models"`
	Attempts []ExplainedAttempt `json:"attempts"`
	Sums     Sums               `json:"sums"`
	// Advice says in words what stands between the rollout and training, most
	// important first; empty when everything is trained on.
	Advice []string `json:"advice"`
}

// NewExplanation puts together what is known of a rollout. proxyURL is the
// address of the model proxy for its latest attempt, as agents reach it.
func NewExplanation(r agl.Rollout, models []Handed, attempts []ExplainedAttempt, proxyURL string) Explanation {
	e := Explanation{
		RolloutID: r.RolloutID, Status: r.Status, Mode: r.Mode, Models: models, Attempts: attempts,
		Sums: Sums{Rollouts: 1, Attempts: len(attempts), Reasons: map[string]int{}, AttemptReasons: map[string]int{}},
	}
	for i := range attempts {
		a := &attempts[i]
		e.Sums.Rows += a.Rows
		e.Sums.Tokens += a.Tokens
		if a.Reason != "" {
			e.Sums.AttemptReasons[a.Reason]++
		}
		for j := range a.Calls {
			c := &a.Calls[j]
			e.Sums.Calls++
			if c.Mismatch != nil {
				e.Sums.Mismatches++
			}
			if c.Used {
				e.Sums.CallsUsed++
			} else {
				e.Sums.Reasons[c.Reason]++
			}
		}
	}
	if e.Sums.Calls == 0 {
		e.Sums.WithoutCalls = 1
	}
	if e.Sums.CallsUsed > 0 {
		e.Sums.Used = 1
	}
	e.Advice = e.advise(proxyURL)
	return e
}

// advise says what to do, most important first.
func (e *Explanation) advise(proxyURL string) []string {
	advice := []string{}
	say := func(format string, args ...any) { advice = append(advice, fmt.Sprintf(format, args...)) }
	if len(e.Attempts) == 0 {
		say("the rollout is %s and was never attempted: is a runner running?", e.Status)
		return advice
	}
	last := &e.Attempts[len(e.Attempts)-1]
	foreign := map[string]int{} // calls of the last attempt that others recorded, without ids
	proxied := 0
	for i := range last.Calls {
		switch c := &last.Calls[i]; {
		case c.Source == sourceProxy:
			proxied++
		case c.Reason == semconv.ProblemTokenIDsMissing:
			foreign[c.Source]++
		}
	}
	if proxied == 0 && len(last.Calls) == 0 || len(foreign) > 0 {
		if len(last.Calls) == 0 {
			say("no model call was seen in attempt %s, which has %s", last.AttemptID, counted(last.Spans, "span"))
		}
		for _, source := range slices.Sorted(maps.Keys(foreign)) {
			say("%s recorded by %s and not by the model proxy, so without token ids", counted(foreign[source], "call"), source)
		}
		advice = append(advice, e.whereTo(proxyURL)...)
	}
	for _, reason := range slices.SortedFunc(maps.Keys(e.Sums.Reasons), e.byCount) {
		if text := remedy(reason); text != "" && !(reason == semconv.ProblemTokenIDsMissing && proxied == 0) {
			say("%s, %s: %s", counted(e.Sums.Reasons[reason], "call"), reason, text)
		}
	}
	if text := remedy(last.Reason); len(last.Calls) == 0 && text != "" {
		say("%s: %s", last.Reason, text)
	}
	answers := 0
	for i := range last.Calls {
		if m := last.Calls[i].Mismatch; m != nil && m.Where == InAnswer {
			answers++
		}
	}
	if answers > 0 {
		say("%s with a row of its own because an earlier answer came back with other token ids: "+
			"the history was tokenised again or rewritten. This is trained on, with more tokens than needed", counted(answers, "call"))
	}
	return advice
}

// byCount orders reasons, the most frequent first.
func (e *Explanation) byCount(a, b string) int {
	return cmp.Or(cmp.Compare(e.Sums.Reasons[b], e.Sums.Reasons[a]), cmp.Compare(a, b))
}

// whereTo says which address the agent was given, and what may be wrong with it.
func (e *Explanation) whereTo(proxyURL string) []string {
	var out []string
	for _, m := range e.Models {
		if m.Kind == agl.KindProxyLLM {
			out = append(out, fmt.Sprintf("the agent was given %s (resource %q, model %q): does it call this address, and no other?", m.URL, m.Name, m.Model))
			continue
		}
		out = append(out, fmt.Sprintf("resource %q is a plain llm at %s: unless that is the proxy with the rollout in its path, calls to it are not recorded; publish it as %s",
			m.Name, m.URL, agl.KindProxyLLM))
	}
	if len(out) == 0 {
		out = append(out, "no model is among the resources of the rollout; the address of the proxy for this attempt is "+proxyURL)
	}
	return out
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// remedy says what to do about a reason; it is empty where nothing needs to be done.
func remedy(reason string) string {
	switch reason {
	case semconv.ProblemTokenIDsMissing:
		return "the backend did not return token ids; use one that knows return_token_ids (vLLM from 0.10.2 on, the built-in model), " +
			"and look at the backend's answers in the span"
	case semconv.ProblemTokenIDsIncomplete:
		return "the token ids do not add up with what the backend says it used; the call is left out because they cannot be trusted"
	case semconv.ProblemUpstreamError:
		return "the backend refused or failed; the span holds what it said"
	case semconv.ProblemUpstreamTimeout:
		return "the backend took too long; --upstream-timeout and --upstream-idle-timeout set the limits of the server"
	case semconv.ProblemTruncated:
		return "the answer ended before it was complete"
	case semconv.ProblemCancelled:
		return "the agent hung up before the answer was complete; look at the time-out of its client"
	case semconv.ProblemContextOverflow:
		return "the prompt does not fit the model; shorten the history or serve with a longer context"
	case ReasonNoLogprobs:
		return "the backend did not return log-probabilities, which policy gradients need"
	case ReasonPromptTooLong:
		return "raise the limit of prompts, or shorten what agents send first"
	case ReasonCutOff:
		return "raise the limit of responses"
	case ReasonAttemptOpen:
		return "wait until it has ended"
	case ReasonAttemptFailed:
		return "agl rollouts show tells what the runner reported; agl rollouts retry runs it again"
	case ReasonRolloutStatus:
		return "only rollouts that succeeded are trained on"
	case ReasonNoReward:
		return "return a reward from the agent, or emit one before it ends"
	case ReasonRewardNotFinite:
		return "a reward must be a finite number"
	case ReasonRewardUnreadable:
		return "mend what writes the reward"
	case ReasonAgent:
		return "these agents were left out on purpose"
	}
	return ""
}
