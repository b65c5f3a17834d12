package sqlite

import (
	"bytes"
	"fmt"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

func (r reader) Attempt(rolloutID, attemptID string) (agl.Attempt, bool, error) {
	var a agl.Attempt
	found, err := r.c.one(func(row row) error { a = scanAttempt(row); return nil }, selectAttempt, rolloutID, attemptID)
	return a, found, err
}

func (r reader) QueryAttempts(q store.AttemptQuery) (store.Page[agl.Attempt], error) {
	var f filter
	f.scope(ofRollout, q.RolloutID)
	return fetch(r.c, f.selection("attempts", q.Paging, attemptSorts), attemptColumns,
		func(row row) (agl.Attempt, error) { return scanAttempt(row), nil })
}

func (r reader) LatestAttempts(rolloutIDs []string) (map[string]agl.Attempt, error) {
	out := make(map[string]agl.Attempt, len(rolloutIDs))
	add := func(row row) error {
		a := scanAttempt(row)
		out[a.RolloutID] = a
		return nil
	}
	return out, r.each(rolloutIDs, selectLatestAttempt, selectLatestAttempts, add)
}

// Attempt answers from what the writer remembers when it is the latest one.
func (t *tx) Attempt(rolloutID, attemptID string) (agl.Attempt, bool, error) {
	if r := t.known.get(rolloutID); r != nil && r.latest != nil && r.latest.AttemptID == attemptID {
		return engine.CloneAttempt(r.latest), true, nil
	}
	return t.reader.Attempt(rolloutID, attemptID)
}

// LatestAttempts answers from what the writer remembers, and asks for the rest.
func (t *tx) LatestAttempts(rolloutIDs []string) (map[string]agl.Attempt, error) {
	out := make(map[string]agl.Attempt, len(rolloutIDs))
	var rest []string
	for _, id := range rolloutIDs {
		switch r := t.known.get(id); {
		case r == nil || !r.latestKnown:
			rest = append(rest, id)
		case r.latest != nil:
			out[id] = engine.CloneAttempt(r.latest)
		}
	}
	for _, id := range rest {
		if r := t.known.get(id); r != nil {
			r.setLatest(0, nil) // until one is found
		}
	}
	err := t.each(rest, selectLatestAttempt, selectLatestAttempts, func(row row) error {
		a := scanAttempt(row)
		out[a.RolloutID] = a
		if r := t.known.get(a.RolloutID); r != nil {
			r.setLatest(row.int(0), &a)
		}
		return nil
	})
	if err != nil {
		t.known.forget(rest)
	}
	return out, err
}

func (t *tx) InsertAttempts(attempts []agl.Attempt) error {
	t.write()
	for i := range attempts {
		a := &attempts[i]
		t.touch(a.RolloutID)
		rollout, err := t.seqOf(a.RolloutID)
		if err != nil {
			return fmt.Errorf("insert attempt %s: %w", a.AttemptID, err)
		}
		seq, err := t.c.insert(insertAttempt, rollout, int64(a.SequenceID), a.AttemptID, a.RolloutID, string(a.Status),
			a.StartTime, orNull(a.EndTime), orNull(a.WorkerID), orNull(a.LastHeartbeatTime), rawOrNull(a.Metadata))
		if err != nil {
			return fmt.Errorf("insert attempt %s: %w", a.AttemptID, err)
		}
		t.known.attempt(seq, a)
		t.spansChanged(spanChange{rolloutID: a.RolloutID, attemptID: a.AttemptID, begun: true})
	}
	return nil
}

func (t *tx) UpdateAttempts(attempts []agl.Attempt) error {
	t.write()
	for i := range attempts {
		a := &attempts[i]
		t.touch(a.RolloutID)
		n, err := t.updateAttempt(a)
		if err == nil && n == 0 {
			err = errMissing
		}
		if err != nil {
			return fmt.Errorf("update attempt %s: %w", a.AttemptID, err)
		}
	}
	return nil
}

func (t *tx) updateAttempt(a *agl.Attempt) (int64, error) {
	if r := t.known.get(a.RolloutID); r != nil && r.latest != nil && r.latest.AttemptID == a.AttemptID &&
		r.latest.SequenceID == a.SequenceID {
		seq, before := r.latestSeq, r.latest
		r.setLatest(seq, a)
		if onlyTouched(before, a) {
			return t.c.exec(touchAttempt, seq, orNull(a.LastHeartbeatTime))
		}
		return t.c.exec(heartbeatAttempt, seq, string(a.Status), a.StartTime, orNull(a.EndTime),
			orNull(a.WorkerID), orNull(a.LastHeartbeatTime), rawOrNull(a.Metadata))
	}
	rollout, err := t.seqOf(a.RolloutID)
	if err != nil {
		return 0, err
	}
	t.known.forgetLatest(a.RolloutID)
	return t.c.exec(updateAttempt, rollout, int64(a.SequenceID), a.AttemptID, a.RolloutID, string(a.Status),
		a.StartTime, orNull(a.EndTime), orNull(a.WorkerID), orNull(a.LastHeartbeatTime), rawOrNull(a.Metadata))
}

// onlyTouched reports whether nothing but the heartbeat of an attempt differs.
func onlyTouched(from, to *agl.Attempt) bool {
	return from.Status == to.Status && from.StartTime == to.StartTime && same(from.EndTime, to.EndTime) &&
		same(from.WorkerID, to.WorkerID) && (from.Metadata == nil) == (to.Metadata == nil) && bytes.Equal(from.Metadata, to.Metadata)
}

func (t *tx) DeleteAttempts(attempts []store.Attempted) error {
	t.write()
	for _, a := range attempts {
		t.touch(a.RolloutID)
		t.known.forgetLatest(a.RolloutID)
		t.spansChanged(spanChange{rolloutID: a.RolloutID})
		if err := t.deleteAttempt(a); err != nil {
			return fmt.Errorf("delete attempt %s: %w", a.AttemptID, err)
		}
	}
	return nil
}

func (t *tx) deleteAttempt(a store.Attempted) error {
	before, err := t.c.number(lastAttempt)
	if err != nil {
		return err
	}
	n, err := t.c.exec(deleteAttempt, a.RolloutID, a.AttemptID)
	if err != nil {
		return err
	}
	after, err := t.c.number(lastAttempt)
	if err != nil {
		return err
	}
	// What is deleted at the end leaves no gap: its seq is used again.
	if gaps := n - (before - after); gaps != 0 {
		_, err = t.c.exec(addGaps, gaps, "attempts")
	}
	return err
}

func scanAttempt(r row) agl.Attempt {
	return agl.Attempt{
		SequenceID: int(r.int(2)), AttemptID: r.text(3), RolloutID: r.text(4),
		Status: agl.AttemptStatus(r.text(5)), StartTime: r.float(6), EndTime: r.optionalFloat(7),
		WorkerID: r.optionalText(8), LastHeartbeatTime: r.optionalFloat(9), Metadata: r.raw(10),
	}
}
