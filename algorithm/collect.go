package algorithm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm/stage"
	"agentlightning/store"
)

// Outcome is a finished rollout with what it is worth.
type Outcome struct {
	// Rollout comes with its last attempt.
	Rollout agl.AttemptedRollout
	// Reward is the final reward of a rollout that succeeded; nil when it did
	// not succeed or gave none. A failure is not a reward of 0.
	Reward *float64
	// Failure is why the rollout did not succeed; empty when it did.
	Failure string
	// Spans are those of the last attempt, by sequence id.
	Spans []agl.Span
}

// Ask enqueues rollouts and returns their ids in the order of the requests.
func Ask(ctx context.Context, s store.Store, reqs []store.EnqueueRequest) ([]string, error) {
	rollouts, err := s.EnqueueRollouts(ctx, reqs)
	if err != nil {
		return nil, fmt.Errorf("enqueue %d rollouts: %w", len(reqs), err)
	}
	ids := make([]string, len(rollouts))
	for i := range rollouts {
		ids[i] = rollouts[i].RolloutID
	}
	return ids, nil
}

// Collecting says how to wait for rollouts.
type Collecting struct {
	// Stall is how long to wait without any rollout finishing. Default 5 min;
	// negative waits for ever.
	Stall time.Duration
	// OnProgress is called when more rollouts have finished, from the goroutine
	// of Collect.
	OnProgress func(finished, of int)
}

// lookEvery is the time between looks at which rollouts have finished.
const lookEvery = 250 * time.Millisecond

// Collect waits until all rollouts are finished and returns their outcomes in
// the order of the ids.
func Collect(ctx context.Context, s store.Store, ids []string, how Collecting) ([]Outcome, error) {
	how.Stall = cmp.Or(how.Stall, 5*time.Minute)
	outcomes := make(map[string]Outcome, len(ids))
	open := ids
	for last := time.Now(); len(open) > 0; {
		done, err := s.WaitForRollouts(ctx, open, lookEvery)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, fmt.Errorf("wait for %d rollouts: %w", len(open), err)
		}
		if err := read(ctx, s, done, agl.DefaultRewardSet, outcomes); err != nil {
			return nil, err
		}
		still := make([]string, 0, len(open))
		for _, id := range open {
			if _, finished := outcomes[id]; !finished {
				still = append(still, id)
			}
		}
		if len(still) < len(open) {
			last = time.Now()
			stage.Progress(ctx, "%d of %d rollouts finished", len(ids)-len(still), len(ids))
			if how.OnProgress != nil {
				how.OnProgress(len(ids)-len(still), len(ids))
			}
		}
		open = still
		if len(open) > 0 && how.Stall > 0 && time.Since(last) >= how.Stall {
			return nil, stalled(ctx, s, open, len(ids), how.Stall)
		}
	}
	out := make([]Outcome, len(ids))
	for i, id := range ids {
		out[i] = outcomes[id]
	}
	return out, nil
}

// read adds the outcomes of finished rollouts, with the rewards of a set.
func read(ctx context.Context, s store.Store, done []agl.Rollout, set string, outcomes map[string]Outcome) error {
	if len(done) == 0 {
		return nil
	}
	ids := make([]string, len(done))
	for i := range done {
		ids[i] = done[i].RolloutID
	}
	page, err := s.QueryRollouts(ctx, store.RolloutQuery{RolloutIDIn: ids})
	if err != nil {
		return fmt.Errorf("read %d rollouts: %w", len(ids), err)
	}
	latest := agl.LatestAttempt
	for _, r := range page.Items {
		spans, err := s.QuerySpans(ctx, store.SpanQuery{
			RolloutID: r.RolloutID, AttemptID: &latest,
			Paging: store.Paging{SortBy: "sequence_id"},
		})
		if err != nil {
			return fmt.Errorf("read the spans of rollout %s: %w", r.RolloutID, err)
		}
		o := Outcome{Rollout: r, Spans: agl.InRewardSet(spans.Items, set)}
		if r.Status != agl.RolloutSucceeded {
			o.Failure = failure(r)
		} else if o.Reward, err = agl.FinalReward(o.Spans); err != nil {
			o.Failure = fmt.Sprintf("the reward of rollout %s cannot be read: %v", r.RolloutID, err)
		}
		outcomes[r.RolloutID] = o
	}
	return nil
}

// failure returns what the runner noted about the end of the last attempt.
func failure(r agl.AttemptedRollout) string {
	if r.Attempt == nil {
		return fmt.Sprintf("rollout %s is %s and was never attempted", r.RolloutID, r.Status)
	}
	var m struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(r.Attempt.Metadata, &m) == nil && m.Error != "" && r.Status != agl.RolloutCancelled {
		return m.Error
	}
	return fmt.Sprintf("rollout %s is %s; attempt %s ended as %s", r.RolloutID, r.Status, r.Attempt.AttemptID, r.Attempt.Status)
}

// stalled describes what Collect waited for in vain.
func stalled(ctx context.Context, s store.Store, open []string, of int, stall time.Duration) error {
	err := fmt.Errorf("no rollout finished for %v; %d of %d are open", stall, len(open), of)
	r, failed := s.Rollout(ctx, open[0])
	switch {
	case failed != nil:
		return fmt.Errorf("%w; the first cannot be read: %w", err, failed)
	case r.Status.Queueing():
		return fmt.Errorf("%w; the first, %s, is %s: is a runner running?", err, r.RolloutID, r.Status)
	case r.Attempt != nil && r.Attempt.WorkerID != nil:
		return fmt.Errorf("%w; the first, %s, is %s at %s since %s", err, r.RolloutID, r.Status, *r.Attempt.WorkerID,
			agl.Time(r.Attempt.StartTime).Format(time.TimeOnly))
	}
	return fmt.Errorf("%w; the first, %s, is %s", err, r.RolloutID, r.Status)
}

// MeanReward returns the mean of the rewards that there are, and how many there
// are; failures and rollouts without a reward say nothing about the agent.
func MeanReward(outcomes []Outcome) (mean float64, n int) {
	sum := 0.0
	for _, o := range outcomes {
		if o.Reward != nil {
			sum += *o.Reward
			n++
		}
	}
	if n == 0 {
		return 0, 0
	}
	return sum / float64(n), n
}
