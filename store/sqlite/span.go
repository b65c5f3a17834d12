package sqlite

import (
	"fmt"

	agl "agentlightning"
	"agentlightning/store"
)

func spanSelection(q *store.SpanQuery) selection {
	var f filter
	f.scope(ofRollout, q.RolloutID)
	switch {
	case q.AttemptID == nil:
	case *q.AttemptID == agl.LatestAttempt:
		f.scope("attempt_id = "+latestAttemptID, q.RolloutID)
	default:
		f.scope("attempt_id = ?", *q.AttemptID)
	}
	f.equal("trace_id", q.TraceID)
	f.contains("trace_id", q.TraceIDContains)
	f.equal("span_id", q.SpanID)
	f.contains("span_id", q.SpanIDContains)
	f.equal("parent_id", q.ParentID)
	f.contains("parent_id", q.ParentIDContains)
	f.equal("name", q.Name)
	f.contains("name", q.NameContains)
	f.noneUnderOr = true
	return f.selection("spans", q.Paging, spanSorts)
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
