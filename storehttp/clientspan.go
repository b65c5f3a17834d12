package storehttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

// AddSpans implements [store.SpanStore]. A server that does not know bulk
// requests gets the spans one by one, so there is no transaction over all of them.
func (c *Client) AddSpans(ctx context.Context, spans []agl.Span) ([]store.AddedSpan, error) {
	if len(spans) == 0 {
		return []store.AddedSpan{}, nil
	}
	if !c.noBulk.Load() {
		added, err := c.addBulk(ctx, spans)
		if !lacksRoute(err) {
			return added, err
		}
		c.noBulk.Store(true)
	}
	out := make([]store.AddedSpan, len(spans))
	for i := range spans {
		out[i].Span = spans[i]
		body := appendSpelled(&spans[i], nil)
		rep, err := c.do(ctx, &request{method: http.MethodPost, path: "/spans", key: newKey(), body: body})
		switch {
		case errors.Is(err, store.ErrNotFound):
			out[i].Err = err
		case err != nil:
			return nil, err
		default:
			out[i].Stored = string(rep.body) != "null"
		}
	}
	return out, nil
}

func (c *Client) addBulk(ctx context.Context, spans []agl.Span) ([]store.AddedSpan, error) {
	body := append(appendItems([]byte(`{"spans":`), spans, appendSpelled), '}')
	var outcomes []struct {
		Stored bool `json:"stored"`
		Status int  `json:"status"`
		Error  *struct {
			Detail string `json:"detail"`
		} `json:"error"`
	}
	if err := c.post(ctx, "/spans/batch", newKey(), body, &outcomes); err != nil {
		return nil, err
	}
	if len(outcomes) != len(spans) {
		return nil, fmt.Errorf("the server answers for %d of %d spans", len(outcomes), len(spans))
	}
	out := make([]store.AddedSpan, len(spans))
	for i, o := range outcomes {
		out[i] = store.AddedSpan{Span: spans[i], Stored: o.Stored}
		if o.Error != nil {
			kind := store.ErrInvalid
			if o.Status == http.StatusNotFound {
				kind = store.ErrNotFound
			}
			out[i].Err = &store.Error{Kind: kind, Message: o.Error.Detail}
		}
	}
	return out, nil
}

// NextSequenceIDs implements [store.SpanStore].
func (c *Client) NextSequenceIDs(ctx context.Context, attempts []store.Attempted) ([]int64, error) {
	if len(attempts) == 0 {
		return []int64{}, nil
	}
	if len(attempts) > 1 && !c.noBulk.Load() {
		body := appendItems([]byte(`{"attempts":`), attempts, func(a *store.Attempted, dst []byte) []byte {
			return appendAttemptedID(dst, *a)
		})
		var w struct {
			IDs []int64 `json:"sequence_ids"`
		}
		err := c.post(ctx, "/spans/next/batch", newKey(), append(body, '}'), &w)
		switch {
		case err == nil && len(w.IDs) != len(attempts):
			return nil, fmt.Errorf("the server issues %d sequence ids instead of %d", len(w.IDs), len(attempts))
		case !lacksRoute(err):
			return w.IDs, err
		}
		c.noBulk.Store(true)
	}
	out := make([]int64, len(attempts))
	for i, a := range attempts {
		var w struct {
			ID int64 `json:"sequence_id"`
		}
		if err := c.post(ctx, "/spans/next", newKey(), appendAttemptedID(nil, a), &w); err != nil {
			return nil, err
		}
		out[i] = w.ID
	}
	return out, nil
}

func appendAttemptedID(dst []byte, a store.Attempted) []byte {
	dst = jsonx.AppendString(append(dst, `{"rollout_id":`...), a.RolloutID)
	return append(jsonx.AppendString(append(dst, `,"attempt_id":`...), a.AttemptID), '}')
}

// QuerySpans implements [store.SpanStore].
func (c *Client) QuerySpans(ctx context.Context, q store.SpanQuery) (store.Page[agl.Span], error) {
	b := newBody()
	b.string("rollout_id", q.RolloutID)
	b.filter("attempt_id", q.AttemptID)
	b.filter("trace_id", q.TraceID)
	b.filter("trace_id_contains", q.TraceIDContains)
	b.filter("span_id", q.SpanID)
	b.filter("span_id_contains", q.SpanIDContains)
	b.filter("parent_id", q.ParentID)
	b.filter("parent_id_contains", q.ParentIDContains)
	b.filter("name", q.Name)
	b.filter("name_contains", q.NameContains)
	b.paging(q.Paging)
	page, err := queryPage[json.RawMessage](ctx, c, "/spans/search", b)
	if err != nil {
		return store.Page[agl.Span]{}, err
	}
	out := store.Page[agl.Span]{Items: make([]agl.Span, len(page.Items)), Total: page.Total}
	for i, raw := range page.Items {
		var f form
		out.Items[i] = spanReader{nullIsNaN: true}.span(value{&f, raw, bodyPlace})
		if len(f.problems) > 0 {
			return store.Page[agl.Span]{}, fmt.Errorf("span %d of the answer: %s", i, f.appendJSON(nil))
		}
	}
	return out, nil
}
