package engine

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/store"
)

// AddLogLines implements [store.RunStore].
func (s *Store) AddLogLines(ctx context.Context, runID string, lines ...agl.LogLine) error {
	kept := make([]agl.LogLine, len(lines))
	for i := range lines {
		l := &kept[i]
		*l = CloneLogLine(&lines[i])
		var err error
		if l.Attributes, err = objectOrEmpty("attributes", l.Attributes); err != nil {
			return invalid("line %d: %v", i, err)
		}
		switch {
		case !l.Level.Valid():
			return invalid("line %d: level %q is not one of %q", i, l.Level, agl.LogLevels())
		case l.Size() > store.LogLineBytes:
			return invalid("line %d: message and attributes take %d bytes; a line may take %d", i, l.Size(), store.LogLineBytes)
		}
	}
	k, err := keyOf(ctx, "log", map[string]any{"run_id": runID, "lines": kept})
	if err != nil {
		return err
	}
	return s.update(ctx, func(c *change) error {
		if _, err := existingRun(c, runID); err != nil {
			return err
		}
		if len(kept) == 0 {
			return nil
		}
		var added int
		if known, err := c.recall(k, &added); err != nil || known {
			return err
		}
		c.after = func() { s.feed.tell(store.NounLogs, runID) }
		stamped := slices.Clone(kept)
		for i := range stamped {
			if stamped[i].Time == 0 {
				stamped[i].Time = c.now
			}
		}
		if err := c.AppendLogLines(runID, stamped, LogBounds{store.LogLines, store.LogBytes}); err != nil {
			return err
		}
		return c.keep(k, len(stamped))
	})
}

// RunLog implements [store.RunStore].
func (s *Store) RunLog(ctx context.Context, q store.LogQuery) (store.LogPage, error) {
	switch {
	case q.Level != "" && !q.Level.Valid():
		return store.LogPage{}, invalid("level %q is not one of %q", q.Level, agl.LogLevels())
	case q.Limit > store.LogPageLines:
		return store.LogPage{}, invalid("limit %d: must be at most %d; ask for what follows with after", q.Limit, store.LogPageLines)
	case q.After < 0 || q.Before < 0:
		return store.LogPage{}, invalid("after %d and before %d must not be negative", q.After, q.Before)
	}
	if q.Limit <= 0 {
		q.Limit = store.LogPageLines
	}
	q.Text = strings.ToLower(q.Text)
	var out store.LogPage
	err := s.view(ctx, func(r Reader) (err error) {
		if _, err := existingRun(r, q.RunID); err != nil {
			return err
		}
		out, err = r.RunLog(q)
		return err
	})
	if err != nil {
		return store.LogPage{}, err
	}
	out.Dropped = out.First - 1
	if out.Lines == nil {
		out.Lines = []agl.LogLine{}
	}
	return out, nil
}

// SelectLog returns the page of a log for a query. Lines are those that After and
// Before leave, in the order of their positions, the last one first for a query
// of the newest; nothing of them is kept by reference.
func SelectLog(lines iter.Seq[*agl.LogLine], q *store.LogQuery) (page []agl.LogLine, more bool) {
	for l := range lines {
		if !l.Level.AtLeast(q.Level) || q.Text != "" && !strings.Contains(strings.ToLower(l.Message), q.Text) &&
			!bytes.Contains(bytes.ToLower(l.Attributes), []byte(q.Text)) {
			continue
		}
		if more = len(page) == q.Limit; more {
			break
		}
		page = append(page, CloneLogLine(l))
	}
	if q.Newest {
		slices.Reverse(page)
	}
	return page, more
}

// DeleteRun implements [store.RunStore].
func (s *Store) DeleteRun(ctx context.Context, runID string, force bool) error {
	err := s.update(ctx, func(c *change) error {
		run, err := existingRun(c, runID)
		if err != nil {
			return err
		}
		if run.Status == agl.RunRunning && !force {
			return conflict("run %s is running; stop it first, or force it when nothing works on it any more", runID)
		}
		return c.DeleteRun(runID)
	})
	if err == nil {
		s.feed.tell(store.NounRuns, runID)
		s.feed.tell(store.NounLogs, runID)
	}
	return err
}
