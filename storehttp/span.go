package storehttp

import (
	"context"
	"strconv"

	"agentlightning/store"
)

func appendSpan(s *store.SpanJSON, dst []byte) []byte { return s.AppendJSON(dst) }

func (h *handler) addSpan(c *call) answer {
	buffer := h.buffers.get()
	defer h.buffers.put(buffer)
	text, err := c.read(h.config.MaxBody, *buffer)
	if err != nil {
		return failed(err)
	}
	*buffer = c.raw // which may have grown
	span, ok := store.EncodedSpan{}, false
	if isJSON(c.Header.Get("Content-Type")) {
		span, ok = encodeSpan(text)
	}
	if !ok {
		v, given, err := c.parse(text, true)
		if err != nil {
			return failed(err)
		}
		if given {
			span = v.encodedSpan()
		}
		if !c.valid() {
			return c.invalid()
		}
	}
	return h.once(c, func(ctx context.Context) answer {
		added, err := h.spans.AddEncodedSpans(ctx, []store.EncodedSpan{span})
		switch {
		case err != nil:
			return failed(err)
		case added[0].Err != nil:
			return failed(added[0].Err)
		case !added[0].Stored:
			return created([]byte("null"))
		}
		return created(span.JSON.Wire())
	})
}

// encodedSpan reads a span, the quick way if it can be.
func (v value) encodedSpan() store.EncodedSpan {
	if span, ok := encodeSpan(v.raw); ok {
		return span
	}
	span := spanReader{}.span(v)
	return store.EncodeSpan(&span)
}

// addSpans stores many spans in one request. The answer has an entry for each:
// whether it was stored, and when it was refused, why.
func (h *handler) addSpans(c *call) answer {
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	var spans []store.EncodedSpan
	if v, given := o.need("spans"); given {
		for _, e := range v.elements() {
			spans = append(spans, e.encodedSpan())
		}
	}
	if !c.valid() {
		return c.invalid()
	}
	return h.once(c, func(ctx context.Context) answer {
		added, err := h.spans.AddEncodedSpans(ctx, spans)
		if err != nil {
			return failed(err)
		}
		return created(appendItems(nil, added, func(a *store.SpanOutcome, dst []byte) []byte {
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
			if p.long() {
				return answer{list: &list{p, func(out *listWriter) (int, error) {
					return h.streams.StreamSpans(c.Context(), q, func(s store.SpanJSON) error {
						return out.put(s.AppendJSON(out.next()))
					})
				}}}
			}
			found, err := h.spans.QueryEncodedSpans(c.Context(), q)
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
