package sqlite

import (
	"fmt"

	"agentlightning/store"
)

func (r reader) LastSpan(at store.Attempted, name string) (store.SpanJSON, bool, error) {
	var s store.SpanJSON
	found, err := r.c.one(func(row row) error {
		s = store.SpanJSON(row.text(0))
		return nil
	}, selectLastSpan, at.RolloutID, at.AttemptID, name)
	return s, found, err
}

func (t *tx) UpdateSpan(s store.EncodedSpan) error {
	t.write()
	t.spansChanged(spanChange{rolloutID: s.RolloutID})
	rollout, err := t.seqOf(s.RolloutID)
	if err != nil {
		return fmt.Errorf("update span %s: %w", s.SpanID, err)
	}
	n, err := t.c.exec(updateSpan, rollout, s.AttemptID, s.SpanID, s.SequenceID, s.TraceID, orNull(s.ParentID),
		s.Name, orNull(s.StartTime), orNull(s.EndTime), string(s.JSON))
	if err == nil && n == 0 {
		err = errMissing
	}
	if err != nil {
		return fmt.Errorf("update span %s: %w", s.SpanID, err)
	}
	return nil
}

func (r reader) SpannedAttempts(rolloutID string) ([]string, error) {
	var ids []string
	err := r.c.query(func(row row) error {
		ids = append(ids, row.text(0))
		return nil
	}, selectSpanned, rolloutID)
	return ids, err
}

func (r reader) Completions(after int64, limit int) ([]string, int64, error) {
	total, err := r.c.number(countCompletions)
	if err != nil {
		return nil, 0, err
	}
	var ids []string
	err = r.c.query(func(row row) error {
		ids = append(ids, row.text(0))
		return nil
	}, selectCompletions, after, int64(limit))
	return ids, total, err
}

func (t *tx) AppendCompletion(rolloutID string) error {
	t.write()
	if _, err := t.c.exec(appendCompletion, rolloutID); err != nil {
		return fmt.Errorf("log the end of rollout %s: %w", rolloutID, err)
	}
	return nil
}

func (t *tx) DeleteRollouts(ids []string) error {
	var seqs []int64
	var names []string
	for _, id := range ids {
		seq, err := t.c.number(selectRolloutSeq, id)
		if err != nil {
			return err
		}
		if seq != 0 {
			seqs, names = append(seqs, seq), append(names, id)
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	t.known.forget(names)
	return t.deleteRollouts(seqs, names)
}

func (t *tx) deleteRollouts(seqs []int64, ids []string) error {
	rollouts := seqList(seqs)
	t.write()
	for _, id := range ids {
		t.touch(id)
		t.spansChanged(spanChange{rolloutID: id})
	}
	for _, table := range []struct{ noun, last, delete string }{
		{"spans", lastSpan, deleteSpansOf},
		{"attempts", lastAttempt, deleteAttemptsOf},
		{"rollouts", lastRollout, deleteRolloutsOf},
	} {
		before, err := t.c.number(table.last)
		if err != nil {
			return err
		}
		n, err := t.c.exec(table.delete, rollouts)
		if err != nil {
			return fmt.Errorf("%s: %w", table.noun, err)
		}
		after, err := t.c.number(table.last)
		if err != nil {
			return err
		}
		// As with single attempts: the end of a table leaves no gap.
		if gaps := n - (before - after); gaps != 0 {
			if _, err := t.c.exec(addGaps, gaps, table.noun); err != nil {
				return err
			}
		}
	}
	gone, err := t.c.exec(deleteQueuedOf, rollouts)
	t.queued -= int(gone)
	if err != nil {
		return err
	}
	_, err = t.c.exec(deleteSequencesOf, jsonList(ids))
	return err
}
