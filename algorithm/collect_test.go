package algorithm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// finish ends the next rollout of the queue.
func finish(t *testing.T, s store.Store, status agl.AttemptStatus, reward *float64, metadata string) {
	t.Helper()
	worker := "Worker-0"
	claimed, err := s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1, WorkerID: &worker})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("dequeue: %v, %v", claimed, err)
	}
	r := claimed[0]
	if reward != nil {
		core := agl.SpanCore{Name: semconv.SpanAnnotation, Attributes: agl.Attributes{
			{Key: semconv.RewardName(0), Value: semconv.PrimaryReward}, {Key: semconv.RewardValue(0), Value: *reward},
		}}
		if _, err := s.AddSpans(t.Context(), []agl.Span{core.Span(r.RolloutID, r.Attempt.AttemptID, 1, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	u := store.AttemptUpdate{Status: store.To(status)}
	if metadata != "" {
		u.Metadata = store.To(json.RawMessage(metadata))
	}
	if _, err := s.UpdateAttempt(t.Context(), r.RolloutID, r.Attempt.AttemptID, u); err != nil {
		t.Fatal(err)
	}
}

func requests(n int) []store.EnqueueRequest {
	reqs := make([]store.EnqueueRequest, n)
	for i := range reqs {
		reqs[i].Input = json.RawMessage(strconv.Itoa(i))
	}
	return reqs
}

func TestCollect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := engine.New(memory.New(), engine.Config{})
		defer s.Close()
		ids, err := algorithm.Ask(t.Context(), s, requests(4))
		if err != nil {
			t.Fatal(err)
		}
		half := 0.5
		go func() {
			finish(t, s, agl.AttemptSucceeded, &half, "")
			time.Sleep(time.Minute)
			finish(t, s, agl.AttemptFailed, &half, `{"error":"no luck"}`)
			finish(t, s, agl.AttemptSucceeded, nil, "")
			time.Sleep(time.Minute)
			finish(t, s, agl.AttemptFailed, nil, "")
		}()
		var progress []int
		outcomes, err := algorithm.Collect(t.Context(), s, ids, algorithm.Collecting{OnProgress: func(finished, of int) {
			progress = append(progress, finished*10+of)
		}})
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range outcomes {
			if o.Rollout.RolloutID != ids[i] {
				t.Errorf("outcome %d is of rollout %s, want %s", i, o.Rollout.RolloutID, ids[i])
			}
		}
		if r := outcomes[0].Reward; r == nil || *r != half || outcomes[0].Failure != "" {
			t.Errorf("outcome 0: %v %q, want a reward", r, outcomes[0].Failure)
		}
		if r := outcomes[1].Reward; r != nil || outcomes[1].Failure != "no luck" || len(outcomes[1].Spans) != 1 {
			t.Errorf("outcome 1: %v %q, want the noted failure and no reward", r, outcomes[1].Failure)
		}
		if r := outcomes[2].Reward; r != nil || outcomes[2].Failure != "" {
			t.Errorf("outcome 2: %v %q, want neither reward nor failure", r, outcomes[2].Failure)
		}
		if f := outcomes[3].Failure; !strings.Contains(f, "ended as failed") {
			t.Errorf("outcome 3: %q", f)
		}
		// Two that finish one right after the other may be seen together or not.
		if got := fmt.Sprint(progress); got != "[14 34 44]" && got != "[14 24 34 44]" {
			t.Errorf("progress %v, want 1, 3 and 4 of 4", progress)
		}
		if mean, n := algorithm.MeanReward(outcomes); mean != half || n != 1 {
			t.Errorf("MeanReward() = %v, %d", mean, n)
		}
	})
}

func TestCollectSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := engine.New(memory.New(), engine.Config{})
		defer s.Close()
		ids, err := algorithm.Ask(t.Context(), s, requests(2))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = algorithm.Collect(t.Context(), s, ids, algorithm.Collecting{Stall: time.Minute})
		if err == nil || !strings.Contains(err.Error(), "no rollout finished for 1m0s; 2 of 2 are open") || !strings.Contains(err.Error(), "is a runner running?") {
			t.Errorf("Collect() = %v", err)
		}
		if took := time.Since(began); took > time.Minute+time.Second {
			t.Errorf("took %v", took)
		}
		worker := "Worker-9"
		if _, err := s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 2, WorkerID: &worker}); err != nil {
			t.Fatal(err)
		}
		if _, err = algorithm.Collect(t.Context(), s, ids, algorithm.Collecting{}); err == nil || !strings.Contains(err.Error(), "5m0s") || !strings.Contains(err.Error(), "at Worker-9 since") {
			t.Errorf("Collect() = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err = algorithm.Collect(ctx, s, ids, algorithm.Collecting{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Collect() = %v, want the end of the context", err)
		}
	})
}
