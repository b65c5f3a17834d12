package engine

import (
	"context"
	"encoding/json"

	agl "agentlightning"
	"agentlightning/store"
)

// assign makes the worker of an attempt, when it has one, agree with the state
// of the attempt. It does not ask what else the worker was doing.
func (c *change) assign(a *agl.Attempt, dequeued bool) error {
	if a.WorkerID == nil || *a.WorkerID == "" {
		return nil
	}
	w, err := c.worker(*a.WorkerID)
	if err != nil {
		return err
	}
	switch a.Status {
	case agl.AttemptPreparing, agl.AttemptRunning:
		w.Status = agl.WorkerBusy
		w.LastBusyTime = new(c.now)
		w.CurrentRolloutID = new(a.RolloutID)
		w.CurrentAttemptID = new(a.AttemptID)
	case agl.AttemptSucceeded, agl.AttemptFailed:
		c.free(&w, agl.WorkerIdle)
	case agl.AttemptTimeout, agl.AttemptUnresponsive:
		c.free(&w, agl.WorkerUnknown)
	}
	if dequeued {
		w.LastDequeueTime = new(c.now)
	}
	return c.PutWorkers([]agl.Worker{w})
}

func (c *change) free(w *agl.Worker, status agl.WorkerStatus) {
	w.Status = status
	w.LastIdleTime = new(c.now)
	w.CurrentRolloutID, w.CurrentAttemptID = nil, nil
}

// worker returns a worker, made up when the store does not know it yet.
func (c *change) worker(id string) (agl.Worker, error) {
	found, err := c.Workers([]string{id})
	if err != nil {
		return agl.Worker{}, err
	}
	if w, ok := found[id]; ok {
		return w, nil
	}
	return agl.Worker{WorkerID: id, Status: agl.WorkerUnknown}, nil
}

// cameEmpty records that a worker asked for work and got none. Its current ids
// stay, as the protocol has it; so has it that an empty id, which no attempt
// belongs to, is a worker here.
func (c *change) cameEmpty(workerID string) error {
	w, err := c.worker(workerID)
	if err != nil {
		return err
	}
	w.LastDequeueTime = new(c.now)
	if w.Status != agl.WorkerIdle {
		w.Status = agl.WorkerIdle
		w.LastIdleTime = new(c.now)
	}
	return c.PutWorkers([]agl.Worker{w})
}

// UpdateWorker implements [store.WorkerStore].
func (s *Store) UpdateWorker(ctx context.Context, workerID string, stats store.Set[json.RawMessage]) (agl.Worker, error) {
	if stats.Given {
		var err error
		if stats.Value, err = object("heartbeat_stats", stats.Value); err != nil {
			return agl.Worker{}, err
		}
		if stats.Value == nil {
			return agl.Worker{}, nullRefused("heartbeat_stats")
		}
	}
	var out agl.Worker
	err := s.update(ctx, func(c *change) error {
		w, err := c.worker(workerID)
		if err != nil {
			return err
		}
		w.LastHeartbeatTime = new(c.now)
		if stats.Given {
			w.HeartbeatStats = cloneRaw(stats.Value)
		}
		out = w
		return c.PutWorkers([]agl.Worker{w})
	})
	return out, err
}

// Worker implements [store.WorkerStore].
func (s *Store) Worker(ctx context.Context, workerID string) (agl.Worker, error) {
	var out agl.Worker
	err := s.view(ctx, func(r Reader) error {
		found, err := r.Workers([]string{workerID})
		if err != nil {
			return err
		}
		w, ok := found[workerID]
		if !ok {
			return notFound("Worker %s not found", workerID)
		}
		out = w
		return nil
	})
	return out, err
}

// QueryWorkers implements [store.WorkerStore].
func (s *Store) QueryWorkers(ctx context.Context, q store.WorkerQuery) (store.Page[agl.Worker], error) {
	if err := checkPaging(&q.Paging, workerFields); err != nil {
		return store.Page[agl.Worker]{}, err
	}
	return scannedQuery(ctx, s, q, Reader.QueryWorkers)
}
