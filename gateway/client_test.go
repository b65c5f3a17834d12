package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	agl "agentlightning"
	"agentlightning/gateway"
	"agentlightning/internal/daemon"
)

// TestClient takes a rollout through its life with every method of the client.
func TestClient(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := serve(t, daemon.Config{AuthToken: "k"})
	c := s.client
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(c.Health(ctx))

	class, template := "m:C", "kind: Job"
	req := gateway.RolloutCreate{
		RolloutID: "a/b ü", Input: json.RawMessage(`{"data_id":"d","é":1.0}`), IsTrain: new(false), Metadata: json.RawMessage(`{"batch_idx":1,"x":"y"}`),
		Config: &gateway.RolloutConfig{
			TimeoutSeconds: 7, Local: &gateway.LocalConfig{AgentClass: &class, EnvMap: map[string]string{"A": "input"}}, K8s: &gateway.K8sConfig{JobTemplate: &template},
		},
	}
	made, err := c.CreateRollouts(ctx, req, gateway.RolloutCreate{})
	ok(err)
	want := gateway.Rollout{
		RolloutID: req.RolloutID, Input: req.Input, Config: *req.Config, Metadata: json.RawMessage(`{"batch_idx":1,"sample_idx_in_batch":null,"x":"y"}`),
		Status: gateway.Status{State: gateway.Queuing, Version: 1, CreatedAt: made[0].Status.CreatedAt, UpdatedAt: made[0].Status.CreatedAt},
	}
	if diff := cmp.Diff(want, made[0]); diff != "" {
		t.Errorf("made (-want +got):\n%s", diff)
	}
	if r := made[1]; len(r.RolloutID) != 32 || string(r.Input) != "null" || !r.IsTrain || r.Config.TimeoutSeconds != 3600 {
		t.Errorf("made %+v, want the defaults", r)
	}
	none, err := c.CreateRollouts(ctx)
	ok(err)
	listed, err := c.Rollouts(ctx, 1, gateway.Queuing, gateway.Running)
	ok(err)
	if len(none) != 0 || len(listed) != 1 || listed[0].RolloutID != req.RolloutID {
		t.Errorf("none %v, listed %v, want the older one", none, listed)
	}

	attempt, job, gone := new("0"), new("job"), (*string)(nil)
	running, err := c.PatchRollout(ctx, req.RolloutID, gateway.StatusPatch{State: gateway.Running, LastAttemptID: &attempt, K8sJobName: &job})
	ok(err)
	if s := running.Status; s.State != gateway.Running || *s.LastAttemptID != "0" || *s.K8sJobName != "job" || s.Version != 2 || s.UpdatedAt < s.CreatedAt {
		t.Errorf("running %+v", s)
	}
	_, err = c.PatchRollout(ctx, req.RolloutID, gateway.StatusPatch{State: gateway.Queuing})
	if !gateway.IsConflict(err) || !strings.Contains(err.Error(), "cannot transition running -> queuing") {
		t.Errorf("back to queuing: %v, want a conflict", err)
	}

	noted, err := c.PostEvent(ctx, req.RolloutID, "0", "note", json.RawMessage(`{"b":1.0,"a":[]}`))
	ok(err)
	bare, err := c.PostEvent(ctx, req.RolloutID, "0", "bare", nil)
	ok(err)
	reward, err := c.PostEvent(ctx, req.RolloutID, "0", "reward", json.RawMessage(`{"value":1,"message":"m"}`))
	ok(err)
	if noted.EventType != "note" || noted.RolloutID != req.RolloutID || noted.AttemptID != "0" || noted.Timestamp == 0 || string(bare.Data) != "{}" {
		t.Errorf("posted %+v and %+v", noted, bare)
	}
	events, err := c.Events(ctx, req.RolloutID, gateway.EventQuery{})
	ok(err)
	if diff := cmp.Diff([]gateway.Event{noted, bare, reward}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	triplets, err := c.Events(ctx, req.RolloutID, gateway.EventQuery{Type: new("reward"), Triplets: true, WithoutRoutedExperts: true})
	ok(err)
	if len(triplets) != 1 || string(triplets[0].Data) != `{"value":1}` {
		t.Errorf("triplets %+v", triplets)
	}
	detail, err := c.Rollout(ctx, req.RolloutID)
	ok(err)
	if diff := cmp.Diff(gateway.RolloutDetail{Rollout: running, Attempts: []string{"0"}}, detail); diff != "" {
		t.Errorf("detail (-want +got):\n%s", diff)
	}

	page := make(chan gateway.TerminalPage, 1)
	go func() {
		p, err := c.Terminal(ctx, 0, 5, time.Minute)
		if err != nil {
			t.Error(err)
		}
		page <- p
	}()
	_, err = c.PatchRollout(ctx, req.RolloutID, gateway.StatusPatch{State: gateway.Failed, K8sJobName: &gone})
	ok(err)
	wantPage := gateway.TerminalPage{Items: []gateway.TerminalItem{{RolloutID: req.RolloutID, State: gateway.Failed, DataID: "d"}}, NextAfter: 1, TotalTerminal: 1}
	if diff := cmp.Diff(wantPage, <-page); diff != "" {
		t.Errorf("completions (-want +got):\n%s", diff)
	}

	ok(c.PutModels(ctx, agl.Model{Name: "m", Endpoint: "http://a/v1", APIKey: "secret-key"}))
	ok(c.ReplaceModels(ctx, agl.Model{Name: "m", Endpoint: "http://b/v1", Version: 2}))
	ok(c.PutModels(ctx, agl.Model{Name: "n", Endpoint: "http://c/v1"}))
	ok(c.DeleteModels(ctx, "n"))
	models, err := c.Models(ctx)
	ok(err)
	if diff := cmp.Diff([]agl.Model{{Name: "m", Endpoint: "http://b/v1", Version: 2}}, models); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	ok(c.DeleteModels(ctx, ""))

	lease, after := 60.0, int64(3)
	paused, err := c.Pause(ctx, gateway.PauseRequest{Owner: "o", LeaseSeconds: &lease, RetryAfterSeconds: &after, Reason: new("r"), Hold: true})
	ok(err)
	wantState := gateway.PauseState{Paused: true, RetryAfterSeconds: 3, Reason: new("r"), Owner: "o", LeaseSeconds: &lease, Hold: true}
	if diff := cmp.Diff(wantState, paused, cmpopts.EquateApprox(0, 5)); diff != "" {
		t.Errorf("paused (-want +got):\n%s", diff)
	}
	if _, err := c.Resume(ctx, ""); !gateway.IsConflict(err) {
		t.Errorf("a resume of somebody else: %v, want a conflict", err)
	}
	_, err = c.Resume(ctx, "o")
	ok(err)
	state, err := c.ProxyState(ctx, time.Second)
	ok(err)
	if diff := cmp.Diff(gateway.PauseState{RetryAfterSeconds: 3}, state); diff != "" {
		t.Errorf("resumed (-want +got):\n%s", diff)
	}

	ok(c.DeleteRollout(ctx, req.RolloutID))
	ok(c.DeleteRollout(ctx, req.RolloutID))
	_, err = c.Rollout(ctx, req.RolloutID)
	if !gateway.IsNotFound(err) || !strings.HasSuffix(err.Error(), ": Rollout not found: a/b ü") {
		t.Errorf("of a deleted rollout: %v", err)
	}
}

func TestClientReportsRefusals(t *testing.T) {
	t.Parallel()
	s := serve(t, daemon.Config{AuthToken: "k"})
	_, err := s.client.Rollouts(t.Context(), 0)
	refused, ok := errors.AsType[*gateway.Error](err)
	if !ok || refused.Status != http.StatusUnprocessableEntity || !strings.HasPrefix(refused.Detail, `[{"type":"missing"`) {
		t.Errorf("without a state: %v, want what is missing", err)
	}
	other := *s.client
	other.Token = "x"
	if err := other.DeleteModels(t.Context(), ""); err == nil || err.Error() != "DELETE /api/models: 401 Unauthorized: Invalid or missing API key" {
		t.Errorf("with another token: %v", err)
	}
	garbled := gateway.Client{BaseURL: "http://x/", HTTP: &http.Client{Transport: backends(func(r *http.Request) (*http.Response, error) {
		if r.URL.String() != "http://x/api/models" {
			t.Errorf("asked %s", r.URL)
		}
		return reply(200, "text/html", "<html>")
	})}}
	if _, err := garbled.Models(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "GET /api/models: read the answer: ") {
		t.Errorf("of something else: %v", err)
	}
	plain := gateway.Client{BaseURL: "http://x", HTTP: &http.Client{Transport: backends(func(*http.Request) (*http.Response, error) {
		return reply(502, "text/plain", " bad gateway\n")
	})}}
	if err := plain.Health(t.Context()); err == nil || err.Error() != "GET /healthz: 502 Bad Gateway: bad gateway" {
		t.Errorf("of a gateway: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.client.Health(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if _, err := s.client.CreateRollouts(t.Context(), gateway.RolloutCreate{Input: json.RawMessage("{")}); err == nil {
		t.Error("an input that is no JSON was sent")
	}
	if err := (&gateway.Client{BaseURL: ":"}).Health(t.Context()); err == nil {
		t.Error("a base URL that is none was called")
	}
}

func TestAddressesOfAgents(t *testing.T) {
	t.Parallel()
	model := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, goodAnswer)
	})
	s := serve(t, daemon.Config{})
	c := &gateway.Client{BaseURL: s.url + "/", HTTP: s.client.HTTP}
	const id = "a/b ü"
	if _, err := c.CreateRollouts(t.Context(), gateway.RolloutCreate{RolloutID: id}); err != nil {
		t.Fatal(err)
	}
	if err := c.PutModels(t.Context(), agl.Model{Name: "m", Endpoint: model.url}); err != nil {
		t.Fatal(err)
	}
	post := func(url, body string) int {
		t.Helper()
		status, _, _ := s.send(t, http.MethodPost, strings.TrimPrefix(url, s.url), body, nil)
		return status
	}
	if status := post(c.OpenAIBaseURL(id, "7", "val")+"/chat/completions", "{}"); status != http.StatusOK {
		t.Errorf("a call at the base URL = %d", status)
	}
	if status := post(c.EventURL(id, "7"), `{"event_type":"x"}`); status != http.StatusOK {
		t.Errorf("an event at its URL = %d", status)
	}
	detail, err := c.Rollout(t.Context(), id)
	if err != nil || !cmp.Equal(detail.Attempts, []string{"7"}) {
		t.Errorf("attempts %v, %v, want 7", detail.Attempts, err)
	}
}
