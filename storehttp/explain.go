package storehttp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/rl"
	"agentlightning/store"
)

// The routes that say what training makes of rollouts are ours alone.

const (
	// explainedAtATime and mostExplained are how many rollouts one request
	// explains without a limit, and with one at the most.
	explainedAtATime = 100
	mostExplained    = 1000
)

func (h *handler) explainRollout(c *call) answer {
	how := c.query().explaining()
	if !c.valid() {
		return c.invalid()
	}
	r, err := h.store.Rollout(c.Context(), c.params[0])
	if err != nil {
		return failed(err)
	}
	e, err := h.explain(c.Context(), &r, how, h.publicURL(c.Request))
	if err != nil {
		return failed(err)
	}
	return encoded(http.StatusOK, e)
}

// explainRollouts explains a page of rollouts, one after another, so that the
// spans of one of them are held at a time.
func (h *handler) explainRollouts(c *call) answer {
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	q := o.rolloutFilters()
	how := o.explaining()
	calls := true
	if v, given := o.get("calls"); given {
		calls = v.bool()
	}
	p := o.page("")
	q.Paging, q.Any = p.Paging, o.any()
	if !c.valid() {
		return c.invalid()
	}
	if _, given := o.get("limit"); !given {
		q.Limit, p.limit = explainedAtATime, explainedAtATime
	}
	if p.limit > mostExplained || p.limit < 1 {
		return failed(&refusal{http.StatusBadRequest, fmt.Sprintf(
			"Limit must be between 1 and %d; ask for the next page with offset", mostExplained)})
	}
	if err := p.check(rolloutFields); err != nil {
		return failed(err)
	}
	page, err := h.store.QueryRollouts(c.Context(), q)
	if err != nil {
		return failed(err)
	}
	out := ExplanationPage{Items: []adapter.Explanation{}, Limit: p.limit, Offset: p.offset, Total: page.Total}
	out.Sums.Add(adapter.Sums{}) // its maps are objects, not null
	base := h.publicURL(c.Request)
	for i := range page.Items {
		e, err := h.explain(c.Context(), &page.Items[i], how, base)
		if err != nil {
			return failed(err)
		}
		out.Sums.Add(e.Sums)
		if !calls {
			for j := range e.Attempts {
				e.Attempts[j].Calls = []adapter.ExplainedCall{}
			}
		}
		out.Items = append(out.Items, e)
	}
	return encoded(http.StatusOK, out)
}

// ExplanationPage is a part of the explanations of rollouts.
type ExplanationPage struct {
	Items []adapter.Explanation `json:"items"`
	// Sums are those of the page.
	Sums   adapter.Sums `json:"sums"`
	Limit  int          `json:"limit"`
	Offset int          `json:"offset"`
	Total  int          `json:"total"` // rollouts that match
}

// joiningNames are the names of the values of [adapter.Joining], in order.
func joiningNames() []string { return []string{"lineages", "linear", "separate"} }

// explaining reads how training is to be imagined.
func (o object) explaining() adapter.ExplainConfig {
	var how adapter.ExplainConfig
	if v, given := o.get("joining"); given {
		name := literal(v, joiningNames())
		how.Joining = adapter.Joining(max(0, slices.Index(joiningNames(), name)))
	}
	if v, given := o.get("logprobs"); given {
		how.LogprobsOptional = literal(v, []string{"required", "optional"}) == "optional"
	}
	if v, given := o.get("on_failure"); given {
		how.OnFailure = literal(v, []rl.OnFailure{rl.DropFailed, rl.KeepFailed, rl.ZeroFailed})
	}
	if v, given := o.get("agent"); given {
		text := v.string()
		var err error
		if how.Agent, err = regexp.Compile(text); err != nil {
			v.report("value_error", v.at, "agent is not a regular expression: "+err.Error(), v.raw)
		}
	}
	how.Limits = adapter.Limits{
		Prompt: o.limit("prompt_limit"), Response: o.limit("response_limit"), Total: o.limit("total_limit"),
	}
	return how
}

// limit reads a number of tokens.
func (o object) limit(name string) int {
	v, given := o.get(name)
	if !given {
		return 0
	}
	n := v.int()
	if n < 0 || n > math.MaxInt32 {
		v.report("value_error", v.at, fmt.Sprintf("%s must be between 0, which is no limit, and %d", name, math.MaxInt32), v.raw)
	}
	return int(n)
}

// explain reads what was recorded of a rollout.
func (h *handler) explain(ctx context.Context, r *agl.AttemptedRollout, how adapter.ExplainConfig, base string) (adapter.Explanation, error) {
	none := adapter.Explanation{}
	attempts, err := h.store.QueryAttempts(ctx, store.AttemptQuery{RolloutID: r.RolloutID, Paging: store.Paging{SortBy: "sequence_id"}})
	if err != nil {
		return none, err
	}
	resources, err := h.given(ctx, r)
	if err != nil {
		return none, err
	}
	explained := make([]adapter.ExplainedAttempt, len(attempts.Items))
	attemptID := ""
	for i := range attempts.Items {
		a := &attempts.Items[i]
		attemptID = a.AttemptID
		recording, err := h.recording(ctx, a)
		if err != nil {
			return none, err
		}
		explained[i] = recording.Explain(adapter.Circumstances{
			AttemptID: a.AttemptID, Number: int64(a.SequenceID), Status: a.Status,
			Rollout: r.Status, Superseded: i+1 < len(attempts.Items),
		}, how)
	}
	proxy := agl.ProxyLLM{Endpoint: base + "/v1"}.Route(r.RolloutID, attemptID).Endpoint
	return adapter.NewExplanation(r.Rollout, adapter.HandedOut(resources, r.RolloutID, attemptID), explained, proxy), nil
}

// recording reads the spans of an attempt, of which a small part is held at a time.
func (h *handler) recording(ctx context.Context, a *agl.Attempt) (*adapter.Recording, error) {
	var recording adapter.Recording
	q := store.SpanQuery{RolloutID: a.RolloutID, AttemptID: &a.AttemptID, Paging: store.Paging{SortBy: "sequence_id"}}
	_, err := h.streams.StreamSpans(ctx, q, func(span store.SpanJSON) error {
		s, err := span.Span()
		if err != nil {
			return err
		}
		recording.Add(s)
		return nil
	})
	return &recording, err
}

// given returns the resources that agents of a rollout are given: its own, or
// those published last.
func (h *handler) given(ctx context.Context, r *agl.AttemptedRollout) (agl.NamedResources, error) {
	var (
		u   agl.ResourcesUpdate
		err error
	)
	if r.ResourcesID != nil {
		u, err = h.store.Resources(ctx, *r.ResourcesID)
	} else {
		u, err = h.store.LatestResources(ctx)
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return u.Resources, err
}

// publicURL is the address of this server as agents reach it, as far as it is
// known.
func (h *handler) publicURL(r *http.Request) string {
	if h.config.PublicURL != "" {
		return strings.TrimSuffix(h.config.PublicURL, "/")
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}
