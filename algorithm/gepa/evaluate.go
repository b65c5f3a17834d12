package gepa

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/internal/journal"
	"agentlightning/algorithm/stage"
	"agentlightning/semconv"
)

// cached is what a rollout came to.
type cached struct {
	Rollout string    `json:"rollout"`
	Rewards []float64 `json:"rewards"` // the primary one first; nil when it failed
	Failure string    `json:"failure,omitempty"`
}

// trial is what a candidate did on a task.
type trial struct {
	task     int
	rollouts []cached            // one for each repeat
	outcomes []algorithm.Outcome // of these, when they were asked for
}

// rewards are the means over the repeats; nil when all failed.
func (t trial) rewards() []float64 {
	var sum []float64
	n := 0.0
	for _, r := range t.rollouts {
		if r.Rewards == nil {
			continue
		}
		if sum == nil {
			sum = make([]float64, len(r.Rewards))
		}
		for i, v := range r.Rewards {
			sum[i] += v
		}
		n++
	}
	for i := range sum {
		sum[i] /= n
	}
	return sum
}

func (t trial) failure() string {
	for _, r := range t.rollouts {
		if r.Failure != "" {
			return r.Failure
		}
	}
	return ""
}

// failed counts the tasks without any reward.
func failed(trials []trial) int {
	n := 0
	for _, t := range trials {
		if t.rewards() == nil {
			n++
		}
	}
	return n
}

// compare sums the primary rewards on the tasks that both have one for.
func compare(a, b []trial) (x, y float64, common int) {
	for i := range a {
		if p, q := a[i].rewards(), b[i].rewards(); p != nil && q != nil {
			x, y, common = x+p[0], y+q[0], common+1
		}
	}
	return x, y, common
}

func (s *search) perfect(trials []trial) bool {
	if s.Perfect == nil {
		return false
	}
	for _, t := range trials {
		if r := t.rewards(); r == nil || r[0] < *s.Perfect {
			return false
		}
	}
	return true
}

// identity names a set of templates by its content.
func identity(templates map[string]agl.PromptTemplate) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		t := templates[name]
		fmt.Fprintf(h, "%q %q %q\n", name, t.Engine, t.Template)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func key(candidate string, task json.RawMessage, mode agl.Mode, repeat int) string {
	sum := sha256.Sum256(task)
	return fmt.Sprintf("%s %s %s %d", candidate, hex.EncodeToString(sum[:8]), mode, repeat)
}

// validate scores a candidate on the validation tasks and adds it.
func (s *search) validate(ctx context.Context, c *Candidate) error {
	all := make([]int, len(s.env.Val))
	for i := range all {
		all[i] = i
	}
	trials, err := s.evaluate(ctx, c.Templates, all, agl.ModeVal, false)
	if err != nil {
		return err
	}
	c.ID = len(s.state.Candidates)
	c.Scores = make([][]float64, len(trials))
	for i, t := range trials {
		c.Scores[i] = t.rewards()
	}
	s.state.Candidates = append(s.state.Candidates, *c)
	return nil
}

// resourcesID is what a candidate is published as.
func (s *search) resourcesID(templates map[string]agl.PromptTemplate) string {
	return s.run.RunID + "-" + identity(templates)
}

// publish stores a candidate beside the other initial resources.
func (s *search) publish(ctx context.Context, templates map[string]agl.PromptTemplate) error {
	resourcesID := s.resourcesID(templates)
	resources := slices.Clone(s.env.InitialResources)
	for i := range resources {
		if t, ok := templates[resources[i].Name]; ok {
			resources[i].Resource = t
		}
	}
	err := s.run.Stage(ctx, stage.Publish, func(ctx context.Context) error {
		_, err := s.env.Store.UpdateResources(ctx, resourcesID, resources)
		return err
	})
	if err != nil {
		return fmt.Errorf("publish candidate %s: %w", resourcesID, err)
	}
	return nil
}

// evaluate runs a candidate on tasks, as far as it is not known how it does; the
// outcomes are read when they are to be shown.
func (s *search) evaluate(ctx context.Context, templates map[string]agl.PromptTemplate, tasks []int, mode agl.Mode, show bool) ([]trial, error) {
	set := s.env.Train
	if mode == agl.ModeVal {
		set = s.env.Val
	}
	candidate := identity(templates)
	var requests []journal.Request
	var missing []string
	for _, i := range tasks {
		for repeat := range s.Repeats {
			k := key(candidate, set[i], mode, repeat)
			if _, ok := s.state.Cache[k]; ok || slices.Contains(missing, k) {
				continue
			}
			missing = append(missing, k)
			requests = append(requests, journal.Request{
				Input: set[i], Mode: mode, ResourcesID: s.resourcesID(templates), Config: s.Rollout, Seed: s.Seed + int64(repeat),
			})
		}
	}
	if len(requests) > 0 {
		name := stage.Collect
		if mode == agl.ModeVal {
			name = stage.Validate
		}
		err := s.run.Stage(ctx, name, func(ctx context.Context) error { return s.execute(ctx, templates, requests, missing) })
		if err != nil {
			return nil, fmt.Errorf("evaluate candidate %s: %w", candidate, err)
		}
	}
	out := make([]trial, len(tasks))
	for n, i := range tasks {
		out[n].task = i
		var ids []string
		for repeat := range s.Repeats {
			c := s.state.Cache[key(candidate, set[i], mode, repeat)]
			out[n].rollouts = append(out[n].rollouts, c)
			ids = append(ids, c.Rollout)
		}
		if !show {
			continue
		}
		var err error
		if out[n].outcomes, err = algorithm.Collect(ctx, s.env.Store, ids, algorithm.Collecting{}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// execute does the rollouts and puts them into the cache.
func (s *search) execute(ctx context.Context, templates map[string]agl.PromptTemplate, requests []journal.Request, keys []string) error {
	if !s.journal.Recorded() {
		if err := s.publish(ctx, templates); err != nil {
			return err
		}
	}
	s.asked++
	ids, err := s.journal.Ask(ctx, fmt.Sprintf("%d %s", s.asked, requests[0].ResourcesID), requests)
	if err != nil {
		return err
	}
	s.state.Spent.Evaluations += len(ids)
	outcomes, err := algorithm.Collect(ctx, s.env.Store, ids, algorithm.Collecting{Stall: cmp.Or(s.Stall, stall)})
	if err != nil {
		return err
	}
	for i, o := range outcomes {
		c := cached{Rollout: ids[i], Failure: o.Failure}
		if c.Failure == "" {
			for _, name := range append([]string{semconv.PrimaryReward}, s.Objectives...) {
				v, err := journal.Reward(o.Spans, name)
				if err != nil {
					c.Rewards, c.Failure = nil, err.Error()
					break
				}
				c.Rewards = append(c.Rewards, v)
			}
		}
		if c.Failure != "" {
			s.env.Logger.WarnContext(ctx, "rollout without a score", "rollout_id", ids[i], "failure", c.Failure, "counts_as", string(s.OnFailure))
			if s.OnFailure == ZeroFailures {
				c.Rewards = make([]float64, 1+len(s.Objectives))
			}
		}
		s.state.Cache[keys[i]] = c
	}
	return nil
}
