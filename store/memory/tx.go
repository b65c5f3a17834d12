package memory

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

// tx changes the state under the lock of the backend and remembers how to undo it.
type tx struct {
	reader
	undo []func()
}

var _ engine.Tx = (*tx)(nil)

func (t *tx) did(undo func()) { t.undo = append(t.undo, undo) }

func (t *tx) rollback() {
	for _, undo := range slices.Backward(t.undo) {
		undo()
	}
}

// errorf reports a broken promise of the engine: the transaction fails.
func errorf(format string, args ...any) error { return fmt.Errorf("memory: "+format, args...) }

func (t *tx) InsertRollouts(rollouts []agl.Rollout) error {
	for i := range rollouts {
		id := rollouts[i].RolloutID
		if _, ok := t.s.rollouts[id]; ok {
			return errorf("rollout %s exists already", id)
		}
		t.s.born++
		row := &rolloutRow{
			place: len(t.s.order),
			born:  t.s.born,
			value: &agl.AttemptedRollout{Rollout: engine.CloneRollout(&rollouts[i])},
		}
		t.s.rollouts[id] = row
		t.s.order = append(t.s.order, row.value)
		t.did(func() {
			delete(t.s.rollouts, id)
			t.s.order = t.s.order[:len(t.s.order)-1]
		})
		t.reindex(row)
	}
	return nil
}

func (t *tx) UpdateRollouts(rollouts []agl.Rollout) error {
	for i := range rollouts {
		row, ok := t.s.rollouts[rollouts[i].RolloutID]
		if !ok {
			return errorf("rollout %s does not exist", rollouts[i].RolloutID)
		}
		old := row.value.Rollout
		row.value.Rollout = engine.CloneRollout(&rollouts[i])
		t.did(func() { row.value.Rollout = old })
		t.reindex(row)
	}
	return nil
}

// reindex keeps the set of rollouts that the health scan looks at.
func (t *tx) reindex(row *rolloutRow) {
	ro := &row.value.Rollout
	want := ro.Status.Active() && (ro.Config.TimeoutSeconds != nil || ro.Config.UnresponsiveSeconds != nil)
	_, have := t.s.limited[row]
	if want == have {
		return
	}
	set := func(in bool) {
		if in {
			t.s.limited[row] = struct{}{}
		} else {
			delete(t.s.limited, row)
		}
	}
	set(want)
	t.did(func() { set(have) })
}

// DeleteRollouts leaves holes in the order of insertion, which Update closes
// when there are many.
func (t *tx) DeleteRollouts(ids []string) error {
	for _, id := range ids {
		row, ok := t.s.rollouts[id]
		if !ok {
			continue
		}
		delete(t.s.rollouts, id)
		t.s.order[row.place] = nil
		t.s.holes++
		_, limited := t.s.limited[row]
		delete(t.s.limited, row)
		sequence, counted := t.s.sequences[id]
		delete(t.s.sequences, id)
		queue := t.s.queue
		if queue.has(id) {
			t.s.queue = queue.without(id)
		}
		t.s.attempts -= int64(len(row.attempts))
		t.s.spans -= int64(len(row.spans))
		t.s.spanBytes -= row.bytes
		t.did(func() {
			t.s.spanBytes += row.bytes
			t.s.rollouts[id] = row
			t.s.order[row.place] = row.value
			t.s.holes--
			if limited {
				t.s.limited[row] = struct{}{}
			}
			if counted {
				t.s.sequences[id] = sequence
			}
			t.s.queue = queue
			t.s.attempts += int64(len(row.attempts))
			t.s.spans += int64(len(row.spans))
		})
	}
	return nil
}

// closeHoles makes the order of insertion dense again when half of it is holes,
// so that a deletion costs the same however much is stored.
func (s *state) closeHoles() {
	if s.holes*2 <= len(s.order) {
		return
	}
	order := make([]*agl.AttemptedRollout, 0, len(s.order)-s.holes)
	for _, value := range s.order {
		if value != nil {
			s.rollouts[value.RolloutID].place = len(order)
			order = append(order, value)
		}
	}
	s.order, s.holes = order, 0
}

func (t *tx) AppendCompletion(rolloutID string) error {
	t.s.completed = append(t.s.completed, rolloutID)
	t.did(func() { t.s.completed = t.s.completed[:len(t.s.completed)-1] })
	return nil
}

func (t *tx) Push(ids []string) error {
	for _, id := range ids {
		if t.s.queue.has(id) {
			continue
		}
		t.s.queue.pushBack(id)
		t.did(func() { t.s.queue.popBack() })
	}
	return nil
}

func (t *tx) PushFront(ids []string) error {
	for _, id := range slices.Backward(ids) {
		if t.s.queue.has(id) {
			continue
		}
		t.s.queue.pushFront(id)
		t.did(func() { t.s.queue.popFront() })
	}
	return nil
}

func (t *tx) Pop(n int) ([]string, error) {
	n = min(n, t.s.queue.length)
	ids := make([]string, 0, max(n, 0))
	for range n {
		id := t.s.queue.popFront()
		ids = append(ids, id)
		t.did(func() { t.s.queue.pushFront(id) })
	}
	return ids, nil
}

func (t *tx) InsertAttempts(attempts []agl.Attempt) error {
	for i := range attempts {
		row, ok := t.s.rollouts[attempts[i].RolloutID]
		if !ok {
			return errorf("rollout %s does not exist", attempts[i].RolloutID)
		}
		if row.find(attempts[i].AttemptID) >= 0 {
			return errorf("attempt %s of rollout %s exists already", attempts[i].AttemptID, attempts[i].RolloutID)
		}
		row.attempts = append(row.attempts, new(engine.CloneAttempt(&attempts[i])))
		t.s.attempts++
		row.newest()
		t.did(func() {
			row.attempts = row.attempts[:len(row.attempts)-1]
			t.s.attempts--
			row.newest()
		})
	}
	return nil
}

// newest attaches the latest attempt to the rollout.
func (row *rolloutRow) newest() {
	row.value.Attempt = nil
	for _, a := range row.attempts {
		if row.value.Attempt == nil || a.SequenceID > row.value.Attempt.SequenceID {
			row.value.Attempt = a
		}
	}
}

func (t *tx) UpdateAttempts(attempts []agl.Attempt) error {
	for i := range attempts {
		at := -1
		row, ok := t.s.rollouts[attempts[i].RolloutID]
		if ok {
			at = row.find(attempts[i].AttemptID)
		}
		if at < 0 {
			return errorf("attempt %s of rollout %s does not exist", attempts[i].AttemptID, attempts[i].RolloutID)
		}
		old := row.attempts[at]
		row.attempts[at] = new(engine.CloneAttempt(&attempts[i]))
		row.newest()
		t.did(func() {
			row.attempts[at] = old
			row.newest()
		})
	}
	return nil
}

func (t *tx) DeleteAttempts(names []store.Attempted) error {
	for _, n := range names {
		row, ok := t.s.rollouts[n.RolloutID]
		if !ok {
			continue
		}
		at := row.find(n.AttemptID)
		if at < 0 {
			continue
		}
		old := row.attempts
		row.attempts = slices.Delete(slices.Clone(old), at, at+1)
		t.s.attempts--
		row.newest()
		t.did(func() {
			row.attempts = old
			t.s.attempts++
			row.newest()
		})
	}
	return nil
}

func (t *tx) InsertSpans(spans []store.EncodedSpan) ([]bool, error) {
	stored := make([]bool, len(spans))
	for i := range spans {
		row, ok := t.s.rollouts[spans[i].RolloutID]
		if !ok {
			return nil, errorf("rollout %s does not exist", spans[i].RolloutID)
		}
		owner := spans[i].AttemptID
		key := spanKey{owner, spans[i].SpanID}
		if _, ok := row.byKey[key]; ok {
			continue
		}
		if row.byKey == nil {
			row.byKey = map[spanKey]struct{}{}
			row.byOwner = map[string][]*store.EncodedSpan{}
		}
		span := new(spans[i])
		row.byKey[key] = struct{}{}
		row.spans = append(row.spans, span)
		row.byOwner[owner] = append(row.byOwner[owner], span)
		size := sizeOf(span)
		row.bytes += size
		t.s.spanBytes += size
		t.s.spans++
		stored[i] = true
		t.did(func() {
			row.bytes -= size
			t.s.spanBytes -= size
			delete(row.byKey, key)
			row.spans = row.spans[:len(row.spans)-1]
			row.byOwner[owner] = row.byOwner[owner][:len(row.byOwner[owner])-1]
			t.s.spans--
		})
	}
	return stored, nil
}

func (t *tx) UpdateSpan(s store.EncodedSpan) error {
	row, ok := t.s.rollouts[s.RolloutID]
	if !ok {
		return errorf("rollout %s does not exist", s.RolloutID)
	}
	same := func(o *store.EncodedSpan) bool { return o.AttemptID == s.AttemptID && o.SpanID == s.SpanID }
	all, own := slices.IndexFunc(row.spans, same), slices.IndexFunc(row.byOwner[s.AttemptID], same)
	if all < 0 || own < 0 {
		return errorf("span %s of rollout %s does not exist", s.SpanID, s.RolloutID)
	}
	old := row.spans[all]
	put := func(span *store.EncodedSpan) {
		more := sizeOf(span) - sizeOf(row.spans[all])
		row.bytes += more
		t.s.spanBytes += more
		row.spans[all], row.byOwner[s.AttemptID][own] = span, span
	}
	put(&s)
	t.did(func() { put(old) })
	return nil
}

func (t *tx) TakeSequenceIDs(rolloutID string, n int) (int64, error) {
	last := t.s.sequences[rolloutID] + int64(n)
	t.setSequence(rolloutID, last)
	return last, nil
}

func (t *tx) RaiseSequenceID(rolloutID string, id int64) error {
	if id > t.s.sequences[rolloutID] {
		t.setSequence(rolloutID, id)
	}
	return nil
}

func (t *tx) setSequence(rolloutID string, to int64) {
	old, had := t.s.sequences[rolloutID]
	t.s.sequences[rolloutID] = to
	t.did(func() {
		if had {
			t.s.sequences[rolloutID] = old
		} else {
			delete(t.s.sequences, rolloutID)
		}
	})
}

func (t *tx) PutResources(u agl.ResourcesUpdate) error {
	t.did(t.s.resources.put(u.ResourcesID, new(engine.CloneResourcesUpdate(&u))))
	old := t.s.latest
	t.s.latest = u.ResourcesID
	t.did(func() { t.s.latest = old })
	return nil
}

func (t *tx) PutWorkers(workers []agl.Worker) error {
	for i := range workers {
		t.did(t.s.workers.put(workers[i].WorkerID, new(engine.CloneWorker(&workers[i]))))
	}
	return nil
}

func (t *tx) InsertRun(r agl.Run) error {
	if _, ok := t.s.runs[r.RunID]; ok {
		return errorf("run %s exists already", r.RunID)
	}
	row := &runRow{run: engine.CloneRun(&r)}
	t.s.runs[r.RunID] = row
	t.s.runOrder = append(t.s.runOrder, row)
	t.did(func() {
		delete(t.s.runs, r.RunID)
		t.s.runOrder = t.s.runOrder[:len(t.s.runOrder)-1]
	})
	return nil
}

func (t *tx) UpdateRun(r agl.Run) error {
	row, ok := t.s.runs[r.RunID]
	if !ok {
		return errorf("run %s does not exist", r.RunID)
	}
	old := row.run
	row.run = engine.CloneRun(&r)
	t.did(func() { row.run = old })
	return nil
}

// putByStep returns list with an item inserted at its step, or put in the place
// of the one that has it; list itself stays as it is.
func putByStep[T any](list []T, item T, step func(T) int) []T {
	at, found := slices.BinarySearchFunc(list, step(item), func(x T, s int) int { return cmp.Compare(step(x), s) })
	if found {
		list = slices.Clone(list)
		list[at] = item
		return list
	}
	return slices.Insert(slices.Clip(list), at, item)
}

func (t *tx) PutStepMetrics(runID string, metrics []agl.StepMetrics) error {
	row, ok := t.s.runs[runID]
	if !ok {
		return errorf("run %s does not exist", runID)
	}
	old := row.metrics
	t.did(func() { row.metrics = old })
	for i := range metrics {
		m := engine.CloneStepMetrics(&metrics[i])
		if n := len(row.metrics); n == 0 || row.metrics[n-1].Step < m.Step {
			row.metrics = append(row.metrics, m) // as a rule; it does not touch old
			continue
		}
		row.metrics = putByStep(row.metrics, m, func(m agl.StepMetrics) int { return m.Step })
	}
	return nil
}

func (t *tx) PutCheckpoint(runID string, c agl.Checkpoint) error {
	row, ok := t.s.runs[runID]
	if !ok {
		return errorf("run %s does not exist", runID)
	}
	old := row.checkpoints
	t.did(func() { row.checkpoints = old })
	row.checkpoints = putByStep(row.checkpoints, engine.CloneCheckpoint(&c), func(c agl.Checkpoint) int { return c.Step })
	return nil
}

func (t *tx) AppendLogLines(runID string, lines []agl.LogLine, keep engine.LogBounds) error {
	row, ok := t.s.runs[runID]
	if !ok {
		return errorf("run %s does not exist", runID)
	}
	old := row.log
	t.did(func() { row.log = old })
	log := &row.log
	for i := range lines {
		l := engine.CloneLogLine(&lines[i])
		l.Position = log.first + int64(len(log.lines)) + 1
		log.lines = append(log.lines, l) // it does not touch old
		log.bytes += int64(l.Size())
	}
	gone := 0
	for n := len(log.lines); gone < n-1 && (int64(n-gone) > keep.Lines || log.bytes > keep.Bytes); gone++ {
		log.bytes -= int64(log.lines[gone].Size())
	}
	log.lines, log.first = log.lines[gone:], log.first+int64(gone)
	return nil
}

func (t *tx) EmptyLog(runID string) error {
	row, ok := t.s.runs[runID]
	if !ok {
		return errorf("run %s does not exist", runID)
	}
	old := row.log
	t.did(func() { row.log = old })
	row.log = runLog{first: old.first + int64(len(old.lines))}
	return nil
}

func (t *tx) DeleteRun(id string) error {
	row, ok := t.s.runs[id]
	if !ok {
		return errorf("run %s does not exist", id)
	}
	order := t.s.runOrder
	t.did(func() { t.s.runs[id], t.s.runOrder = row, order })
	delete(t.s.runs, id)
	t.s.runOrder = slices.DeleteFunc(slices.Clone(order), func(r *runRow) bool { return r == row })
	return nil
}

func (t *tx) PutModels(m []agl.Model) error {
	old := t.s.models
	t.s.models = slices.Clone(m)
	t.did(func() { t.s.models = old })
	return nil
}

func (t *tx) PutAnswer(key string, text []byte, expires float64) error {
	old, had := t.s.answers[key]
	t.s.answers[key] = answer{bytes.Clone(text), expires}
	t.s.expiry = append(t.s.expiry, key)
	t.did(func() {
		t.s.expiry = t.s.expiry[:len(t.s.expiry)-1]
		if had {
			t.s.answers[key] = old
		} else {
			delete(t.s.answers, key)
		}
	})
	return nil
}

func (t *tx) ForgetAnswers(now float64, _ int) (int, error) {
	t.forget(now)
	return 0, nil // all of them: it is quick
}

func (t *tx) Answer(key string, now float64) ([]byte, bool, error) {
	t.forget(now)
	a, ok := t.s.answers[key]
	if !ok || a.expires <= now {
		return nil, false, nil
	}
	return bytes.Clone(a.text), true, nil
}

// forget drops answers that have expired. A rollback need not bring them back.
func (t *tx) forget(now float64) {
	for len(t.s.expiry) > 0 {
		key := t.s.expiry[0]
		a, ok := t.s.answers[key]
		if ok && a.expires > now {
			return
		}
		delete(t.s.answers, key)
		t.s.expiry = t.s.expiry[1:]
	}
}
