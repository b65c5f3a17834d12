package pg

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm/stage"
	"agentlightning/store"
)

// Async lets agents work on while the policy is updated: more groups are being
// worked on than a step is trained on, and the others are carried over. The zero
// value is none: every step waits for all that it asked for, and nobody works
// during an update.
//
// What a carried rollout samples may come from several versions of the weights;
// log-probabilities are those captured with the tokens, and
// [agentlightning/rl.Correction] makes up for the rest.
type Async struct {
	// Groups is how many groups are being worked on at a time; it must exceed
	// Config.Tasks, of which twice as many are a good start.
	Groups int `json:"groups,omitempty"`
	// MaxStaleness is by how many updates the weights may have moved on since a
	// group was asked for when it is trained on; 1 is training one step off the
	// policy. Groups that are older are cancelled and left out, and counted. 0 is
	// no limit.
	MaxStaleness int `json:"max_staleness,omitempty"`
}

// group is one that agents work on.
type group struct {
	name     string
	step     int // that asked for it
	rollouts []asked
}

// active lists the groups that agents work on, those that were asked for first
// at the front.
func active(pending []asked) []group {
	var out []group
	at := map[string]int{}
	for _, a := range pending {
		i, known := at[a.group()]
		if !known {
			i = len(out)
			at[a.group()] = i
			out = append(out, group{name: a.group(), step: a.Step})
		}
		out[i].rollouts = append(out[i].rollouts, a)
	}
	return out
}

// firstFinished returns the indices of groups whose rollouts have all finished,
// the older first, as many as are wanted at most. Those in taken are left out.
func firstFinished(groups []group, finished map[string]bool, taken []int, want int) []int {
	for i, g := range groups {
		if len(taken) == want {
			break
		}
		open := func(a asked) bool { return !finished[a.ID] }
		if !slices.Contains(taken, i) && !slices.ContainsFunc(g.rollouts, open) {
			taken = append(taken, i)
		}
	}
	return taken
}

// gatherSome returns the first groups that finish of all that agents work on.
// The others go on.
func (t *training) gatherSome(ctx context.Context, step int) (gathered, error) {
	stale, err := t.dropStale(ctx, step)
	if err != nil {
		return gathered{}, err
	}
	carried := len(t.Pending)
	if lacking := t.newAt(step, len(active(t.Pending))); lacking > 0 {
		// After an interruption some of this step may have been asked for already.
		from := 0
		for _, a := range t.Pending {
			if a.Step == step {
				from = max(from, a.Group+1)
			}
		}
		if err := t.ask(ctx, step, fmt.Sprintf("train/from-%d", from), t.newGroups(step, from, lacking)); err != nil {
			return gathered{}, err
		}
	}
	groups := active(t.Pending)
	chosen, err := t.await(ctx, step, groups)
	if err != nil {
		return gathered{}, err
	}
	var rollouts []asked
	oldest := 0
	for i, g := range groups {
		if !slices.Contains(chosen, i) {
			oldest = max(oldest, step-g.step)
		}
	}
	age := 0
	for _, i := range chosen {
		rollouts = append(rollouts, groups[i].rollouts...)
		age = max(age, step-groups[i].step)
	}
	inOrder(rollouts)
	outcomes, err := t.collect(ctx, step, ids(rollouts))
	if err != nil {
		return gathered{}, err
	}
	out := t.take(rollouts, outcomes)
	out.metrics["groups_stale"] = float64(stale)
	out.metrics["staleness_max"] = float64(age)
	out.metrics["training/async/n_prev_carry_over_rollouts"] = float64(carried)
	out.metrics["training/async/n_completed_rollouts"] = float64(len(rollouts))
	out.metrics["training/async/n_new_carry_over_rollouts"] = float64(len(t.Pending) - len(rollouts))
	out.metrics["training/async/new_carry_over_age_max_steps"] = float64(oldest)
	return out, nil
}

// inOrder sorts rollouts as they are handed to training: by the step that asked
// for them, then by group; within a group as they are.
func inOrder(rollouts []asked) {
	slices.SortStableFunc(rollouts, func(a, b asked) int { return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Group, b.Group)) })
}

// newAt is how many groups are asked for in a step beside those that are carried
// over. Nobody works for steps that do not come.
func (c *Config) newAt(step, carried int) int {
	return max(0, min(c.Async.Groups, (c.Steps-step+1)*c.Tasks)-carried)
}

// await waits until as many groups as a step takes have finished.
func (t *training) await(ctx context.Context, step int, groups []group) ([]int, error) {
	var chosen []int
	finished := map[string]bool{}
	all := ids(t.Pending)
	stall := t.stall()
	for last := time.Now(); ; {
		done, err := t.env.Store.WaitForCount(ctx, all, len(finished)+1, lookEvery)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, fmt.Errorf("wait for %d rollouts: %w", len(all), err)
		}
		before := len(finished)
		for i := range done {
			finished[done[i].RolloutID] = true
		}
		if len(finished) > before {
			last = time.Now()
			stage.Progress(ctx, "%d of %d rollouts finished", len(finished), len(all))
			if t.OnProgress != nil {
				t.OnProgress(step, len(finished), len(all))
			}
		}
		if chosen = firstFinished(groups, finished, chosen, t.Tasks); len(chosen) == t.Tasks {
			return chosen, nil
		}
		if stall > 0 && time.Since(last) >= stall {
			return nil, fmt.Errorf("no rollout finished for %v; %d of %d are open, and %d of %d groups are whole: is a runner running?",
				stall, len(all)-len(finished), len(all), len(chosen), t.Tasks)
		}
	}
}

// lookEvery is how long one wait for rollouts may take.
const lookEvery = time.Second

// stall is how long to wait without anything happening; 0 or less is for ever.
func (c *Config) stall() time.Duration {
	switch {
	case c.Stall != 0:
		return c.Stall
	case c.Follow != nil:
		return 0
	}
	return 5 * time.Minute
}

// dropStale gives up the groups that would be too old to be trained on.
func (t *training) dropStale(ctx context.Context, step int) (int, error) {
	if t.Async.MaxStaleness == 0 {
		return 0, nil
	}
	var old []asked
	groups := 0
	for _, g := range active(t.Pending) {
		if step-g.step > t.Async.MaxStaleness {
			old = append(old, g.rollouts...)
			groups++
		}
	}
	return groups, t.giveUp(ctx, step-1, old)
}

// giveUp ends rollouts that nobody will be trained on, and keeps that it did.
func (t *training) giveUp(ctx context.Context, done int, rollouts []asked) error {
	if len(rollouts) == 0 {
		return nil
	}
	gone := map[string]bool{}
	for _, a := range rollouts {
		gone[a.ID] = true
		r, err := t.env.Store.Rollout(ctx, a.ID)
		if err == nil && !r.Status.Terminal() {
			_, err = t.env.Store.UpdateRollout(ctx, a.ID, store.RolloutUpdate{Status: store.To(agl.RolloutCancelled)})
		}
		if err != nil {
			return fmt.Errorf("cancel rollout %s, which is not needed any more: %w", a.ID, err)
		}
	}
	t.Pending = slices.DeleteFunc(t.Pending, func(a asked) bool { return gone[a.ID] })
	return t.mark(ctx, done)
}
