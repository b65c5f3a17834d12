package storehttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/rl"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// finished starts a rollout with n calls that continue one another, a reward
// unless it is nil, and an end.
func finished(t *testing.T, s store.Store, n int, reward *float64, end agl.AttemptStatus) agl.AttemptedRollout {
	t.Helper()
	ctx := t.Context()
	r, err := s.StartRollout(ctx, store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: []byte(`1`), Mode: agl.ModeTrain}})
	if err != nil {
		t.Fatal(err)
	}
	record(t, s, r, n, reward, end)
	return r
}

func record(t *testing.T, s store.Store, r agl.AttemptedRollout, n int, reward *float64, end agl.AttemptStatus) {
	t.Helper()
	ctx := t.Context()
	var spans []agl.Span
	prompt := []int64{1}
	for i := range n {
		core := agl.SpanCore{Name: semconv.SpanModelCall, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{
			{Key: semconv.CallBackend, Value: "http://b"},
			{Key: semconv.PromptTokenIDs, Value: prompt},
			{Key: semconv.ResponseTokenIDs, Value: []int64{2}},
			{Key: semconv.ResponseLogprobs, Value: []float64{-1}},
		}}
		spans = append(spans, core.Span(r.RolloutID, r.Attempt.AttemptID, int64(i+1), 1))
		prompt = append(slices.Clip(prompt), 2, 3)
	}
	if reward != nil {
		core := agl.SpanCore{Name: semconv.SpanAnnotation, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{
			{Key: semconv.RewardName(0), Value: "primary"}, {Key: semconv.RewardValue(0), Value: *reward},
		}}
		spans = append(spans, core.Span(r.RolloutID, r.Attempt.AttemptID, int64(n+1), 1))
	}
	if _, err := s.AddSpans(ctx, spans); err != nil {
		t.Fatal(err)
	}
	if end != "" {
		if _, err := s.UpdateAttempt(ctx, r.RolloutID, r.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(end)}); err != nil {
			t.Fatal(err)
		}
	}
}

// measured notes how often spans are asked for: as a stream, or a page at a time.
type measured struct {
	*engine.Store
	streams, pages int
}

func (c *measured) StreamSpans(ctx context.Context, q store.SpanQuery, f func(store.SpanJSON) error) (int, error) {
	c.streams++
	return c.Store.StreamSpans(ctx, q, f)
}

func (c *measured) QuerySpans(ctx context.Context, q store.SpanQuery) (store.Page[agl.Span], error) {
	c.pages++
	return c.Store.QuerySpans(ctx, q)
}

func (c *measured) QueryEncodedSpans(ctx context.Context, q store.SpanQuery) (store.Page[store.SpanJSON], error) {
	c.pages++
	return c.Store.QueryEncodedSpans(ctx, q)
}

func TestExplainRollout(t *testing.T) {
	t.Parallel()
	inner := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = inner.Close() })
	s := &measured{Store: inner}
	server := serve(t, storehttp.NewHandler(s, storehttp.Config{}), "")
	c := newClient(t, server.URL)
	ctx := t.Context()

	// Two attempts of many calls, of which the second counts.
	r := finished(t, inner, 150, nil, agl.AttemptFailed)
	second, err := inner.StartAttempt(ctx, r.RolloutID, nil)
	if err != nil {
		t.Fatal(err)
	}
	record(t, inner, second, 150, new(0.5), agl.AttemptSucceeded)
	e, err := c.ExplainRollout(ctx, r.RolloutID, adapter.ExplainConfig{})
	if err != nil {
		t.Fatal(err)
	}
	want := adapter.Sums{
		Rollouts: 1, Used: 1, Attempts: 2, Calls: 300, CallsUsed: 150, Rows: 1, Tokens: 150,
		Reasons: map[string]int{"attempt_superseded": 150}, AttemptReasons: map[string]int{"attempt_superseded": 1},
	}
	if diff := cmp.Diff(want, e.Sums); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
	if a := e.Attempts[1]; e.RolloutID != r.RolloutID || a.Number != 2 || *a.Reward != 0.5 || a.Calls[149].PromptTokens != 299 {
		t.Errorf("the second attempt is %+v", a)
	}
	// Pages would be sorted anew each, and all spans at once held in memory.
	if s.streams != 2 || s.pages != 0 {
		t.Errorf("spans were read as %d streams and %d pages, want one stream an attempt", s.streams, s.pages)
	}
	// How training is imagined reaches the server.
	e, err = c.ExplainRollout(ctx, r.RolloutID, adapter.ExplainConfig{
		TrajectoryConfig: adapter.TrajectoryConfig{Joining: adapter.Separate, Limits: adapter.Limits{Prompt: 9, Response: 8, Total: 7}},
		Agent:            regexp.MustCompile("^$|a&b"), LogprobsOptional: true,
	})
	if err != nil || e.Sums.Rows != 3 || e.Sums.Reasons["prompt_too_long"] != 145 || e.Sums.Reasons["response_cut"] != 2 {
		t.Errorf("with limits: %+v, %v, want 3 rows, 145 prompts too long and 2 cut off", e.Sums, err)
	}
	broken := finished(t, inner, 1, nil, agl.AttemptFailed)
	for how, rows := range map[rl.OnFailure]int{rl.DropFailed: 0, rl.KeepFailed: 0, rl.ZeroFailed: 1} {
		e, err := c.ExplainRollout(ctx, broken.RolloutID, adapter.ExplainConfig{OnFailure: how})
		if err != nil || e.Sums.Rows != rows {
			t.Errorf("failures that are %s: %d rows, %v, want %d", how, e.Sums.Rows, err, rows)
		}
	}
	if _, err := c.ExplainRollout(ctx, "ro-none", adapter.ExplainConfig{}); !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), "ro-none") {
		t.Errorf("an unknown rollout: %v, want %v and the id", err, store.ErrNotFound)
	}
}

func TestExplainNamesTheAddress(t *testing.T) {
	t.Parallel()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	server := serve(t, storehttp.NewHandler(s, storehttp.Config{}), "")
	elsewhere := serve(t, storehttp.NewHandler(s, storehttp.Config{PublicURL: "https://agl.example/"}), "")
	ctx := t.Context()
	bare := finished(t, s, 0, new(1.0), agl.AttemptSucceeded)
	path := "/rollout/" + bare.RolloutID + "/attempt/" + bare.Attempt.AttemptID + "/v1"
	for base, want := range map[string]string{server.URL: server.URL + path, elsewhere.URL: "https://agl.example" + path} {
		e, err := newClient(t, base).ExplainRollout(ctx, bare.RolloutID, adapter.ExplainConfig{})
		if err != nil || !strings.Contains(strings.Join(e.Advice, "\n"), want) {
			t.Errorf("advice is %q (%v), want the address %s", e.Advice, err, want)
		}
	}
	if _, err := s.AddResources(ctx, agl.NamedResources{{Name: "main", Resource: agl.ProxyLLM{Endpoint: "http://h/v1", Model: "m"}}}); err != nil {
		t.Fatal(err)
	}
	given := finished(t, s, 0, new(1.0), agl.AttemptSucceeded)
	e, err := newClient(t, server.URL).ExplainRollout(ctx, given.RolloutID, adapter.ExplainConfig{})
	want := []adapter.Handed{{Name: "main", Kind: "proxy_llm", URL: "http://h/rollout/" + given.RolloutID + "/attempt/" + given.Attempt.AttemptID + "/v1", Model: "m"}}
	if diff := cmp.Diff(want, e.Models); err != nil || diff != "" || !strings.Contains(strings.Join(e.Advice, "\n"), want[0].URL) {
		t.Errorf("models (-want +got):\n%s\nadvice %q, %v", diff, e.Advice, err)
	}
}

func TestExplainRollouts(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	c := newClient(t, b.server.URL)
	ctx := t.Context()
	var ids []string
	for i := range 7 {
		ids = append(ids, finished(t, b.store, 2, new(float64(i)), agl.AttemptSucceeded).RolloutID)
	}
	finished(t, b.store, 1, nil, agl.AttemptFailed)
	finished(t, b.store, 1, nil, agl.AttemptSucceeded)

	var sums adapter.Sums
	var seen []string
	for offset := 0; ; offset += 3 {
		page, err := c.ExplainRollouts(ctx, store.RolloutQuery{
			StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}, Paging: store.Paging{Limit: 3, Offset: offset},
		}, adapter.ExplainConfig{}, false)
		if err != nil {
			t.Fatal(err)
		}
		if page.Total != 8 || page.Limit != 3 || page.Offset != offset {
			t.Errorf("page of %d from %d of %d, want 3 from %d of 8", page.Limit, page.Offset, page.Total, offset)
		}
		sums.Add(page.Sums)
		for _, e := range page.Items {
			seen = append(seen, e.RolloutID)
			if len(e.Attempts[0].Calls) != 0 || e.Sums.Calls == 0 {
				t.Errorf("%+v has %d calls and sums of %d, want only the sums", e.RolloutID, len(e.Attempts[0].Calls), e.Sums.Calls)
			}
		}
		if offset+len(page.Items) >= page.Total {
			break
		}
	}
	if !cmp.Equal(ids, seen[:7]) {
		t.Errorf("rollouts are %v, want %v first", seen, ids)
	}
	want := adapter.Sums{
		Rollouts: 8, Used: 7, Attempts: 8, Calls: 15, CallsUsed: 14, Rows: 7, Tokens: 14,
		Reasons: map[string]int{"no_reward": 1}, AttemptReasons: map[string]int{"no_reward": 1},
	}
	if diff := cmp.Diff(want, sums); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
	page, err := c.ExplainRollouts(ctx, store.RolloutQuery{RolloutIDIn: ids[:2]}, adapter.ExplainConfig{}, true)
	if err != nil || len(page.Items) != 2 || len(page.Items[1].Attempts[0].Calls) != 2 || page.Limit != 100 {
		t.Errorf("explanations by id = %+v, %v, want two with their calls", page, err)
	}
	none, err := c.ExplainRollouts(ctx, store.RolloutQuery{RolloutIDIn: []string{}}, adapter.ExplainConfig{}, true)
	if err != nil || len(none.Items) != 0 || none.Sums.Reasons == nil {
		t.Errorf("explanations of none = %+v, %v", none, err)
	}
}

func TestExplainRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	handler := storehttp.NewHandler(b.store, storehttp.Config{})
	r := finished(t, b.store, 1, nil, "")
	for _, tt := range []struct {
		method, target, body string
		status               int
		want                 string
	}{
		{"GET", "/rollouts/" + r.RolloutID + "/explain?joining=x", "", 422, `"joining"`},
		{"GET", "/rollouts/" + r.RolloutID + "/explain?agent=(", "", 422, "not a regular expression"},
		{"GET", "/rollouts/" + r.RolloutID + "/explain?prompt_limit=-1", "", 422, "prompt_limit must be between 0"},
		{"GET", "/rollouts/" + r.RolloutID + "/explain?logprobs=perhaps", "", 422, `"logprobs"`},
		{"GET", "/rollouts/" + r.RolloutID + "/explain?on_failure=cry", "", 422, `"on_failure"`},
		{"GET", "/rollouts/ro-x/explain", "", 404, "ro-x"},
		{"POST", "/rollouts/explain", "", 422, `"missing"`},
		{"POST", "/rollouts/explain", `{"limit":1001}`, 400, "between 1 and 1000"},
		{"POST", "/rollouts/explain", `{"limit":-1}`, 400, "between 1 and 1000"},
		{"POST", "/rollouts/explain", `{"calls":"no way"}`, 422, `"calls"`},
		{"POST", "/rollouts/explain", `{"status_in":["done"]}`, 422, `"status_in"`},
		{"POST", "/rollouts/explain", `{"sort_by":"x"}`, 400, "Invalid sort_by"},
		{"POST", "/rollouts/" + r.RolloutID + "/explain", `{}`, 405, "Not Allowed"},
	} {
		got := call(t, handler, tt.method, storehttp.Prefix+tt.target, tt.body, "Content-Type", "application/json")
		if got.Code != tt.status || !strings.Contains(got.Body.String(), tt.want) {
			t.Errorf("%s %s %s = %d %s, want %d with %q", tt.method, tt.target, tt.body, got.Code, got.Body, tt.status, tt.want)
		}
	}
	if got := call(t, handler, http.MethodGet, storehttp.Prefix+"/rollouts/"+r.RolloutID+"/explain", ""); got.Code != http.StatusOK {
		t.Errorf("explain = %d %s", got.Code, got.Body)
	}
}

func ExampleClient_ExplainRollout() {
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	server := httptest.NewServer(storehttp.NewHandler(s, storehttp.Config{}))
	defer server.Close()
	client, err := storehttp.NewClient(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx := context.Background()
	rollouts, err := client.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: []byte(`"2+2?"`)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := client.ExplainRollout(ctx, rollouts[0].RolloutID, adapter.ExplainConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Advice[0])
	// Output:
	// the rollout is queuing and was never attempted: is a runner running?
}
