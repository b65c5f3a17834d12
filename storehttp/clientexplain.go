package storehttp

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"agentlightning/adapter"
	"agentlightning/store"
)

// ExplainRollout says what training makes of a rollout; [store.ErrNotFound] when
// it is unknown.
func (c *Client) ExplainRollout(ctx context.Context, rolloutID string, how adapter.ExplainConfig) (adapter.Explanation, error) {
	var e adapter.Explanation
	id, err := segment(rolloutID)
	if err != nil {
		return e, err
	}
	path := "/rollouts/" + id + "/explain?" + explaining(how).Encode()
	err = c.find(ctx, strings.TrimSuffix(path, "?"), &e, "Rollout "+rolloutID+" not found")
	return e, err
}

// ExplainRollouts says what training makes of the rollouts of a query, a page
// at a time: at most 1000, 100 without a limit. Without calls the attempts come
// without their calls; the sums count them all the same.
func (c *Client) ExplainRollouts(ctx context.Context, q store.RolloutQuery, how adapter.ExplainConfig, calls bool) (ExplanationPage, error) {
	b := newBody()
	b.rolloutFilters(&q)
	b.paging(q.Paging)
	for name, values := range explaining(how) {
		b.string(name, values[0])
	}
	b.name("calls")
	b.dst = strconv.AppendBool(b.dst, calls)
	var page ExplanationPage
	body, err := b.close()
	if err == nil {
		err = c.post(ctx, "/rollouts/explain", "", body, &page)
	}
	return page, err
}

// explaining writes how training is to be imagined, as parameters; what is the
// default is left out.
func explaining(how adapter.ExplainConfig) url.Values {
	v := url.Values{}
	if names := joiningNames(); how.Joining > 0 && int(how.Joining) < len(names) {
		v.Set("joining", names[how.Joining])
	}
	if how.LogprobsOptional {
		v.Set("logprobs", "optional")
	}
	if how.OnFailure != "" {
		v.Set("on_failure", string(how.OnFailure))
	}
	if how.Agent != nil {
		v.Set("agent", how.Agent.String())
	}
	for name, n := range map[string]int{
		"prompt_limit": how.Limits.Prompt, "response_limit": how.Limits.Response, "total_limit": how.Limits.Total,
	} {
		if n != 0 {
			v.Set(name, strconv.Itoa(n))
		}
	}
	return v
}
