package algorithm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	agl "agentlightning"
	"agentlightning/store"
)

// Stored chooses rollouts that are in the store already, to learn from them
// without running an agent. The zero value takes all that have ended, but for the
// greedy ones that a run asked for to compare others with; these must be named.
type Stored struct {
	// IDs are these rollouts; nil means all that the other fields take.
	IDs []string `json:"ids,omitempty"`
	// RunID takes the rollouts that this run asked for; empty means any.
	RunID string `json:"run_id,omitempty"`
	// Mode takes rollouts of this mode; empty means any.
	Mode agl.Mode `json:"mode,omitempty"`
	// Since and Until bound when a rollout began, in Unix seconds, Until itself
	// not included; 0 means no bound.
	Since float64 `json:"since,omitempty"`
	Until float64 `json:"until,omitempty"`
	// RewardSet says which rewards count; empty means those that agents gave.
	RewardSet string `json:"reward_set,omitempty"`
}

// Validate returns an error naming the field that is out of range.
func (s Stored) Validate() error {
	switch {
	case s.Since < 0 || s.Until < 0:
		return fmt.Errorf("Since and Until: %v and %v: must not be negative", s.Since, s.Until)
	case s.Until > 0 && s.Until <= s.Since:
		return fmt.Errorf("Until: %v: must be later than Since, %v", s.Until, s.Since)
	case s.IDs != nil && (s.RunID != "" || s.Mode != "" || s.Since != 0 || s.Until != 0):
		return errors.New("IDs: RunID, Mode, Since and Until choose nothing more among rollouts that are named")
	}
	if err := agl.CheckRewardSet(s.RewardSet); err != nil {
		return fmt.Errorf("RewardSet: %w", err)
	}
	return nil
}

// StoredRollout is one rollout of a selection.
type StoredRollout struct {
	ID    string
	Group string // see [GroupOf]
}

// storedAtATime is how many rollouts are read at a time.
const storedAtATime = 200

// Find lists the rollouts that are chosen and have ended, in the order in which
// they began. One that is named but unknown, or that has not ended, is an error.
func (s Stored) Find(ctx context.Context, from store.RolloutStore) ([]StoredRollout, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	var found []agl.Rollout
	var err error
	if s.IDs != nil {
		found, err = s.named(ctx, from)
	} else {
		found, err = s.fitting(ctx, from)
	}
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(found, func(a, b agl.Rollout) int {
		return cmp.Or(cmp.Compare(a.StartTime, b.StartTime), cmp.Compare(a.RolloutID, b.RolloutID))
	})
	out := make([]StoredRollout, len(found))
	for i := range found {
		out[i] = StoredRollout{found[i].RolloutID, GroupOf(&found[i])}
	}
	return out, nil
}

func (s Stored) named(ctx context.Context, from store.RolloutStore) ([]agl.Rollout, error) {
	var out []agl.Rollout
	have := map[string]bool{}
	for ids := range slices.Chunk(s.IDs, storedAtATime) {
		page, err := from.QueryRollouts(ctx, store.RolloutQuery{RolloutIDIn: ids})
		if err != nil {
			return nil, fmt.Errorf("read %d stored rollouts: %w", len(ids), err)
		}
		for i := range page.Items {
			r := &page.Items[i].Rollout
			if !r.Status.Terminal() {
				return nil, fmt.Errorf("rollout %s is %s: it can be learnt from when it has ended", r.RolloutID, r.Status)
			}
			if !have[r.RolloutID] {
				out = append(out, *r)
			}
			have[r.RolloutID] = true
		}
		for _, id := range ids {
			if !have[id] {
				return nil, fmt.Errorf("rollout %s: %w", id, store.ErrNotFound)
			}
		}
	}
	return out, nil
}

func (s Stored) fitting(ctx context.Context, from store.RolloutStore) ([]agl.Rollout, error) {
	var out []agl.Rollout
	q := store.RolloutQuery{Paging: store.Paging{SortBy: "start_time", Limit: storedAtATime}}
	for _, status := range agl.RolloutStatuses() {
		if status.Terminal() {
			q.StatusIn = append(q.StatusIn, status)
		}
	}
	have := map[string]bool{} // rollouts that end meanwhile move others to the next page
	for {
		page, err := from.QueryRollouts(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("read stored rollouts: %w", err)
		}
		for i := range page.Items {
			r := &page.Items[i].Rollout
			if s.Until > 0 && r.StartTime >= s.Until {
				return out, nil
			}
			if !have[r.RolloutID] && s.takes(r) {
				out = append(out, *r)
			}
			have[r.RolloutID] = true
		}
		if q.Offset += len(page.Items); len(page.Items) == 0 || q.Offset >= page.Total {
			return out, nil
		}
	}
}

func (s Stored) takes(r *agl.Rollout) bool {
	p := placeOf(r)
	return !p.Baseline && r.StartTime >= s.Since && (s.Mode == "" || r.Mode == s.Mode) && (s.RunID == "" || p.RunID == s.RunID)
}

// Outcomes reads rollouts that have ended, in the order of the ids, with the
// rewards of the selection's set.
func (s Stored) Outcomes(ctx context.Context, from store.Store, ids []string) ([]Outcome, error) {
	out := make([]Outcome, 0, len(ids))
	for part := range slices.Chunk(ids, storedAtATime) {
		done := make([]agl.Rollout, len(part))
		for i, id := range part {
			done[i].RolloutID = id
		}
		outcomes := make(map[string]Outcome, len(part))
		if err := read(ctx, from, done, s.RewardSet, outcomes); err != nil {
			return nil, err
		}
		for _, id := range part {
			o, ok := outcomes[id]
			if !ok {
				return nil, fmt.Errorf("rollout %s: %w", id, store.ErrNotFound)
			}
			out = append(out, o)
		}
	}
	return out, nil
}

// place is where a rollout belongs in the run that asked for it.
type place struct {
	RunID string      `json:"agl.run_id"`
	Step  json.Number `json:"agl.step"`
	Group string      `json:"agl.group"`
	// Baseline tells that others are compared with it.
	Baseline bool `json:"agl.baseline"`
}

func placeOf(r *agl.Rollout) place {
	var p place
	if len(r.Metadata) == 0 || json.Unmarshal(r.Metadata, &p) != nil {
		return place{}
	}
	return p
}

// GroupOf names the group of rollouts that one is compared with: those of the
// same run, step and group, or without these, those of the same task. Validations
// and tests are groups of their own.
func GroupOf(r *agl.Rollout) string {
	name := "task " + string(r.Input)
	if p := placeOf(r); p.RunID != "" && p.Group != "" {
		name = fmt.Sprintf("run %s, step %s, group %s", p.RunID, p.Step, p.Group)
	}
	if r.Mode == agl.ModeVal || r.Mode == agl.ModeTest {
		name = string(r.Mode) + ", " + name
	}
	return name
}
