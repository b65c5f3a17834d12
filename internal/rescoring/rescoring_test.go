package rescoring_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/internal/rescoring"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// server is the protocol over a store, without a network.
type server struct {
	store   *engine.Store
	service *rescoring.Service
	handler http.Handler
}

// blocked is a store whose rollouts cannot be listed until the caller gives up.
type blocked struct{ *engine.Store }

func (blocked) QueryRollouts(ctx context.Context, _ store.RolloutQuery) (store.Page[agl.AttemptedRollout], error) {
	<-ctx.Done()
	return store.Page[agl.AttemptedRollout]{}, ctx.Err()
}

func setup(t *testing.T, block bool) *server {
	t.Helper()
	s := engine.New(memory.New(), engine.Config{})
	var over store.Store = s
	if block {
		over = blocked{s}
	}
	service := rescoring.New(rescoring.Config{Store: over})
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &server{s, service, storehttp.NewHandler(s, storehttp.Config{Rescorer: service})}
}

func (s *server) call(t *testing.T, method, path, body string, into any) int {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), method, "/v1/agl/"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	s.handler.ServeHTTP(w, r)
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatalf("%s %s = %d %s: %v", method, path, w.Code, w.Body, err)
		}
	}
	return w.Code
}

// rewarded stores a rollout that ended, with a reward unless it is nil.
func (s *server) rewarded(t *testing.T, reward *float64, end agl.AttemptStatus) string {
	t.Helper()
	r, err := s.store.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: []byte(`"task"`)}})
	if err != nil {
		t.Fatal(err)
	}
	if reward != nil {
		core := agl.SpanCore{Name: semconv.SpanAnnotation, Attributes: agl.Attributes{
			{Key: semconv.RewardName(0), Value: "primary"}, {Key: semconv.RewardValue(0), Value: *reward},
		}}
		if _, err := s.store.AddSpans(t.Context(), []agl.Span{core.Span(r.RolloutID, r.Attempt.AttemptID, 1, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.store.UpdateAttempt(t.Context(), r.RolloutID, r.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(end)}); err != nil {
		t.Fatal(err)
	}
	return r.RolloutID
}

func TestRescoring(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, false)
		good := []string{s.rewarded(t, new(1.0), agl.AttemptSucceeded), s.rewarded(t, new(3.0), agl.AttemptSucceeded)}
		bad := s.rewarded(t, new(0.0), agl.AttemptFailed)
		ids, _ := json.Marshal(append([]string{"ro-gone", bad}, good...))
		body := `{"set":"half","expression":"reward / 2.0","rollout_ids":` + string(ids) + `}`

		var begun storehttp.Rescoring
		if status := s.call(t, "POST", "rescores", body, &begun); status != http.StatusAccepted || begun.Status != storehttp.RescoreRunning || begun.Of != 4 {
			t.Fatalf("start = %d %+v, want 202, running", status, begun)
		}
		synctest.Wait()
		var list []storehttp.Rescoring
		s.call(t, "GET", "rescores", "", &list)
		want := begun
		want.Status, want.Done, want.Scored, want.MeanNew, want.MeanOld = storehttp.RescoreSucceeded, 4, 2, new(1.0), new(2.0)
		want.Skipped, want.EndTime = map[string]int{"is not there": 1, "did not succeed": 1}, new(begun.StartTime)
		if diff := cmp.Diff([]storehttp.Rescoring{want}, list); diff != "" {
			t.Errorf("list (-want +got):\n%s", diff)
		}
		for i, reward := range []float64{0.5, 1.5} {
			page, err := s.store.QuerySpans(t.Context(), store.SpanQuery{RolloutID: good[i]})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := agl.FinalReward(agl.InRewardSet(page.Items, "half")); err != nil || got == nil || *got != reward {
				t.Errorf("reward of rollout %d in the set = %v, %v, want %v", i, got, err, reward)
			}
		}

		// The same again scores nothing, another expression may not add to the set.
		s.call(t, "POST", "rescores", body, nil)
		synctest.Wait()
		s.call(t, "POST", "rescores", strings.Replace(body, "/ 2.0", "/ 3.0", 1), nil)
		synctest.Wait()
		list = nil
		s.call(t, "GET", "rescores", "", &list)
		if len(list) != 3 || list[1].Already != 2 || list[1].Scored != 0 || list[1].Status != storehttp.RescoreSucceeded {
			t.Errorf("the second time = %+v, want 2 that had a reward", list[1])
		}
		if list[0].Status != storehttp.RescoreFailed || !strings.Contains(list[0].Error, "another scorer") {
			t.Errorf("with another expression = %+v, want a failure that says so", list[0])
		}
	})
}

func TestRefused(t *testing.T) {
	t.Parallel()
	s := setup(t, false)
	for _, tt := range []struct {
		body   string
		status int
		says   string
	}{
		{`{"set":"a","expression":"reward +","rollout_ids":["r"]}`, 400, "Syntax error"},
		{`{"set":"a","expression":"'text'","rollout_ids":["r"]}`, 400, "must be a number"},
		{`{"set":"default","expression":"1.0","rollout_ids":["r"]}`, 400, "a set of its own"},
		{`{"set":"a b","expression":"1.0","rollout_ids":["r"]}`, 400, "letters, digits"},
		{`{"set":"a","base":"a","expression":"1.0","rollout_ids":["r"]}`, 400, "the set that is made"},
		{`{"set":"a","expression":"1.0","rollout_ids":[]}`, 400, "from 1 to 100000"},
		{`{"set":"a","expression":"1.0"}`, 422, "rollout_ids"},
		{`{"expression":"1.0","rollout_ids":["r"]}`, 422, "set"},
	} {
		var answer json.RawMessage
		if status := s.call(t, "POST", "rescores", tt.body, &answer); status != tt.status || !strings.Contains(string(answer), tt.says) {
			t.Errorf("%s = %d %s, want %d with %q", tt.body, status, answer, tt.status, tt.says)
		}
	}
	var answer json.RawMessage
	if status := s.call(t, "DELETE", "rescores/rs-1", "", &answer); status != http.StatusNotFound || !strings.Contains(string(answer), "rs-1") {
		t.Errorf("stop what is not there = %d %s, want 404", status, answer)
	}
}

// TestStop: work ends when it is told to, and with the service; meanwhile nobody
// else makes the same set.
func TestStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, true)
		start := func(set string) (int, storehttp.Rescoring) {
			var got storehttp.Rescoring
			return s.call(t, "POST", "rescores", `{"set":"`+set+`","expression":"1.0","rollout_ids":["r"]}`, &got), got
		}
		_, first := start("a")
		synctest.Wait()
		if status, _ := start("a"); status != http.StatusConflict {
			t.Errorf("the same set meanwhile = %d, want 409", status)
		}
		for _, set := range []string{"b", "c", "d"} {
			start(set)
		}
		if status, _ := start("e"); status != http.StatusConflict {
			t.Errorf("a fifth set meanwhile = %d, want 409", status)
		}
		s.call(t, "DELETE", "rescores/"+first.ID, "", nil)
		synctest.Wait()
		list := s.service.List()
		if got := list[3]; got.Status != storehttp.RescoreStopped || got.Error != "stopped" || got.EndTime == nil {
			t.Errorf("after stop = %+v, want stopped", got)
		}
		if list[0].Status != storehttp.RescoreRunning {
			t.Errorf("the others = %+v, want running", list[0])
		}
		if err := s.service.Close(); err != nil {
			t.Fatal(err)
		}
		if got := s.service.List()[0]; got.Status != storehttp.RescoreStopped || !strings.Contains(got.Error, "goes on") {
			t.Errorf("after the end = %+v, want stopped, to go on with later", got)
		}
		if status, _ := start("f"); status == http.StatusAccepted {
			t.Error("work was begun after the end")
		}
	})
}
