package pg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	agl "agentlightning"
	"agentlightning/rl"
)

// selection are the stored rollouts that a run learns from.
type selection struct {
	order  []string            // of groups, by first appearance
	groups map[string][]string // ids of rollouts
}

// storedDefaults are what a run on stored rollouts has where nothing is said:
// their policy is not the one that is trained, so its log-probabilities, which
// were captured with the tokens, are corrected for, token by token.
func (c Config) storedDefaults() Config {
	if c.Tasks == 0 {
		c.Tasks = 16
	}
	if !c.Method.Correction.Enabled() {
		c.Method.Correction = rl.Correction{Weights: rl.PerToken}
	}
	return c
}

func (c *Config) validateStored() error {
	rollout := c.Rollout
	switch {
	case c.Stored == nil:
		return nil
	case c.Follow != nil:
		return errors.New("Stored: Follow waits for rollouts to come; set one of them")
	case c.GroupSize > 0 || c.Async != (Async{}) || rollout.MaxAttempts != 0 || rollout.TimeoutSeconds != nil ||
		rollout.UnresponsiveSeconds != nil || rollout.RetryCondition != nil:
		return errors.New("Stored: GroupSize, Rollout and Async are for rollouts that are asked for; leave them out")
	case c.Method.Refill > 0 || c.Method.Resample > 0 || c.Method.Advantages.Estimator == rl.ReMax:
		return errors.New("Stored: Method.Refill, Method.Resample and remax ask for rollouts; use another method")
	}
	if err := c.Stored.Validate(); err != nil {
		return fmt.Errorf("Stored.%w", err)
	}
	return nil
}

// gatherStored draws groups of the stored rollouts: every pass takes each group
// once, in an order of its own.
func (t *training) gatherStored(ctx context.Context) (gathered, error) {
	if t.selection == nil {
		if err := t.choose(ctx); err != nil {
			return gathered{}, err
		}
	}
	g := gathered{metrics: map[string]float64{}}
	var chosen []string
	count := min(t.Tasks, len(t.selection.order)) // no group twice in a step
	for n := t.Drawn; n < t.Drawn+count; n++ {
		group := t.selection.order[t.pick(n)]
		for _, id := range t.selection.groups[group] {
			chosen, g.groups = append(chosen, id), append(g.groups, group)
		}
	}
	t.Drawn += count
	var err error
	g.outcomes, err = t.Stored.Outcomes(ctx, t.env.Store, chosen)
	g.metrics["epoch"] = float64(t.Drawn) / float64(len(t.selection.order))
	return g, err
}

// choose reads which rollouts there are. A run that goes on must find those with
// which it began.
func (t *training) choose(ctx context.Context) error {
	found, err := t.Stored.Find(ctx, t.env.Store)
	if err != nil {
		return fmt.Errorf("Stored: %w", err)
	}
	if len(found) == 0 {
		return errors.New("Stored: no rollout that has ended is chosen")
	}
	s := &selection{groups: map[string][]string{}}
	var all strings.Builder
	for _, r := range found {
		if s.groups[r.Group] == nil {
			s.order = append(s.order, r.Group)
		}
		s.groups[r.Group] = append(s.groups[r.Group], r.ID)
		all.WriteString(r.ID + "\n")
	}
	sum := sha256.Sum256([]byte(all.String()))
	digest := hex.EncodeToString(sum[:8])
	if t.Selection != "" && t.Selection != digest {
		return fmt.Errorf("Stored: the %d rollouts that are chosen now are not those with which run %s began; bound the selection by IDs, RunID or Until", len(found), t.run.RunID)
	}
	t.Selection, t.selection = digest, s
	t.env.Logger.InfoContext(ctx, "training on stored rollouts", "run_id", t.run.RunID,
		"rollouts", len(found), "groups", len(s.order), "reward_set", rewardSet(t.Stored.RewardSet))
	return nil
}

func rewardSet(name string) string {
	if name == "" {
		return agl.DefaultRewardSet
	}
	return name
}

// drawable is how many tasks, or groups of stored rollouts, a pass has.
func (t *training) drawable() int {
	if t.selection != nil {
		return len(t.selection.order)
	}
	return len(t.env.Train)
}
