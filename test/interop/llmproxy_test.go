package interop

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/store"
)

// TestPythonProxy has the LLM proxy of the Python implementation write to the
// store what it saw of two calls.
func TestPythonProxy(t *testing.T) {
	t.Parallel()
	needPython(t)
	m := newVLLM(t, echo)
	eachBackend(t, func(t *testing.T, s *server) {
		var got struct {
			Rollout string
			Answers []string
		}
		call(t, "proxying", map[string]any{"url": s.url, "model": m.url, "questions": []string{"one", "two"}}, &got)
		if !slices.Equal(got.Answers, []string{"It is one", "It is two"}) {
			t.Errorf("the model said %q", got.Answers)
		}
		// The last span of a call is that of the whole request.
		s.until(t, "both calls are recorded", func(ctx context.Context) (bool, error) {
			page, err := s.client.QuerySpans(ctx, store.SpanQuery{RolloutID: got.Rollout, Name: new("Received Proxy Server Request")})
			return page.Total == 2, err
		})
		numbers := map[string][]int64{}
		for _, span := range s.spans(t, got.Rollout) {
			numbers[span.Name] = append(numbers[span.Name], span.SequenceID)
		}
		// All spans of a call carry the number that the proxy asked for before it.
		for _, name := range []string{"litellm_request", "raw_gen_ai_request", "Received Proxy Server Request"} {
			if diff := cmp.Diff([]int64{1, 2}, numbers[name]); diff != "" {
				t.Errorf("sequence ids of %s (-want +got):\n%s", name, diff)
			}
		}
		triplets, err := adapter.ProxyTriplets(s.spans(t, got.Rollout))
		if err != nil || len(triplets) != 2 || triplets[0].Reward != nil || triplets[1].Reward == nil || *triplets[1].Reward != 0.5 {
			t.Fatalf("ProxyTriplets = %+v, %v, want two, and the reward with the second", triplets, err)
		}
		want := m.triplets(t, s.spans(t, got.Rollout))
		want[1].Reward = new(0.5)
		compareTriplets(t, "our adapter", want, triplets)
		if r := s.rollout(t, got.Rollout); r.Status != agl.RolloutSucceeded {
			t.Errorf("the rollout is %s", r.Status)
		}
		sameInBoth(t, s, got.Rollout)
	})
}
