// Package journal makes an algorithm resumable in the middle of a step. What was
// paid for, answers of models and rollouts, is recorded in the checkpoint of the
// run before it is used. An algorithm that is resumed does its step again from
// the beginning and gets from the journal what it had already.
package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/stage"
	"agentlightning/semconv"
	"agentlightning/store"
)

// recordLimit bounds how long the record of something paid for may take when
// the run is being stopped.
const recordLimit = 10 * time.Second

// Journal is the record of the step in hand, after the state in which it began.
// It is used by one goroutine.
type Journal struct {
	run     *algorithm.Run
	store   store.Store
	step    int
	score   *float64
	kept    kept
	next    int  // entry to be read next; those before have been used
	resumed bool // no rollout was asked for since the run was resumed
}

type kept struct {
	State   json.RawMessage `json:"state,omitempty"`
	Entries []entry         `json:"entries,omitempty"`
}

type entry struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// Open returns the journal of a run, at its latest checkpoint.
func Open(ctx context.Context, run *algorithm.Run, s store.Store) (*Journal, error) {
	j := &Journal{run: run, store: s, resumed: true}
	latest, ok, err := run.Latest(ctx)
	if err != nil || !ok {
		return j, err
	}
	j.step, j.score = latest.Step, latest.Score
	if err := json.Unmarshal(latest.State, &j.kept); err != nil {
		return nil, fmt.Errorf("state of step %d: %w", latest.Step, err)
	}
	return j, nil
}

// Step is the number of the step in hand, from 0.
func (j *Journal) Step() int { return j.step }

// State decodes the state in which the step in hand began; it is false when the
// run is at its very beginning.
func (j *Journal) State(out any) (bool, error) {
	if len(j.kept.State) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(j.kept.State, out); err != nil {
		return false, fmt.Errorf("state of step %d: %w", j.step, err)
	}
	return true, nil
}

// Commit ends the step in hand: the next one begins with state.
func (j *Journal) Commit(ctx context.Context, state any, score *float64) error {
	if j.next < len(j.kept.Entries) {
		return fmt.Errorf("step %d ended without %q, which it had recorded", j.step, j.kept.Entries[j.next].Key)
	}
	raw, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("state of step %d: %w", j.step+1, err)
	}
	j.step, j.score, j.kept, j.next = j.step+1, score, kept{State: raw}, 0
	return j.write(ctx)
}

func (j *Journal) write(ctx context.Context) error {
	return j.run.Checkpoint(ctx, j.step, "", j.score, j.kept)
}

// Do returns what f returns, which is recorded first, or what is on record of an
// earlier execution. Within a step the keys must come in the same order each time.
func Do[T any](ctx context.Context, j *Journal, key string, f func(context.Context) (T, error)) (T, error) {
	var out T
	if j.next < len(j.kept.Entries) {
		e := j.kept.Entries[j.next]
		if e.Key != key {
			return out, fmt.Errorf("step %d was recorded with %q where it now does %q: resume it with the configuration and the tasks that it began with", j.step, e.Key, key)
		}
		if err := json.Unmarshal(e.Value, &out); err != nil {
			return out, fmt.Errorf("record %q of step %d: %w", key, j.step, err)
		}
		j.next++
		return out, nil
	}
	out, err := f(ctx)
	if err != nil {
		return out, err
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return out, fmt.Errorf("record %q of step %d: %w", key, j.step, err)
	}
	j.kept.Entries = append(j.kept.Entries, entry{key, raw})
	j.next++
	// What came in the moment the run was told to stop has been paid for.
	recording, done := context.WithTimeout(context.WithoutCancel(ctx), recordLimit)
	defer done()
	return out, j.write(recording)
}

// Request is a rollout to ask for.
type Request struct {
	Input       json.RawMessage
	Mode        agl.Mode
	ResourcesID string
	Config      *agl.RolloutConfig
	Seed        int64
}

// metadata ties a rollout to its run and to the record that asked for it.
type metadata struct {
	RunID   string `json:"agl.run_id"`
	Step    int    `json:"agl.step"`
	Member  int    `json:"agl.member"`
	Seed    int64  `json:"agl.seed"`
	Request string `json:"agl.request"`
}

// Ask asks for rollouts, once for each key of a step, and returns their ids.
func (j *Journal) Ask(ctx context.Context, key string, wanted []Request) ([]string, error) {
	return Do(ctx, j, key, func(ctx context.Context) ([]string, error) {
		if j.resumed {
			ids, err := j.adopt(ctx, key)
			if err != nil || len(ids) == len(wanted) {
				return ids, err
			}
		}
		reqs := make([]store.EnqueueRequest, len(wanted))
		for i, w := range wanted {
			raw, err := json.Marshal(metadata{j.run.RunID, j.step, i, w.Seed, key})
			if err != nil {
				return nil, err
			}
			reqs[i] = store.EnqueueRequest{Input: w.Input, Mode: w.Mode, ResourcesID: &wanted[i].ResourcesID, Config: w.Config, Metadata: raw}
		}
		return algorithm.Ask(ctx, j.store, reqs)
	})
}

// adopt finds rollouts that an execution asked for that was killed before it
// could record them.
func (j *Journal) adopt(ctx context.Context, key string) ([]string, error) {
	j.resumed = false
	rollouts, err := Find(ctx, j.store, j.run.Run, j.step, key)
	if err != nil {
		return nil, err
	}
	found := map[int]string{}
	for _, r := range rollouts {
		var m metadata
		if err := json.Unmarshal(r.Metadata, &m); err != nil {
			return nil, fmt.Errorf("metadata of rollout %s: %w", r.RolloutID, err)
		}
		found[m.Member] = r.RolloutID
	}
	ids := make([]string, 0, len(found))
	for i := range len(found) {
		if found[i] == "" {
			return nil, nil
		}
		ids = append(ids, found[i])
	}
	return ids, nil
}

// page is how many rollouts Find looks at together.
const page = 200

// Find returns the rollouts that a run asked for last, when it did so in this
// step with this key, newest first. Somebody who was killed before it noted what
// it had asked for finds it here.
func Find(ctx context.Context, s store.RolloutStore, run agl.Run, step int, key string) ([]agl.AttemptedRollout, error) {
	var found []agl.AttemptedRollout
	for offset := 0; ; offset += page {
		got, err := s.QueryRollouts(ctx, store.RolloutQuery{
			Paging: store.Paging{SortBy: "start_time", Desc: true, Limit: page, Offset: offset},
		})
		if err != nil {
			return nil, fmt.Errorf("look for rollouts of run %s: %w", run.RunID, err)
		}
		for _, r := range got.Items {
			var m metadata
			switch {
			case r.StartTime < run.StartTime:
				return found, nil
			case json.Unmarshal(r.Metadata, &m) != nil || m.RunID != run.RunID:
			case m.Step != step || m.Request != key:
				return found, nil // what was asked for before
			default:
				found = append(found, r)
			}
		}
		if len(got.Items) < page {
			return found, nil
		}
	}
}

// Within waits for rollouts until the limit is over and returns those that had
// finished by then; the choice is on record.
func (j *Journal) Within(ctx context.Context, key string, ids []string, limit time.Duration) ([]string, error) {
	return Do(ctx, j, key, func(ctx context.Context) ([]string, error) {
		finished := map[string]bool{}
		for deadline := time.Now().Add(limit); len(finished) < len(ids); {
			left := time.Until(deadline)
			open := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return finished[id] })
			done, err := j.store.WaitForRollouts(ctx, open, max(0, min(left, waitEvery)))
			if err != nil {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				return nil, fmt.Errorf("wait for %d rollouts: %w", len(open), err)
			}
			before := len(finished)
			for i := range done {
				finished[done[i].RolloutID] = true
			}
			if len(finished) > before {
				stage.Progress(ctx, "%d of %d rollouts finished", len(finished), len(ids))
			}
			if left <= 0 {
				break
			}
		}
		return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !finished[id] }), nil
	})
}

// waitEvery is how long one wait for rollouts may take.
const waitEvery = 10 * time.Second

// ErrUnknownReward is returned by [Reward] for a dimension that was not recorded.
var ErrUnknownReward = errors.New("the reward has no such dimension")

// Reward returns the value of a dimension of the last reward among the spans.
func Reward(spans []agl.Span, name string) (float64, error) {
	if name == semconv.PrimaryReward {
		v, err := agl.FinalReward(spans)
		if err == nil && v == nil {
			err = ErrUnknownReward
		}
		if err != nil {
			return 0, err
		}
		return *v, nil
	}
	for i := len(spans) - 1; i >= 0; i-- {
		dims, err := agl.Rewards(&spans[i])
		if err != nil {
			return 0, err
		}
		for _, d := range dims {
			if d.Name == name {
				return d.Value, nil
			}
		}
		if len(dims) > 0 {
			break
		}
	}
	return 0, fmt.Errorf("%w: %q", ErrUnknownReward, name)
}

// Recorded reports whether what comes next in the step is on record.
func (j *Journal) Recorded() bool { return j.next < len(j.kept.Entries) }
