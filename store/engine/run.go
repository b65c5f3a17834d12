package engine

import (
	"context"
	"log/slog"
	"maps"
	"math"

	agl "agentlightning"
	"agentlightning/store"
)

// CreateRun implements [store.RunStore].
func (s *Store) CreateRun(ctx context.Context, run agl.Run) (agl.Run, error) {
	var err error
	if run.Config, err = objectOrEmpty("config", run.Config); err != nil {
		return agl.Run{}, err
	}
	if run.RunID == "" {
		run.RunID = agl.NewRunID()
	}
	run.Status, run.EndTime, run.Error = agl.RunRunning, nil, ""
	var out agl.Run
	err = s.update(ctx, func(c *change) error {
		_, exists, err := c.Run(run.RunID)
		if err != nil {
			return err
		}
		if exists {
			return conflict("run %s exists already", run.RunID)
		}
		out = CloneRun(&run)
		out.StartTime = c.now
		return c.InsertRun(out)
	})
	if err != nil {
		return agl.Run{}, err
	}
	s.feed.tell(store.NounRuns, out.RunID)
	return out, nil
}

// UpdateRun implements [store.RunStore]. Leaving the running status stamps the
// end; returning to it, as a resumed run does, clears the end and the error.
func (s *Store) UpdateRun(ctx context.Context, runID string, u store.RunUpdate) (agl.Run, error) {
	if err := checkRunUpdate(&u); err != nil {
		return agl.Run{}, err
	}
	var out agl.Run
	err := s.update(ctx, func(c *change) error {
		run, err := existingRun(c, runID)
		if err != nil {
			return err
		}
		if u.Config.Given {
			run.Config = cloneRaw(u.Config.Value)
		}
		if u.Status.Given {
			run.Status = u.Status.Value
			if run.Status == agl.RunRunning {
				run.EndTime, run.Error = nil, ""
			} else {
				run.EndTime = new(c.now)
			}
		}
		if u.Error.Given {
			run.Error = u.Error.Value
		}
		out = run
		return c.UpdateRun(run)
	})
	if err != nil {
		return agl.Run{}, err
	}
	s.feed.tell(store.NounRuns, runID)
	return out, nil
}

func existingRun(r Reader, id string) (agl.Run, error) {
	run, ok, err := r.Run(id)
	if err == nil && !ok {
		err = notFound("Run %s not found", id)
	}
	return run, err
}

// Run implements [store.RunStore].
func (s *Store) Run(ctx context.Context, runID string) (agl.Run, error) {
	var out agl.Run
	err := s.view(ctx, func(r Reader) (err error) {
		out, err = existingRun(r, runID)
		return err
	})
	return out, err
}

// Runs implements [store.RunStore].
func (s *Store) Runs(ctx context.Context, limit int) ([]agl.Run, error) {
	out := []agl.Run{}
	err := s.view(ctx, func(r Reader) error {
		runs, err := r.Runs(limit)
		out = append(out[:0], runs...)
		return err
	})
	return out, err
}

// AddStepMetrics implements [store.RunStore]. Values that are not finite, which
// no reader could plot, are left out with a warning.
func (s *Store) AddStepMetrics(ctx context.Context, runID string, m ...agl.StepMetrics) error {
	kept := make([]agl.StepMetrics, len(m))
	for i := range m {
		kept[i] = m[i]
		kept[i].Values = maps.Clone(m[i].Values)
		if kept[i].Values == nil {
			kept[i].Values = map[string]float64{}
		}
		for name, v := range m[i].Values {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				delete(kept[i].Values, name)
				s.log.LogAttrs(ctx, slog.LevelWarn, "metric is not a finite number", slog.String("run_id", runID),
					slog.Int("step", m[i].Step), slog.String("metric", name), slog.Float64("value", v))
			}
		}
	}
	return s.update(ctx, func(c *change) error {
		if _, err := existingRun(c, runID); err != nil {
			return err
		}
		if len(kept) == 0 {
			return nil
		}
		c.after = func() { s.feed.tell(store.NounRuns, runID) }
		stamped := make([]agl.StepMetrics, len(kept))
		for i := range kept {
			stamped[i] = kept[i]
			if stamped[i].Time == 0 {
				stamped[i].Time = c.now
			}
		}
		return c.PutStepMetrics(runID, stamped)
	})
}

// StepMetrics implements [store.RunStore].
func (s *Store) StepMetrics(ctx context.Context, runID string, after int) ([]agl.StepMetrics, error) {
	out := []agl.StepMetrics{}
	err := s.view(ctx, func(r Reader) error {
		if _, err := existingRun(r, runID); err != nil {
			return err
		}
		m, err := r.StepMetrics(runID, after)
		out = append(out[:0], m...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// PutCheckpoint implements [store.RunStore].
func (s *Store) PutCheckpoint(ctx context.Context, runID string, cp agl.Checkpoint) error {
	var err error
	if cp.State, err = objectOrEmpty("state", cp.State); err != nil {
		return err
	}
	return s.update(ctx, func(c *change) error {
		if _, err := existingRun(c, runID); err != nil {
			return err
		}
		c.after = func() { s.feed.tell(store.NounRuns, runID) }
		stamped := CloneCheckpoint(&cp)
		if stamped.Time == 0 {
			stamped.Time = c.now
		}
		return c.PutCheckpoint(runID, stamped)
	})
}

// LatestCheckpoint implements [store.RunStore].
func (s *Store) LatestCheckpoint(ctx context.Context, runID string) (agl.Checkpoint, error) {
	var out agl.Checkpoint
	err := s.view(ctx, func(r Reader) error {
		if _, err := existingRun(r, runID); err != nil {
			return err
		}
		cp, ok, err := r.LatestCheckpoint(runID)
		if err == nil && !ok {
			err = notFound("run %s has no checkpoint", runID)
		}
		out = cp
		return err
	})
	return out, err
}

// Checkpoints implements [store.RunStore].
func (s *Store) Checkpoints(ctx context.Context, runID string) ([]agl.Checkpoint, error) {
	out := []agl.Checkpoint{}
	err := s.view(ctx, func(r Reader) error {
		if _, err := existingRun(r, runID); err != nil {
			return err
		}
		found, err := r.Checkpoints(runID)
		out = append(out[:0], found...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
