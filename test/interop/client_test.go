package interop

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
)

// TestClient calls everything that the Python client of the store offers.
func TestClient(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *server) {
		var got struct {
			Public, Used, Failures []string
			Seconds                map[string]float64
			Waking                 float64
			Statistics             struct {
				TotalRollouts  int64 `json:"total_rollouts"`
				TotalAttempts  int64 `json:"total_attempts"`
				TotalSpans     int64 `json:"total_spans"`
				TotalResources int64 `json:"total_resources"`
				TotalWorkers   int64 `json:"total_workers"`
				Uptime         float64
			}
			Claimed, Started string
			Rest             []string
		}
		call(t, "calls", map[string]any{"url": s.url}, &got)
		for _, failure := range got.Failures {
			t.Error(failure)
		}
		if len(got.Public) < 30 {
			t.Errorf("the client has the public members %v: has it lost some?", got.Public)
		}
		for _, name := range got.Public {
			if !slices.Contains(got.Used, name) {
				t.Errorf("%s is not exercised: add it to python/calls.py", name)
			}
		}
		for what, seconds := range got.Seconds {
			if seconds >= 0.1 {
				t.Errorf("%s took %.3f s, want less than 0.1 s", what, seconds)
			}
		}
		if got.Waking >= 1 {
			t.Errorf("a wait went on for %.3f s after the rollout had finished, want the answer at once", got.Waking)
		}
		if t.Failed() {
			return
		}

		if diff := cmp.Diff([]int64{5 + 35 + 2, 7 + 35 + 1, 4 + 1, 2 + 7, 6 + 7}, []int64{
			got.Statistics.TotalRollouts, got.Statistics.TotalAttempts, got.Statistics.TotalSpans,
			got.Statistics.TotalResources, got.Statistics.TotalWorkers,
		}); diff != "" {
			t.Errorf("statistics of rollouts, attempts, spans, resources, workers (-want +got):\n%s", diff)
		}
		statuses := map[string]agl.RolloutStatus{}
		for _, id := range append(got.Rest, got.Claimed, got.Started) {
			statuses[id] = s.rollout(t, id).Status
		}
		if diff := cmp.Diff(map[string]agl.RolloutStatus{
			got.Claimed: agl.RolloutSucceeded, got.Rest[0]: agl.RolloutCancelled, got.Rest[1]: agl.RolloutFailed,
			got.Rest[2]: agl.RolloutSucceeded, got.Started: agl.RolloutPreparing,
		}, statuses); diff != "" {
			t.Errorf("statuses (-want +got):\n%s", diff)
		}
		claimed := s.rollout(t, got.Claimed)
		if string(claimed.Input) != `"new"` || claimed.Mode != "" || string(claimed.Metadata) != `{"n":null}` || claimed.Config.MaxAttempts != 5 {
			t.Errorf("claimed rollout is %+v, want what it was updated to", claimed.Rollout)
		}
		if n := len(s.attempts(t, got.Started)); n != 3 {
			t.Errorf("%d attempts of the started rollout, want 3", n)
		}
		spans := s.spans(t, got.Claimed)
		names := make([]string, len(spans))
		for i := range spans {
			names[i] = spans[i].Name
		}
		if diff := cmp.Diff([]string{"step", "early", "late", "child"}, names); diff != "" {
			t.Fatalf("spans (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(agl.Attributes{
			{Key: "s", Value: "ü"},
			{Key: "b", Value: true},
			{Key: "i", Value: int64(7)},
			{Key: "f", Value: 7.0},
			{Key: "ss", Value: []string{"a", "b"}},
			{Key: "is", Value: []int64{1, 2}},
			{Key: "fs", Value: []float64{1, 2.5}},
			{Key: "bs", Value: []bool{true, false}},
		}, spans[0].Attributes); diff != "" {
			t.Errorf("attributes (-want +got):\n%s", diff)
		}
		if child := spans[3]; len(child.Events) != 2 || child.Status.StatusCode != agl.StatusError || child.ParentID == nil {
			t.Errorf("the SDK's span is %+v, want 2 events, an error and a parent", child)
		}
		if w := s.worker(t, "w-6"); string(w.HeartbeatStats) != `{"cpu":1.0,"gpus":[]}` {
			t.Errorf("heartbeat of w-6 is %s", w.HeartbeatStats)
		}
	})
}
