package sqlite

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
)

func (r reader) Run(id string) (agl.Run, bool, error) {
	var run agl.Run
	found, err := r.c.one(func(row row) error { run = scanRun(row); return nil }, selectRun, id)
	return run, found, err
}

func (r reader) Runs(limit int) ([]agl.Run, error) {
	if limit <= 0 {
		limit = -1
	}
	var runs []agl.Run
	err := r.c.query(func(row row) error { runs = append(runs, scanRun(row)); return nil }, selectRuns, int64(limit))
	return runs, err
}

func (t *tx) InsertRun(r agl.Run) error {
	t.write()
	if _, err := t.c.exec(insertRun, runArgs(&r)...); err != nil {
		return fmt.Errorf("insert run %s: %w", r.RunID, err)
	}
	return nil
}

func (t *tx) UpdateRun(r agl.Run) error {
	t.write()
	n, err := t.c.exec(updateRun, runArgs(&r)...)
	if err == nil && n == 0 {
		err = errMissing
	}
	if err != nil {
		return fmt.Errorf("update run %s: %w", r.RunID, err)
	}
	return nil
}

func runArgs(r *agl.Run) []any {
	return []any{
		r.RunID, r.Algorithm, rawOrNull(r.Config), r.Seed, string(r.Status), r.StartTime,
		orNull(r.EndTime), r.Error,
	}
}

func scanRun(r row) agl.Run {
	return agl.Run{
		RunID: r.text(0), Algorithm: r.text(1), Config: r.raw(2), Seed: r.int(3),
		Status: agl.RunStatus(r.text(4)), StartTime: r.float(5), EndTime: r.optionalFloat(6), Error: r.text(7),
	}
}

func (r reader) StepMetrics(runID string, after int) ([]agl.StepMetrics, error) {
	var out []agl.StepMetrics
	err := r.c.query(func(row row) error {
		values, err := parseValues(row.text(2))
		out = append(out, agl.StepMetrics{Step: int(row.int(0)), Time: row.float(1), Values: values})
		return err
	}, selectStepMetrics, runID, int64(after))
	if err != nil {
		return nil, fmt.Errorf("metrics of run %s: %w", runID, err)
	}
	return out, nil
}

func (t *tx) PutStepMetrics(runID string, metrics []agl.StepMetrics) error {
	t.write()
	for _, m := range metrics {
		if _, err := t.c.exec(putStepMetrics, runID, int64(m.Step), m.Time, formatValues(m.Values)); err != nil {
			return fmt.Errorf("put metrics of run %s, step %d: %w", runID, m.Step, err)
		}
	}
	return nil
}

// formatValues writes metrics as an object. A loss may well be NaN, which JSON
// lacks, so non-finite values keep their Python spelling.
func formatValues(values map[string]float64) string {
	dst := []byte{'{'}
	for i, key := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsonx.AppendString(dst, key), ':')
		dst = jsonx.AppendToken(dst, values[key])
	}
	return string(append(dst, '}'))
}

func parseValues(text string) (map[string]float64, error) {
	members, err := jsonx.Members([]byte(text))
	if err != nil {
		return nil, err
	}
	values := make(map[string]float64, len(members))
	for _, m := range members {
		if values[m.Key], err = strconv.ParseFloat(string(m.Value), 64); err != nil {
			return nil, fmt.Errorf("metric %q: %w", m.Key, err)
		}
	}
	return values, nil
}

func (r reader) LatestCheckpoint(runID string) (agl.Checkpoint, bool, error) {
	var c agl.Checkpoint
	found, err := r.c.one(func(row row) error {
		c = agl.Checkpoint{
			Step: int(row.int(0)), Time: row.float(1), Path: row.text(2),
			Score: row.optionalFloat(3), State: row.raw(4),
		}
		return nil
	}, selectLatestCheckpoint, runID)
	return c, found, err
}

func (r reader) Checkpoints(runID string) ([]agl.Checkpoint, error) {
	var out []agl.Checkpoint
	err := r.c.query(func(row row) error {
		out = append(out, agl.Checkpoint{Step: int(row.int(0)), Time: row.float(1), Path: row.text(2), Score: row.optionalFloat(3)})
		return nil
	}, selectCheckpoints, runID)
	if err != nil {
		return nil, fmt.Errorf("checkpoints of run %s: %w", runID, err)
	}
	return out, nil
}

func (t *tx) PutCheckpoint(runID string, c agl.Checkpoint) error {
	t.write()
	_, err := t.c.exec(putCheckpoint, runID, int64(c.Step), c.Time, c.Path, orNull(c.Score), rawOrNull(c.State))
	if err != nil {
		return fmt.Errorf("put checkpoint of run %s, step %d: %w", runID, c.Step, err)
	}
	return nil
}
