package memory

import (
	"slices"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

// reader reads the state under the lock of the backend.
type reader struct{ s *state }

var _ engine.Reader = reader{}

// copies turns the page that a query selected into values of the caller.
func copies[T, V any](selected []*T, total int, clone func(*T) V) store.Page[V] {
	items := make([]V, len(selected))
	for i, item := range selected {
		items[i] = clone(item)
	}
	return store.Page[V]{Items: items, Total: total}
}

func (r reader) Rollout(id string) (agl.AttemptedRollout, bool, error) {
	if row, ok := r.s.rollouts[id]; ok {
		return engine.CloneAttempted(row.value), true, nil
	}
	return agl.AttemptedRollout{}, false, nil
}

func (r reader) Rollouts(ids []string) (map[string]agl.Rollout, error) {
	out := make(map[string]agl.Rollout, len(ids))
	for _, id := range ids {
		if row, ok := r.s.rollouts[id]; ok {
			out[id] = engine.CloneRollout(&row.value.Rollout)
		}
	}
	return out, nil
}

func (r reader) QueryRollouts(q store.RolloutQuery) (store.Page[agl.AttemptedRollout], error) {
	candidates := r.s.order
	if r.s.holes > 0 {
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(v *agl.AttemptedRollout) bool { return v == nil })
	}
	if q.RolloutIDIn != nil && !q.Any {
		candidates = r.named(q.RolloutIDIn)
	}
	selected, total := engine.SelectRollouts(candidates, &q)
	return copies(selected, total, engine.CloneAttempted), nil
}

// named returns the rollouts with these ids in the order of insertion.
func (r reader) named(ids []string) []*agl.AttemptedRollout {
	var rows []*rolloutRow
	for _, id := range ids {
		if row, ok := r.s.rollouts[id]; ok {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b *rolloutRow) int { return a.place - b.place })
	rows = slices.Compact(rows)
	out := make([]*agl.AttemptedRollout, len(rows))
	for i, row := range rows {
		out[i] = row.value
	}
	return out
}

func (r reader) OpenRollouts() ([]agl.AttemptedRollout, error) {
	var out []agl.AttemptedRollout
	for row := range r.s.limited {
		if row.value.Attempt != nil {
			out = append(out, engine.CloneAttempted(row.value))
		}
	}
	slices.SortFunc(out, func(a, b agl.AttemptedRollout) int {
		return r.s.rollouts[a.RolloutID].place - r.s.rollouts[b.RolloutID].place
	})
	return out, nil
}

func (r reader) QueueLength() (int, error) { return r.s.queue.length, nil }

func (r reader) QueueFront() (agl.AttemptedRollout, bool, error) {
	if r.s.queue.length == 0 {
		return agl.AttemptedRollout{}, false, nil
	}
	return engine.CloneAttempted(r.s.rollouts[*r.s.queue.at(0)].value), true, nil
}

func (r reader) Attempt(rolloutID, attemptID string) (agl.Attempt, bool, error) {
	if row, ok := r.s.rollouts[rolloutID]; ok {
		if i := row.find(attemptID); i >= 0 {
			return engine.CloneAttempt(row.attempts[i]), true, nil
		}
	}
	return agl.Attempt{}, false, nil
}

// find returns the place of an attempt, -1 when there is none.
func (row *rolloutRow) find(attemptID string) int {
	return slices.IndexFunc(row.attempts, func(a *agl.Attempt) bool { return a.AttemptID == attemptID })
}

func (r reader) QueryAttempts(q store.AttemptQuery) (store.Page[agl.Attempt], error) {
	row, ok := r.s.rollouts[q.RolloutID]
	if !ok {
		return store.Page[agl.Attempt]{}, nil
	}
	selected, total := engine.SelectAttempts(row.attempts, &q)
	return copies(selected, total, engine.CloneAttempt), nil
}

func (r reader) LatestAttempts(rolloutIDs []string) (map[string]agl.Attempt, error) {
	out := make(map[string]agl.Attempt, len(rolloutIDs))
	for _, id := range rolloutIDs {
		if row, ok := r.s.rollouts[id]; ok && row.value.Attempt != nil {
			out[id] = engine.CloneAttempt(row.value.Attempt)
		}
	}
	return out, nil
}

func (r reader) QuerySpans(q store.SpanQuery) (store.Page[store.SpanJSON], error) {
	row, ok := r.s.rollouts[q.RolloutID]
	if !ok {
		return store.Page[store.SpanJSON]{}, nil
	}
	if row.evicted {
		return store.Page[store.SpanJSON]{}, &store.Error{
			Kind: store.ErrEvicted, Message: "Spans for rollout " + q.RolloutID + " have been evicted",
		}
	}
	inScope := row.spans
	switch {
	case q.AttemptID == nil:
	case *q.AttemptID != agl.LatestAttempt:
		inScope = row.byOwner[*q.AttemptID]
	case row.value.Attempt == nil:
		inScope = nil
	default:
		inScope = row.byOwner[row.value.Attempt.AttemptID]
	}
	selected, total := engine.SelectSpans(inScope, &q)
	return copies(selected, total, func(s *store.EncodedSpan) store.SpanJSON { return s.JSON }), nil
}

func (r reader) LastSpan(at store.Attempted, name string) (store.SpanJSON, bool, error) {
	if row, ok := r.s.rollouts[at.RolloutID]; ok {
		for _, s := range slices.Backward(row.byOwner[at.AttemptID]) {
			if s.Name == name {
				return s.JSON, true, nil
			}
		}
	}
	return nil, false, nil
}

func (r reader) SpannedAttempts(rolloutID string) ([]string, error) {
	row, ok := r.s.rollouts[rolloutID]
	if !ok {
		return nil, nil
	}
	var ids []string
	for _, s := range row.spans {
		if !slices.Contains(ids, s.AttemptID) {
			ids = append(ids, s.AttemptID)
		}
		if len(ids) == len(row.byOwner) {
			break
		}
	}
	return ids, nil
}

func (r reader) Completions(after int64, limit int) ([]string, int64, error) {
	total := int64(len(r.s.completed))
	from := min(after, total)
	return slices.Clone(r.s.completed[from:min(from+int64(limit), total)]), total, nil
}

func (r reader) Resources(id string) (agl.ResourcesUpdate, bool, error) {
	if u := r.s.resources.get(id); u != nil {
		return engine.CloneResourcesUpdate(u), true, nil
	}
	return agl.ResourcesUpdate{}, false, nil
}

func (r reader) LatestResources() (agl.ResourcesUpdate, bool, error) { return r.Resources(r.s.latest) }

func (r reader) QueryResources(q store.ResourcesQuery) (store.Page[agl.ResourcesUpdate], error) {
	selected, total := engine.SelectResources(r.s.resources.items, &q)
	return copies(selected, total, engine.CloneResourcesUpdate), nil
}

func (r reader) Workers(ids []string) (map[string]agl.Worker, error) {
	out := make(map[string]agl.Worker, len(ids))
	for _, id := range ids {
		if w := r.s.workers.get(id); w != nil {
			out[id] = engine.CloneWorker(w)
		}
	}
	return out, nil
}

func (r reader) QueryWorkers(q store.WorkerQuery) (store.Page[agl.Worker], error) {
	selected, total := engine.SelectWorkers(r.s.workers.items, &q)
	return copies(selected, total, engine.CloneWorker), nil
}

func (r reader) Run(id string) (agl.Run, bool, error) {
	if row, ok := r.s.runs[id]; ok {
		return engine.CloneRun(&row.run), true, nil
	}
	return agl.Run{}, false, nil
}

func (r reader) Runs(limit int) ([]agl.Run, error) {
	n := len(r.s.runOrder)
	if limit > 0 {
		n = min(n, limit)
	}
	out := make([]agl.Run, n)
	for i := range out {
		out[i] = engine.CloneRun(&r.s.runOrder[len(r.s.runOrder)-1-i].run)
	}
	return out, nil
}

func (r reader) StepMetrics(runID string, after int) ([]agl.StepMetrics, error) {
	row, ok := r.s.runs[runID]
	if !ok {
		return nil, nil
	}
	var out []agl.StepMetrics
	for i := range row.metrics {
		if row.metrics[i].Step > after {
			out = append(out, engine.CloneStepMetrics(&row.metrics[i]))
		}
	}
	return out, nil
}

func (r reader) LatestCheckpoint(runID string) (agl.Checkpoint, bool, error) {
	row, ok := r.s.runs[runID]
	if !ok || len(row.checkpoints) == 0 {
		return agl.Checkpoint{}, false, nil
	}
	return engine.CloneCheckpoint(&row.checkpoints[len(row.checkpoints)-1]), true, nil
}

func (r reader) Checkpoints(runID string) ([]agl.Checkpoint, error) {
	row, ok := r.s.runs[runID]
	if !ok {
		return nil, nil
	}
	out := make([]agl.Checkpoint, len(row.checkpoints))
	for i := range row.checkpoints {
		c := row.checkpoints[i]
		c.State = nil
		out[i] = engine.CloneCheckpoint(&c)
	}
	return out, nil
}

func (r reader) RunLog(q store.LogQuery) (store.LogPage, error) {
	row, ok := r.s.runs[q.RunID]
	if !ok {
		return store.LogPage{First: 1}, nil
	}
	log := &row.log
	n := int64(len(log.lines))
	from := min(max(q.After-log.first, 0), n)
	to := n
	if q.Before > 0 {
		to = max(min(q.Before-1-log.first, n), from)
	}
	part := log.lines[from:to]
	lines, more := engine.SelectLog(func(yield func(*agl.LogLine) bool) {
		for i := range part {
			at := i
			if q.Newest {
				at = len(part) - 1 - i
			}
			if !yield(&part[at]) {
				return
			}
		}
	}, &q)
	return store.LogPage{Lines: lines, First: log.first + 1, Last: log.first + n, More: more}, nil
}

func (r reader) LogSize(runID string) (lines, bytes int64, err error) {
	if row, ok := r.s.runs[runID]; ok {
		return int64(len(row.log.lines)), row.log.bytes, nil
	}
	return 0, 0, nil
}

func (r reader) Models() ([]agl.Model, error) { return slices.Clone(r.s.models), nil }

func (r reader) Counts() (store.Statistics, error) { return counts(r.s), nil }
