package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/emit"
	"agentlightning/gateway"
	"agentlightning/internal/daemon"
	"agentlightning/semconv"
	"agentlightning/store"
)

// TestRolloutsOfTheOtherProtocol: what runners of 0.3 do is seen here, but not by
// controllers.
func TestRolloutsOfTheOtherProtocol(t *testing.T) {
	t.Parallel()
	model := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(strings.Replace(goodAnswer, `"token_ids":[3]`, `"token_ids":[3],"logprobs":{"content":[{"token":"4","logprob":-0.5}]}`, 1)))
	})
	s := serve(t, daemon.Config{})
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(s.client.PutModels(ctx, agl.Model{Name: "m", Endpoint: model.url + "/v1", Version: 3}))
	made, err := s.store.EnqueueRollouts(ctx, []store.EnqueueRequest{{
		Input: json.RawMessage(`{"instance_id":7}`), Mode: agl.ModeVal, Metadata: json.RawMessage(`{"k":"v"}`), Config: &agl.RolloutConfig{TimeoutSeconds: new(1.5)},
	}})
	ok(err)
	id := made[0].RolloutID
	status := func() gateway.Status {
		t.Helper()
		detail, err := s.client.Rollout(ctx, id)
		ok(err)
		return detail.Rollout.Status
	}
	detail, err := s.client.Rollout(ctx, id)
	ok(err)
	want := gateway.RolloutDetail{Attempts: []string{}, Rollout: gateway.Rollout{
		RolloutID: id, Input: json.RawMessage(`{"instance_id":7}`), Config: gateway.RolloutConfig{TimeoutSeconds: 2},
		Metadata: json.RawMessage(`{"batch_idx":null,"sample_idx_in_batch":null,"k":"v"}`),
		Status:   gateway.Status{State: gateway.Queuing, Version: 1, CreatedAt: made[0].StartTime, UpdatedAt: made[0].StartTime},
	}}
	if diff := cmp.Diff(want, detail); diff != "" {
		t.Errorf("queued (-want +got):\n%s", diff)
	}
	listed, err := s.client.Rollouts(ctx, 0, gateway.Queuing, gateway.Running, gateway.Succeeded, gateway.Failed)
	ok(err)
	if len(listed) != 0 {
		t.Errorf("controllers are shown %v, want nothing", listed)
	}
	if _, err := s.client.PostEvent(ctx, id, "0", "x", nil); !gateway.IsNotFound(err) || !strings.Contains(err.Error(), "Attempt 0 not found") {
		t.Errorf("an event before there is an attempt: %v", err)
	}

	claimed, err := s.store.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1})
	ok(err)
	attempt := claimed[0].Attempt.AttemptID
	if got := status(); got.State != gateway.Queuing || *got.LastAttemptID != attempt {
		t.Errorf("preparing is %+v, want it to be queuing", got)
	}
	// The agent calls its model where 0.3 has it, emits a reward, and posts an
	// event to the attempt that 1.0 knows.
	code, _, text := s.send(t, http.MethodPost, "/rollout/"+id+"/attempt/"+attempt+"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"2+2"}],"seed":1}`, nil)
	if code != http.StatusOK {
		t.Fatalf("the model answers %d %s", code, text)
	}
	reward, err := emit.RewardCore(0.5)
	ok(err)
	other := agl.SpanCore{Name: "step", Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{}}
	_, err = s.store.AddSpans(ctx, []agl.Span{reward.Span(id, attempt, 2, 10), other.Span(id, attempt, 3, 11)})
	ok(err)
	posted, err := s.client.PostEvent(ctx, id, "0", "note", json.RawMessage(`{"a":1}`))
	ok(err)
	if posted.AttemptID != attempt {
		t.Errorf("the event is of attempt %s, want %s", posted.AttemptID, attempt)
	}
	if got := status(); got.State != gateway.Running || got.Version != 2 {
		t.Errorf("running is %+v", got)
	}

	events, err := s.client.Events(ctx, id, gateway.EventQuery{})
	ok(err)
	if len(events) != 3 || events[1].EventType != "reward" || string(events[1].Data) != `{"value":0.5}` || events[2].EventType != "note" {
		t.Fatalf("events are %+v, want a model request, a reward and a note", events)
	}
	var request map[string]json.RawMessage
	ok(json.Unmarshal(events[0].Data, &request))
	delete(request, "latency_ms")
	wantRequest := map[string]json.RawMessage{
		"model": []byte(`"m"`), "model_version": []byte("3"), "http_status": []byte("200"), "status": []byte(`"ok"`), "retry_count": []byte("0"),
		"request":        []byte(`{"model":"m","messages":[{"content":"2+2","role":"user"}],"seed":1}`),
		"server":         []byte(`{"model":"m","endpoint":"` + model.url + `/v1","version":3}`),
		"finish_reason":  []byte(`"stop"`),
		"routed_experts": []byte("null"),
		"usage":          []byte(`{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}`),
		"response": []byte(`{"id":"c-1","model":null,"prompt_token_ids":[1,2],"choices":[{"index":0,"message":{"content":"4","role":"assistant"},` +
			`"finish_reason":"stop","token_ids":[3],"logprobs":{"content":[{"logprob":-0.5}]}}],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}}`),
	}
	if diff := cmp.Diff(wantRequest, request, cmp.Transformer("text", func(r json.RawMessage) string { return string(r) })); diff != "" {
		t.Errorf("model request (-want +got):\n%s", diff)
	}
	triplets, err := s.client.Events(ctx, id, gateway.EventQuery{Triplets: true})
	ok(err)
	if got, want := string(triplets[0].Data), `{"prompt_token_ids":[1,2],"response_token_ids":[3],"response_log_probs":[-0.5],"server":{"model":"m","version":3},"http_status":200,"status":"ok"}`; got != want {
		t.Errorf("triplet %s, want %s", got, want)
	}

	if _, err := s.client.PatchRollout(ctx, id, gateway.StatusPatch{State: gateway.Failed}); !gateway.IsConflict(err) {
		t.Errorf("a controller changes it: %v, want a conflict", err)
	}
	if r, err := s.client.PatchRollout(ctx, id, gateway.StatusPatch{}); err != nil || *r.Status.LastAttemptID != attempt {
		t.Errorf("an empty patch: %+v, %v", r, err)
	}
	_, err = s.store.UpdateRollout(ctx, id, store.RolloutUpdate{Status: store.To(agl.RolloutCancelled)})
	ok(err)
	if got := status(); got.State != gateway.Failed || got.ErrorMessage == nil || *got.ErrorMessage != "cancelled" || got.Version != 3 {
		t.Errorf("cancelled is %+v, want failed with a message", got)
	}
	page, err := s.client.Terminal(ctx, 0, 0, 0)
	ok(err)
	if diff := cmp.Diff([]gateway.TerminalItem{{RolloutID: id, State: gateway.Failed, DataID: "7"}}, page.Items); diff != "" {
		t.Errorf("completions (-want +got):\n%s", diff)
	}
	ok(s.client.DeleteRollout(ctx, id))
	if st, err := s.store.Statistics(ctx); err != nil || st.TotalRollouts != 0 || st.TotalSpans != 0 {
		t.Errorf("after deleting: %+v, %v", st, err)
	}
}

// TestEventsAreSpans: what 1.0 records, readers and adapters of 0.3 read.
func TestEventsAreSpans(t *testing.T) {
	t.Parallel()
	model := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(goodAnswer))
	})
	s := serve(t, daemon.Config{})
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(s.client.PutModels(ctx, agl.Model{Name: "m", Endpoint: model.url + "/v1"}))
	_, err := s.client.CreateRollouts(ctx, gateway.RolloutCreate{RolloutID: "r"})
	ok(err)
	if code, _, text := s.send(t, http.MethodPost, chatPath, `{"messages":[{"role":"user","content":"2+2"}]}`, nil); code != http.StatusOK {
		t.Fatalf("the model answers %d %s", code, text)
	}
	for _, e := range []struct{ kind, data string }{
		{"model_request", `{"model":"p","response":{"id":"c-2","prompt_token_ids":[1,2,3,4],"choices":[{"token_ids":[5],"logprobs":{"token_logprobs":[-0.25]}}]}}`},
		{"reward", `{"value":0.75}`},
		{"reward", `{"value":"high"}`},
		{"tool.used", `{"name":"add"}`},
	} {
		_, err := s.client.PostEvent(ctx, "r", "0", e.kind, json.RawMessage(e.data))
		ok(err)
	}
	page, err := s.store.QuerySpans(ctx, store.SpanQuery{RolloutID: "r"})
	ok(err)
	var names []string
	for i, span := range page.Items {
		names = append(names, span.Name)
		if span.AttemptID != "0" || span.SequenceID != int64(i+1) {
			t.Errorf("span %d is number %d of attempt %s", i, span.SequenceID, span.AttemptID)
		}
	}
	if diff := cmp.Diff([]string{
		semconv.SpanModelCall, semconv.SpanModelCall, semconv.SpanAnnotation, semconv.SpanAnnotation, "agentlightning.event.tool.used",
	}, names); diff != "" {
		t.Fatalf("spans (-want +got):\n%s", diff)
	}
	final, err := adapter.Final(page.Items)
	if err != nil || final == nil || *final != 0.75 {
		t.Errorf("final reward %v, %v, want 0.75", final, err)
	}
	triplets, err := adapter.TracerTriplets(page.Items, adapter.TracerOptions{})
	ok(err)
	var ids []any
	for _, triplet := range triplets {
		ids = append(ids, triplet.Prompt, triplet.Response)
	}
	text, err := json.Marshal(ids)
	ok(err)
	for _, part := range []string{`"token_ids":[1,2]`, `"token_ids":[3]`, `"token_ids":[1,2,3,4]`, `"token_ids":[5]`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("triplets %s lack %s", text, part)
		}
	}
}
