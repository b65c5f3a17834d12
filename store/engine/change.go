package engine

import (
	"slices"

	agl "agentlightning"
)

// change is one transaction in the making: its moment, and what is to happen
// once it is committed.
type change struct {
	Tx

	now      float64
	finished []agl.Rollout // entered a terminal status
	queued   int           // ids that joined the queue
	block    int           // span numbers to reserve with a first attempt
	reserved []reservation // that were
	moves    []Change
	watched  bool     // somebody wants to know which workers were written
	workers  []string // those, when it is so
	after    func()   // what else has to happen; nil for nothing
}

// move puts a rollout into a status, with everything that goes with it except
// storing the rollout.
func (c *change) move(r *agl.Rollout, to agl.RolloutStatus) error {
	c.moves = append(c.moves, Change{r.RolloutID, r.Status, to, c.now, r.Mode, r.StartTime})
	from := r.Status
	r.Status = to
	c.touch(r)
	switch {
	case to.Terminal():
		r.EndTime = new(c.now)
		c.finished = append(c.finished, *r)
		if from != to {
			return c.AppendCompletion(r.RolloutID)
		}
	case r.Control != nil: // a controller starts it
	case to.Queueing():
		c.queued++
		return c.Push([]string{r.RolloutID})
	}
	return nil
}

// outcome is the status that a rollout takes from its latest attempt.
func outcome(a *agl.Attempt, cfg *agl.RolloutConfig) agl.RolloutStatus {
	switch a.Status {
	case agl.AttemptPreparing:
		return agl.RolloutPreparing
	case agl.AttemptRunning:
		return agl.RolloutRunning
	case agl.AttemptSucceeded:
		return agl.RolloutSucceeded
	case agl.AttemptFailed, agl.AttemptTimeout, agl.AttemptUnresponsive:
	}
	if slices.Contains(cfg.RetryCondition, a.Status) && a.SequenceID < cfg.MaxAttempts {
		return agl.RolloutRequeuing
	}
	return agl.RolloutFailed
}

// follow makes a rollout follow its latest attempt and stores it when that
// changed its status.
func (c *change) follow(r *agl.Rollout, latest *agl.Attempt) error {
	to := outcome(latest, &r.Config)
	if to == r.Status {
		return nil
	}
	if err := c.move(r, to); err != nil {
		return err
	}
	return c.UpdateRollouts([]agl.Rollout{*r})
}

// begin starts the next attempt of a rollout: latest is the newest so far, nil
// when there is none. The caller stores both.
func (c *change) begin(r *agl.Rollout, latest *agl.Attempt, workerID *string) (agl.Attempt, error) {
	a := agl.Attempt{
		RolloutID:  r.RolloutID,
		AttemptID:  agl.NewAttemptID(),
		SequenceID: 1,
		StartTime:  c.now,
		Status:     agl.AttemptPreparing,
		WorkerID:   workerID,
	}
	if latest != nil {
		a.SequenceID = latest.SequenceID + 1
	}
	if r.Control != nil {
		r.Control.LastAttemptID = new(a.AttemptID)
	}
	return a, c.move(r, agl.RolloutPreparing)
}

// rollout returns a rollout that must exist.
func rollout(r Reader, id string) (agl.Rollout, error) {
	found, err := r.Rollouts([]string{id})
	if err != nil {
		return agl.Rollout{}, err
	}
	ro, ok := found[id]
	if !ok {
		return agl.Rollout{}, unknownRollout(id)
	}
	return ro, nil
}

// latestAttempt returns the newest attempt of a rollout, nil when there is none.
func latestAttempt(r Reader, rolloutID string) (*agl.Attempt, error) {
	found, err := r.LatestAttempts([]string{rolloutID})
	if err != nil {
		return nil, err
	}
	if a, ok := found[rolloutID]; ok {
		return &a, nil
	}
	return nil, nil
}

// PutWorkers notes which workers are written.
func (c *change) PutWorkers(list []agl.Worker) error {
	for i := 0; c.watched && i < len(list); i++ {
		c.workers = append(c.workers, list[i].WorkerID)
	}
	return c.Tx.PutWorkers(list)
}
