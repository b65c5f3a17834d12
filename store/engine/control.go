package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"

	agl "agentlightning"
	"agentlightning/store"
)

var _ store.ControlStore = (*Store)(nil)

// CreateControlled implements [store.ControlStore].
func (s *Store) CreateControlled(ctx context.Context, reqs []store.ControlRequest) ([]agl.Rollout, error) {
	drafts := make([]agl.Rollout, len(reqs))
	for i := range reqs {
		var err error
		if drafts[i], err = controlledDraft(&reqs[i]); err != nil {
			return nil, err
		}
	}
	if len(drafts) == 0 {
		return []agl.Rollout{}, nil
	}
	var out []agl.Rollout
	err := s.update(ctx, func(c *change) (err error) {
		out, err = c.createControlled(drafts)
		return err
	})
	return out, err
}

func controlledDraft(req *store.ControlRequest) (agl.Rollout, error) {
	ro, err := draft(&store.EnqueueRequest{Input: req.Input, Mode: req.Mode, Metadata: req.Metadata})
	if err != nil {
		return ro, err
	}
	ro.RolloutID = req.RolloutID
	ro.Control = &agl.Control{Version: 1}
	ro.Control.Config, err = objectOrEmpty("config", req.Config)
	return ro, err
}

func (c *change) createControlled(drafts []agl.Rollout) ([]agl.Rollout, error) {
	known, err := c.Rollouts(namesOf(drafts))
	if err != nil {
		return nil, err
	}
	out := make([]agl.Rollout, len(drafts))
	var fresh []agl.Rollout
	for i := range drafts {
		if ro, ok := known[drafts[i].RolloutID]; ok {
			out[i] = CloneRollout(&ro)
			continue
		}
		ro := CloneRollout(&drafts[i])
		if ro.RolloutID == "" {
			ro.RolloutID = newControlledID()
		}
		ro.Status, ro.StartTime, ro.Control.UpdatedAt = agl.RolloutQueuing, c.now, c.now
		known[ro.RolloutID] = ro
		out[i] = ro
		fresh = append(fresh, ro)
		c.moves = append(c.moves, Change{RolloutID: ro.RolloutID, To: ro.Status, Time: c.now, Mode: ro.Mode, Started: c.now})
	}
	return out, c.InsertRollouts(fresh)
}

// namesOf lists the ids that rollouts have already, each once.
func namesOf(rollouts []agl.Rollout) []string {
	ids := slices.DeleteFunc(rolloutIDs(rollouts), func(id string) bool { return id == "" })
	slices.Sort(ids)
	return slices.Compact(ids)
}

// newControlledID returns a fresh id as the 1.0 protocol makes them: 32 hex digits.
func newControlledID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// UpdateControlled implements [store.ControlStore].
func (s *Store) UpdateControlled(ctx context.Context, rolloutID string, u store.ControlUpdate) (agl.Rollout, error) {
	var out agl.Rollout
	err := s.update(ctx, func(c *change) error {
		ro, err := rollout(c, rolloutID)
		if err != nil {
			return err
		}
		out = ro
		if !u.State.Given && !u.K8sJobName.Given && !u.LastAttemptID.Given && !u.ErrorMessage.Given {
			return nil
		}
		if ro.Control == nil {
			return conflict("Rollout %s: it was made through the 0.3 protocol, so its state follows its attempts", rolloutID)
		}
		if err := c.updateControlled(&ro, &u); err != nil {
			return err
		}
		out = CloneRollout(&ro)
		return nil
	})
	if err != nil {
		return agl.Rollout{}, err
	}
	return out, nil
}

// follows tells whether the 1.0 protocol lets a state follow another one.
func follows(from, to agl.RolloutStatus) bool {
	switch from {
	case agl.RolloutQueuing:
		return to == agl.RolloutRunning || to == agl.RolloutFailed
	case agl.RolloutRunning:
		return to == agl.RolloutSucceeded || to == agl.RolloutFailed
	case agl.RolloutPreparing, agl.RolloutRequeuing, agl.RolloutFailed, agl.RolloutSucceeded, agl.RolloutCancelled:
	}
	return false
}

func (c *change) updateControlled(ro *agl.Rollout, u *store.ControlUpdate) error {
	control := ro.Control
	if from := store.ControlState(ro.Status); u.State.Given && !follows(from, u.State.Value) {
		to := string(u.State.Value)
		if to == "" {
			to = "None"
		}
		return conflict("Rollout %s: cannot transition %s -> %s", ro.RolloutID, from, to)
	}
	for _, f := range []struct {
		field **string
		set   store.Set[*string]
	}{
		{&control.K8sJobName, u.K8sJobName},
		{&control.LastAttemptID, u.LastAttemptID},
		{&control.ErrorMessage, u.ErrorMessage},
	} {
		if f.set.Given {
			*f.field = clonePtr(f.set.Value)
		}
	}
	if u.State.Given {
		if err := c.move(ro, u.State.Value); err != nil { // which touches the control state
			return err
		}
	} else {
		c.touch(ro)
	}
	if err := c.UpdateRollouts([]agl.Rollout{*ro}); err != nil {
		return err
	}
	return c.attemptsOfControlled(ro, u)
}

// attemptsOfControlled makes the attempts agree with what a controller said of
// its rollout, so that readers of the other protocol see the same.
func (c *change) attemptsOfControlled(ro *agl.Rollout, u *store.ControlUpdate) error {
	if id := u.LastAttemptID.Value; u.LastAttemptID.Given && id != nil && *id != "" {
		if err := c.ensureAttempt(ro, *id); err != nil {
			return err
		}
	}
	if !u.State.Given || !ro.Status.Terminal() {
		return nil
	}
	a, err := latestAttempt(c, ro.RolloutID)
	if err != nil || a == nil || a.Status.Finished() {
		return err
	}
	a.Status, a.EndTime = agl.AttemptSucceeded, new(c.now)
	if ro.Status == agl.RolloutFailed {
		a.Status = agl.AttemptFailed
	}
	return c.UpdateAttempts([]agl.Attempt{*a})
}

// touch notes that a rollout of the 1.0 protocol changed.
func (c *change) touch(ro *agl.Rollout) {
	if ro.Control != nil {
		ro.Control.Version++
		ro.Control.UpdatedAt = c.now
	}
}

// ensureAttempt makes the attempt of a rollout with an id unless there is one.
func (c *change) ensureAttempt(ro *agl.Rollout, id string) error {
	if _, ok, err := c.Attempt(ro.RolloutID, id); err != nil || ok {
		return err
	}
	a := agl.Attempt{RolloutID: ro.RolloutID, AttemptID: id, SequenceID: 1, StartTime: c.now, Status: agl.AttemptRunning}
	switch {
	case ro.Status == agl.RolloutSucceeded:
		a.Status, a.EndTime = agl.AttemptSucceeded, new(c.now)
	case ro.Status.Terminal():
		a.Status, a.EndTime = agl.AttemptFailed, new(c.now)
	}
	latest, err := latestAttempt(c, ro.RolloutID)
	if err != nil {
		return err
	}
	if latest != nil {
		a.SequenceID = latest.SequenceID + 1
	}
	return c.InsertAttempts([]agl.Attempt{a})
}

// DeleteRollout implements [store.ControlStore]. Calls that wait for the rollout
// no longer do.
func (s *Store) DeleteRollout(ctx context.Context, rolloutID string) error {
	ids := []string{rolloutID}
	return s.deleteRollouts(ctx, ids, func(c *change) ([]string, error) { return ids, c.DeleteRollouts(ids) })
}
