package sqlite

import (
	"fmt"
	"strings"

	agl "agentlightning"
	"agentlightning/store"
)

func spanSelection(q *store.SpanQuery) selection {
	// The index knows nothing that spans are sorted by, and has those of an
	// attempt in the order of their random ids. Pages therefore read the table in
	// its own order, where spans of an attempt are neighbours.
	owned := ofRollout
	args := []any{q.RolloutID}
	switch {
	case q.AttemptID == nil:
	case *q.AttemptID == agl.LatestAttempt:
		owned, args = owned+" AND attempt_id = "+latestAttemptID, append(args, q.RolloutID)
	default:
		owned, args = owned+" AND attempt_id = ?", append(args, *q.AttemptID)
	}
	f := filter{scopes: []string{owned}, scopeArgs: args}
	f.equal("trace_id", q.TraceID)
	f.contains("trace_id", q.TraceIDContains)
	f.equal("span_id", q.SpanID)
	f.contains("span_id", q.SpanIDContains)
	f.equal("parent_id", q.ParentID)
	f.contains("parent_id", q.ParentIDContains)
	f.equal("name", q.Name)
	f.contains("name", q.NameContains)
	f.noneUnderOr = true
	s := f.selection("spans", q.Paging, spanSorts)
	s.keys = strings.Replace(s.from, owned, "seq IN (SELECT seq FROM spans WHERE "+owned+")", 1)
	return s
}

func (r reader) QuerySpans(q store.SpanQuery) (store.Page[store.SpanJSON], error) {
	return fetch(r.c, spanSelection(&q), "body",
		func(row row) (store.SpanJSON, error) { return store.SpanJSON(row.text(0)), nil })
}

func (t *tx) InsertSpans(spans []store.EncodedSpan) ([]bool, error) {
	t.write()
	stored := make([]bool, len(spans))
	for i := range spans {
		s := &spans[i]
		rollout, err := t.seqOf(s.RolloutID)
		if err != nil {
			return nil, fmt.Errorf("insert span %s: %w", s.SpanID, err)
		}
		n, err := t.c.exec(insertSpan, rollout, s.AttemptID, s.SpanID, s.SequenceID, s.TraceID, orNull(s.ParentID),
			s.Name, orNull(s.StartTime), orNull(s.EndTime), string(s.JSON))
		if err != nil {
			return nil, fmt.Errorf("insert span %s: %w", s.SpanID, err)
		}
		if stored[i] = n > 0; stored[i] {
			t.spansChanged(spanChange{rolloutID: s.RolloutID, added: new(*s)}) // the list is the caller's
		}
	}
	return stored, nil
}
