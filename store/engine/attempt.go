package engine

import (
	"context"

	agl "agentlightning"
	"agentlightning/store"
)

// StartAttempt implements [store.AttemptStore].
func (s *Store) StartAttempt(ctx context.Context, rolloutID string, workerID *string) (agl.AttemptedRollout, error) {
	if err := s.checkHealth(ctx); err != nil {
		return agl.AttemptedRollout{}, err
	}
	key, err := keyOf(ctx, "attempt", []any{rolloutID, workerID})
	if err != nil {
		return agl.AttemptedRollout{}, err
	}
	var out agl.AttemptedRollout
	err = s.update(ctx, func(c *change) error {
		var name claimed
		if known, err := c.recall(key, &name); err != nil {
			return err
		} else if known {
			out, err = c.attemptNamed(name)
			return err
		}
		ro, err := rollout(c, rolloutID)
		if err != nil {
			return err
		}
		latest, err := latestAttempt(c, rolloutID)
		if err != nil {
			return err
		}
		a, err := c.begin(&ro, latest, clonePtr(workerID))
		if err != nil {
			return err
		}
		if err := c.InsertAttempts([]agl.Attempt{a}); err != nil {
			return err
		}
		if err := c.UpdateRollouts([]agl.Rollout{ro}); err != nil {
			return err
		}
		out = agl.AttemptedRollout{Rollout: ro, Attempt: &a}
		if err := c.assign(&a, false); err != nil {
			return err
		}
		return c.keep(key, claimed{rolloutID, a.AttemptID})
	})
	return out, err
}

// QueryAttempts implements [store.AttemptStore].
func (s *Store) QueryAttempts(ctx context.Context, q store.AttemptQuery) (store.Page[agl.Attempt], error) {
	if err := checkPaging(&q.Paging, attemptFields); err != nil {
		return store.Page[agl.Attempt]{}, err
	}
	return scannedQuery(ctx, s, q, Reader.QueryAttempts)
}

// LatestAttempt implements [store.AttemptStore].
func (s *Store) LatestAttempt(ctx context.Context, rolloutID string) (agl.Attempt, error) {
	if err := s.checkHealth(ctx); err != nil {
		return agl.Attempt{}, err
	}
	var out agl.Attempt
	err := s.view(ctx, func(r Reader) error {
		a, err := latestAttempt(r, rolloutID)
		if err != nil {
			return err
		}
		if a == nil {
			return noAttempts(rolloutID)
		}
		out = *a
		return nil
	})
	return out, err
}

func noAttempts(rolloutID string) error {
	return notFound("No attempts found for rollout %s", rolloutID)
}

func unknownAttempt(rolloutID, attemptID string) error {
	return notFound("Attempt %s not found for rollout %s", attemptID, rolloutID)
}

// UpdateAttempt implements [store.AttemptStore].
func (s *Store) UpdateAttempt(ctx context.Context, rolloutID, attemptID string, u store.AttemptUpdate) (agl.Attempt, error) {
	if err := checkAttemptUpdate(&u); err != nil {
		return agl.Attempt{}, err
	}
	if err := s.checkHealth(ctx); err != nil {
		return agl.Attempt{}, err
	}
	var out agl.Attempt
	err := s.update(ctx, func(c *change) error {
		ro, err := rollout(c, rolloutID)
		if err != nil {
			return err
		}
		a, isLatest, err := addressed(c, rolloutID, attemptID)
		if err != nil {
			return err
		}
		if err := c.updateAttempt(&ro, &a, isLatest, &u); err != nil {
			return err
		}
		out = a
		return nil
	})
	return out, err
}

// addressed returns the attempt that an id or [agl.LatestAttempt] names, and
// whether it is the newest.
func addressed(r Reader, rolloutID, attemptID string) (agl.Attempt, bool, error) {
	latest, err := latestAttempt(r, rolloutID)
	if err != nil {
		return agl.Attempt{}, false, err
	}
	if latest == nil {
		return agl.Attempt{}, false, noAttempts(rolloutID)
	}
	if attemptID == agl.LatestAttempt || attemptID == latest.AttemptID {
		return *latest, true, nil
	}
	a, ok, err := r.Attempt(rolloutID, attemptID)
	if err == nil && !ok {
		err = unknownAttempt(rolloutID, attemptID)
	}
	return a, false, err
}

// updateAttempt applies an update. The rollout follows its latest attempt
// whichever members were given: recovering by a bare update relies on that.
func (c *change) updateAttempt(ro *agl.Rollout, a *agl.Attempt, isLatest bool, u *store.AttemptUpdate) error {
	if u.Status.Given {
		a.Status = u.Status.Value
		if a.Status == agl.AttemptFailed || a.Status == agl.AttemptSucceeded {
			a.EndTime = new(c.now)
		}
	}
	if u.WorkerID.Given {
		a.WorkerID = new(u.WorkerID.Value)
	}
	if u.LastHeartbeatTime.Given {
		a.LastHeartbeatTime = new(u.LastHeartbeatTime.Value)
	}
	if u.Metadata.Given {
		a.Metadata = cloneRaw(u.Metadata.Value)
	}
	if err := c.UpdateAttempts([]agl.Attempt{*a}); err != nil {
		return err
	}
	if isLatest {
		if err := c.follow(ro, a); err != nil {
			return err
		}
	}
	if u.WorkerID.Given || u.Status.Given {
		return c.assign(a, false)
	}
	return nil
}
