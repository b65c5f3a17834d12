package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/semconv"
	"agentlightning/store"
)

// What a span has that holds the answer of a model, whatever its name.
const (
	firstRole    = semconv.GenAICompletion + ".0.role"
	firstContent = semconv.GenAICompletion + ".0.content"
)

// OutlineSpans implements [store.Browser].
func (s *Store) OutlineSpans(ctx context.Context, at store.Attempted, p store.Paging) (store.Page[store.SpanOutline], error) {
	var page store.Page[store.SpanOutline]
	switch {
	case p.Limit < 1 || p.Limit > store.OutlineLimit:
		return page, invalid("Limit must be from 1 to %d; ask for the next page with offset", store.OutlineLimit)
	case p.Offset < 0:
		return page, invalid("Offset must be greater than or equal to 0")
	}
	if err := s.checkHealth(ctx); err != nil {
		return page, err
	}
	q := store.SpanQuery{RolloutID: at.RolloutID, AttemptID: &at.AttemptID}
	q.Paging = store.Paging{SortBy: "sequence_id", Limit: p.Limit, Offset: p.Offset}
	var found store.Page[store.SpanJSON]
	err := s.view(ctx, func(r Reader) (err error) {
		found, err = r.QuerySpans(q)
		return err
	})
	if err != nil {
		return page, err
	}
	// Out of the transaction: the texts are whole.
	page.Total = found.Total
	page.Items = make([]store.SpanOutline, len(found.Items))
	for i, span := range found.Items {
		if i%1024 == 0 && ctx.Err() != nil {
			return store.Page[store.SpanOutline]{}, ctx.Err()
		}
		if page.Items[i], err = outlineOf(span); err != nil {
			return store.Page[store.SpanOutline]{}, err
		}
	}
	return page, nil
}

// SpansByID implements [store.Browser].
func (s *Store) SpansByID(ctx context.Context, at store.Attempted, spanIDs []string) ([]store.SpanJSON, error) {
	if len(spanIDs) > store.SpansByIDLimit {
		return nil, invalid("span_id: at most %d spans can be asked for at a time, not %d", store.SpansByIDLimit, len(spanIDs))
	}
	if err := s.checkHealth(ctx); err != nil {
		return nil, err
	}
	out := make([]store.SpanJSON, 0, len(spanIDs))
	err := s.view(ctx, func(r Reader) error {
		out = out[:0]
		for i := range spanIDs {
			page, err := r.QuerySpans(store.SpanQuery{RolloutID: at.RolloutID, AttemptID: &at.AttemptID, SpanID: &spanIDs[i]})
			if err != nil {
				return err
			}
			out = append(out, page.Items...)
		}
		return nil
	})
	return out, err
}

// outlineOf sums a span up. Most bytes of large spans are messages and token
// ids, which are stepped over.
func outlineOf(span store.SpanJSON) (store.SpanOutline, error) {
	o := store.SpanOutline{Kind: store.KindOther}
	var wrong error
	text := func(raw jsonx.Raw) string {
		s, err := jsonx.Text(raw)
		wrong = cmp.Or(wrong, err)
		return s
	}
	err := eachMember(jsonx.Raw(span), func(name []byte, value jsonx.Raw) {
		switch string(name) {
		case "sequence_id":
			o.SequenceID, _ = strconv.ParseInt(string(value), 10, 64)
		case "span_id":
			o.SpanID = text(value)
		case "trace_id":
			o.TraceID = text(value)
		case "parent_id":
			if jsonx.KindOf(value) == jsonx.String {
				o.ParentID = new(text(value))
			}
		case "name":
			o.Name = text(value)
		case "status":
			wrong = cmp.Or(wrong, eachMember(value, func(name []byte, value jsonx.Raw) {
				if string(name) == "status_code" {
					o.Status = text(value)
				}
			}))
		case "start_time":
			o.StartTime = timeOf(value)
		case "end_time":
			o.EndTime = timeOf(value)
		case "events":
			o.Events = marksOf(value)
		case "attributes":
			wrong = cmp.Or(wrong, outlineAttributes(&o, value))
		}
	})
	if err = cmp.Or(err, wrong); err != nil {
		return o, fmt.Errorf("stored span: %w", err)
	}
	if bytes.Contains(span, rewardMark) || o.Name == semconv.SpanRescore || o.Name == semconv.SpanAnnotation || bytes.Contains(span, agentOpsMark) {
		outlineRewards(&o, span)
	}
	o.Kind = kindOf(&o)
	return o, nil
}

// eachMember calls f with the members of an object.
func eachMember(object jsonx.Raw, f func(name []byte, value jsonx.Raw)) error {
	usual := jsonx.Walk(object, func(name []byte, value jsonx.Raw) bool {
		f(name, value)
		return true
	})
	if usual {
		return nil
	}
	members, err := jsonx.Members(object) // a name with escapes
	for _, m := range members {
		f([]byte(m.Key), m.Value)
	}
	return err
}

// kindOf tells what a span is that is no model call.
func kindOf(o *store.SpanOutline) store.SpanKind {
	switch {
	case o.Kind == store.KindCall || o.Name == semconv.SpanModelCall:
		return store.KindCall
	case len(o.Rewards) > 0:
		return store.KindReward
	case o.Name == semconv.SpanMessage:
		return store.KindMessage
	case o.Name == semconv.SpanException:
		return store.KindException
	}
	return store.KindOther
}

// outlineAttributes looks for answers of models, and for what they cost.
func outlineAttributes(o *store.SpanOutline, attributes jsonx.Raw) error {
	var input, prompt, output, completion int64
	err := eachMember(attributes, func(name []byte, value jsonx.Raw) {
		switch string(name) {
		case firstRole, firstContent:
			o.Kind = store.KindCall
		case semconv.GenAIInputTokens:
			input = count(value)
		case "gen_ai.usage.prompt_tokens":
			prompt = count(value)
		case semconv.GenAIOutputTokens:
			output = count(value)
		case "gen_ai.usage.completion_tokens":
			completion = count(value)
		}
	})
	o.PromptTokens, o.AnswerTokens = cmp.Or(input, prompt), cmp.Or(output, completion)
	return err
}

func count(value jsonx.Raw) int64 {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// outlineRewards reads the rewards of a span; what does not add up is none.
func outlineRewards(o *store.SpanOutline, span store.SpanJSON) {
	s, err := span.Span()
	if err != nil {
		return
	}
	set, named := agl.RewardSetOf(&s)
	if named { // read as if its rewards were the agent's
		s = agl.SpanInRewardSet(&s, set)
	}
	value, err := agl.RewardValue(&s)
	if err != nil || value == nil {
		return
	}
	o.RewardSet = set
	if o.Rewards, _ = agl.Rewards(&s); len(o.Rewards) == 0 {
		o.Rewards = []agl.RewardDimension{{Name: "primary", Value: *value}}
	}
}

func marksOf(events jsonx.Raw) []store.EventMark {
	list, err := jsonx.Elements(events)
	if err != nil || len(list) == 0 {
		return nil
	}
	out := make([]store.EventMark, 0, min(len(list), store.OutlineEvents))
	for _, e := range list[:cap(out)] {
		members, err := jsonx.Members(e)
		if err != nil {
			continue
		}
		name, err := jsonx.Text(jsonx.Get(members, "name"))
		if err != nil {
			continue
		}
		out = append(out, store.EventMark{Name: name, Timestamp: timeOf(jsonx.Get(members, "timestamp"))})
	}
	return out
}

func timeOf(raw jsonx.Raw) *float64 {
	t, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.IsNaN(t) || math.IsInf(t, 0) {
		return nil
	}
	return &t
}
