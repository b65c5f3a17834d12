package storehttp

import (
	"context"
	"strconv"

	agl "agentlightning"
	"agentlightning/store"
)

func appendSpan(s *agl.Span, dst []byte) []byte { return s.AppendJSON(dst) }

func (h *handler) addSpan(c *call) answer {
	v, given, err := c.body(h.config.MaxBody, true)
	if err != nil {
		return failed(err)
	}
	var span agl.Span
	if given {
		span = spanReader{}.span(v)
	}
	if !c.valid() {
		return c.invalid()
	}
	return h.once(c, func(ctx context.Context) answer {
		added, err := h.store.AddSpans(ctx, []agl.Span{span})
		switch {
		case err != nil:
			return failed(err)
		case added[0].Err != nil:
			return failed(added[0].Err)
		case !added[0].Stored:
			return created([]byte("null"))
		}
		return created(added[0].Span.AppendJSON(make([]byte, 0, len(c.raw)+len(c.raw)/8)))
	})
}

// addSpans stores many spans in one request. The answer has an entry for each:
// whether it was stored, and when it was refused, why.
func (h *handler) addSpans(c *call) answer {
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	var spans []agl.Span
	if v, given := o.need("spans"); given {
		for _, e := range v.elements() {
			spans = append(spans, spanReader{}.span(e))
		}
	}
	if !c.valid() {
		return c.invalid()
	}
	return h.once(c, func(ctx context.Context) answer {
		added, err := h.store.AddSpans(ctx, spans)
		if err != nil {
			return failed(err)
		}
		return created(appendItems(nil, added, func(a *store.AddedSpan, dst []byte) []byte {
			dst = append(dst, `{"stored":`...)
			dst = strconv.AppendBool(dst, a.Stored && a.Err == nil)
			if a.Err != nil {
				status, body := failure(a.Err, "")
				dst = append(dst, `,"status":`...)
				dst = strconv.AppendInt(dst, int64(status), 10)
				dst = append(append(dst, `,"error":`...), body...)
			}
			return append(dst, '}')
		}))
	})
}

func (h *handler) listSpans(c *call) answer { return h.searchSpans(c) }

func (h *handler) searchSpans(c *call) answer {
	return h.search(c, nil, func(o object) func() answer {
		q := store.SpanQuery{
			RolloutID: o.needString("rollout_id"), AttemptID: o.stringOrNull("attempt_id"),
			TraceID: o.stringOrNull("trace_id"), TraceIDContains: o.stringOrNull("trace_id_contains"),
			SpanID: o.stringOrNull("span_id"), SpanIDContains: o.stringOrNull("span_id_contains"),
			ParentID: o.stringOrNull("parent_id"), ParentIDContains: o.stringOrNull("parent_id_contains"),
			Name: o.stringOrNull("name"), NameContains: o.stringOrNull("name_contains"),
		}
		either := o.any() // declared before the paging here, after it elsewhere
		p := o.page("sequence_id")
		q.Paging, q.Any = p.Paging, either
		return func() answer {
			if err := p.check(spanFields); err != nil {
				return failed(err)
			}
			found, err := h.store.QuerySpans(c.Context(), q)
			if err != nil {
				return failed(err)
			}
			return ok(appendPage(p, found, appendSpan))
		}
	})
}

func (h *handler) nextSequenceID(c *call) answer {
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	attempt := o.attempted()
	if !c.valid() {
		return c.invalid()
	}
	return h.once(c, func(ctx context.Context) answer {
		ids, err := h.store.NextSequenceIDs(ctx, []store.Attempted{attempt})
		if err != nil {
			return failed(err)
		}
		return ok(append(strconv.AppendInt([]byte(`{"sequence_id":`), ids[0], 10), '}'))
	})
}

func (o object) attempted() store.Attempted {
	return store.Attempted{RolloutID: o.needString("rollout_id"), AttemptID: o.needString("attempt_id")}
}

// nextSequenceIDs issues many numbers in one request.
func (h *handler) nextSequenceIDs(c *call) answer {
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	var attempts []store.Attempted
	if v, given := o.need("attempts"); given {
		for _, e := range v.elements() {
			if a, isObject := e.object("model_attributes_type"); isObject {
				attempts = append(attempts, a.attempted())
			}
		}
	}
	if !c.valid() {
		return c.invalid()
	}
	return h.once(c, func(ctx context.Context) answer {
		ids, err := h.store.NextSequenceIDs(ctx, attempts)
		if err != nil {
			return failed(err)
		}
		dst := appendItems([]byte(`{"sequence_ids":`), ids, func(id *int64, dst []byte) []byte {
			return strconv.AppendInt(dst, *id, 10)
		})
		return ok(append(dst, '}'))
	})
}
