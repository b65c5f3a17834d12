package algorithm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/semconv"
	"agentlightning/store"
)

// asked enqueues a rollout and finishes it, with a reward.
func asked(t *testing.T, s store.Store, req store.EnqueueRequest, reward float64) string {
	t.Helper()
	made, err := s.EnqueueRollouts(t.Context(), []store.EnqueueRequest{req})
	if err != nil {
		t.Fatal(err)
	}
	finish(t, s, agl.AttemptSucceeded, &reward, "")
	return made[0].RolloutID
}

func TestStoredChoosesWhatHasEnded(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	ofRun := func(input, run, group string) store.EnqueueRequest {
		return store.EnqueueRequest{Input: []byte(input), Mode: agl.ModeTrain, Metadata: fmt.Appendf(nil, `{"agl.run_id":%q,"agl.step":3,"agl.group":%q}`, run, group)}
	}
	first := asked(t, env.Store, ofRun(`"a"`, "run-1", "0"), 1)
	second := asked(t, env.Store, store.EnqueueRequest{Input: []byte(`"b"`), Mode: agl.ModeVal}, 0)
	third := asked(t, env.Store, ofRun(`"a"`, "run-2", "0"), 0.5)
	waiting, err := env.Store.EnqueueRollouts(t.Context(), requests(1))
	if err != nil {
		t.Fatal(err)
	}
	r, err := env.Store.Rollout(t.Context(), third)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		which algorithm.Stored
		want  []string
	}{
		"all":   {algorithm.Stored{}, []string{first, second, third}},
		"run":   {algorithm.Stored{RunID: "run-2"}, []string{third}},
		"mode":  {algorithm.Stored{Mode: agl.ModeVal}, []string{second}},
		"until": {algorithm.Stored{Until: r.StartTime}, []string{first, second}},
		"since": {algorithm.Stored{Since: r.StartTime}, []string{third}},
		"ids":   {algorithm.Stored{IDs: []string{third, first, third}}, []string{first, third}},
		"none":  {algorithm.Stored{IDs: []string{}}, nil},
	} {
		found, err := tt.which.Find(t.Context(), env.Store)
		var got []string
		for _, f := range found {
			got = append(got, f.ID)
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, tt.want)
		}
	}
	found, err := algorithm.Stored{}.Find(t.Context(), env.Store)
	if err != nil || found[0].Group != "run run-1, step 3, group 0" || found[1].Group != `val, task "b"` || found[2].Group == found[0].Group {
		t.Errorf("groups: %+v, %v", found, err)
	}
	if _, err := (algorithm.Stored{IDs: []string{waiting[0].RolloutID}}).Find(t.Context(), env.Store); err == nil || !strings.Contains(err.Error(), "queuing") {
		t.Errorf("one that waits: %v", err)
	}
	if _, err := (algorithm.Stored{IDs: []string{"ro-none"}}).Find(t.Context(), env.Store); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown one: %v", err)
	}
	for _, bad := range []algorithm.Stored{{Since: -1}, {Since: 2, Until: 1}, {IDs: []string{"x"}, RunID: "y"}, {RewardSet: "a b"}} {
		if _, err := bad.Find(t.Context(), env.Store); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// Outcomes are those of the chosen set; a rollout without a reward in it has none.
func TestStoredOutcomesReadARewardSet(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	first := asked(t, env.Store, requests(1)[0], 1)
	second := asked(t, env.Store, requests(1)[0], 1)
	r, err := env.Store.Rollout(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	core := agl.SpanCore{Name: semconv.SpanRescore, Attributes: agl.Attributes{
		{Key: semconv.RescoreSet, Value: "strict"}, {Key: semconv.RescoreReward + ".0.name", Value: "primary"}, {Key: semconv.RescoreReward + ".0.value", Value: 0.25},
	}}
	if _, err := env.Store.AddSpans(t.Context(), []agl.Span{core.Span(first, r.Attempt.AttemptID, 9, 1)}); err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]string{"": "1 1", "strict": "0.25 none"} {
		outcomes, err := algorithm.Stored{RewardSet: set}.Outcomes(t.Context(), env.Store, []string{first, second})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range outcomes {
			if o.Reward == nil {
				got = append(got, "none")
			} else {
				got = append(got, fmt.Sprint(*o.Reward))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("rewards of set %q: %v, want %s", set, got, want)
		}
	}
}
