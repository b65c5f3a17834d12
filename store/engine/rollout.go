package engine

import (
	"context"

	agl "agentlightning"
	"agentlightning/store"
)

// EnqueueRollouts implements [store.RolloutStore].
func (s *Store) EnqueueRollouts(ctx context.Context, reqs []store.EnqueueRequest) ([]agl.Rollout, error) {
	drafts := make([]agl.Rollout, len(reqs))
	for i := range reqs {
		var err error
		if drafts[i], err = draft(&reqs[i]); err != nil {
			return nil, err
		}
	}
	if err := s.checkHealth(ctx); err != nil {
		return nil, err
	}
	if len(drafts) == 0 {
		return []agl.Rollout{}, nil
	}
	key, err := keyOf(ctx, "enqueue", drafts)
	if err != nil {
		return nil, err
	}
	var out []agl.Rollout
	err = s.update(ctx, func(c *change) error {
		var ids []string
		if known, err := c.recall(key, &ids); err != nil {
			return err
		} else if known {
			out, err = c.rolloutsNamed(ids)
			return err
		}
		var err error
		if out, err = c.create(drafts, agl.RolloutQueuing); err != nil {
			return err
		}
		ids = rolloutIDs(out)
		c.queued += len(ids)
		if err := c.Push(ids); err != nil {
			return err
		}
		return c.keep(key, ids)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// StartRollout implements [store.RolloutStore].
func (s *Store) StartRollout(ctx context.Context, req store.StartRequest) (agl.AttemptedRollout, error) {
	d, err := draft(&req.EnqueueRequest)
	if err != nil {
		return agl.AttemptedRollout{}, err
	}
	if err := s.checkHealth(ctx); err != nil {
		return agl.AttemptedRollout{}, err
	}
	key, err := keyOf(ctx, "start", []any{d, req.WorkerID})
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
		created, err := c.create([]agl.Rollout{d}, agl.RolloutPreparing)
		if err != nil {
			return err
		}
		ro := created[0]
		a := agl.Attempt{
			RolloutID: ro.RolloutID, AttemptID: agl.NewAttemptID(), SequenceID: 1,
			StartTime: ro.StartTime, Status: agl.AttemptPreparing, WorkerID: clonePtr(req.WorkerID),
		}
		if err := c.InsertAttempts([]agl.Attempt{a}); err != nil {
			return err
		}
		if err := c.reserveFirst(ro.RolloutID); err != nil {
			return err
		}
		out = agl.AttemptedRollout{Rollout: ro, Attempt: &a}
		if err := c.assign(&a, false); err != nil {
			return err
		}
		return c.keep(key, claimed{ro.RolloutID, a.AttemptID})
	})
	return out, err
}

// create stores drafts as new rollouts.
func (c *change) create(drafts []agl.Rollout, status agl.RolloutStatus) ([]agl.Rollout, error) {
	out := make([]agl.Rollout, len(drafts))
	var latest *string
	looked := false
	for i := range drafts {
		ro := CloneRollout(&drafts[i])
		ro.RolloutID = agl.NewRolloutID()
		ro.StartTime = c.now
		ro.Status = status
		if ro.ResourcesID == nil {
			if !looked {
				u, ok, err := c.LatestResources()
				if err != nil {
					return nil, err
				}
				if ok {
					latest = &u.ResourcesID
				}
				looked = true
			}
			ro.ResourcesID = clonePtr(latest)
		}
		out[i] = ro
		c.moves = append(c.moves, Change{RolloutID: ro.RolloutID, To: status, Time: c.now, Mode: ro.Mode, Started: ro.StartTime})
	}
	return out, c.InsertRollouts(out)
}

// Rollout implements [store.RolloutStore].
func (s *Store) Rollout(ctx context.Context, rolloutID string) (agl.AttemptedRollout, error) {
	var out agl.AttemptedRollout
	if err := s.checkHealth(ctx); err != nil {
		return out, err
	}
	ro, ok := atHand(ctx, s, func(r Recent) (agl.AttemptedRollout, bool) { return r.RecentRollout(rolloutID) })
	if ok {
		return ro, nil
	}
	err := s.view(ctx, func(r Reader) error {
		ro, known, err := r.Rollout(rolloutID)
		if err == nil && !known {
			err = unknownRollout(rolloutID)
		}
		out = ro
		return err
	})
	return out, err
}

// atHand asks the backend for what it has at hand.
func atHand[T any](ctx context.Context, s *Store, ask func(Recent) (T, bool)) (out T, ok bool) {
	if s.recent == nil || s.enter(ctx) != nil {
		return out, false
	}
	defer s.life.RUnlock()
	return ask(s.recent)
}

// QueryRollouts implements [store.RolloutStore].
func (s *Store) QueryRollouts(ctx context.Context, q store.RolloutQuery) (store.Page[agl.AttemptedRollout], error) {
	if err := checkPaging(&q.Paging, rolloutFields); err != nil {
		return store.Page[agl.AttemptedRollout]{}, err
	}
	return scannedQuery(ctx, s, q, Reader.QueryRollouts)
}

// scannedQuery answers a query whose result depends on the time limits.
func scannedQuery[T, Q any](ctx context.Context, s *Store, q Q, read func(Reader, Q) (store.Page[T], error)) (store.Page[T], error) {
	if err := s.checkHealth(ctx); err != nil {
		return store.Page[T]{}, err
	}
	return query(ctx, s, q, read)
}

func query[T, Q any](ctx context.Context, s *Store, q Q, read func(Reader, Q) (store.Page[T], error)) (store.Page[T], error) {
	var page store.Page[T]
	err := s.view(ctx, func(r Reader) (err error) {
		page, err = read(r, q)
		return err
	})
	if page.Items == nil {
		page.Items = []T{}
	}
	return page, err
}

// UpdateRollout implements [store.RolloutStore].
func (s *Store) UpdateRollout(ctx context.Context, rolloutID string, u store.RolloutUpdate) (agl.Rollout, error) {
	if err := checkRolloutUpdate(&u); err != nil {
		return agl.Rollout{}, err
	}
	if err := s.checkHealth(ctx); err != nil {
		return agl.Rollout{}, err
	}
	var out agl.Rollout
	err := s.update(ctx, func(c *change) error {
		found, err := c.Rollouts([]string{rolloutID})
		if err != nil {
			return err
		}
		ro, ok := found[rolloutID]
		if !ok {
			return notFound("Item does not exist with primary key(s): rollout_id='%s'", rolloutID)
		}
		if u.Input.Given {
			ro.Input = cloneRaw(u.Input.Value)
		}
		if u.Mode.Given {
			ro.Mode = u.Mode.Value
		}
		if u.ResourcesID.Given {
			ro.ResourcesID = clonePtr(u.ResourcesID.Value)
		}
		if u.Config.Given {
			ro.Config = cloneConfig(&u.Config.Value)
		}
		if u.Metadata.Given {
			ro.Metadata = cloneRaw(u.Metadata.Value)
		}
		if u.Status.Given {
			if err := c.move(&ro, u.Status.Value); err != nil {
				return err
			}
		}
		out = ro
		return c.UpdateRollouts([]agl.Rollout{ro})
	})
	if err != nil {
		return agl.Rollout{}, err
	}
	return out, nil
}
