package engine

import (
	"context"
	"time"

	agl "agentlightning"
)

// QueueState says how much waits to be claimed.
type QueueState struct {
	// Length counts the rollouts in the queue.
	Length int
	// Waiting is how long the one in front has been there; 0 for an empty queue.
	Waiting time.Duration
}

// Queue returns the state of the queue. It does not look at time limits.
func (s *Store) Queue(ctx context.Context) (QueueState, error) {
	var q QueueState
	err := s.view(ctx, func(r Reader) (err error) {
		if q.Length, err = r.QueueLength(); err != nil {
			return err
		}
		front, ok, err := r.QueueFront()
		if err != nil || !ok {
			return err
		}
		since := front.StartTime
		if front.Attempt != nil && front.Attempt.EndTime != nil { // back after an attempt
			since = *front.Attempt.EndTime
		}
		q.Waiting = max(0, s.cfg.Now().Sub(agl.Time(since)))
		return nil
	})
	return q, err
}
