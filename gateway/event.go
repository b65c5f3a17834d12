package gateway

import (
	"net/http"
	"strings"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/semconv"
	"agentlightning/store"
)

// event is a span as the protocol has it.
type event struct {
	kind      string
	attempt   string
	timestamp float64
	data      jsonx.Raw
}

func (e *event) appendJSON(dst []byte, rolloutID string) []byte {
	dst = jsonx.AppendString(append(dst, `{"event_type":`...), e.kind)
	dst = jsonx.AppendString(append(dst, `,"rollout_id":`...), rolloutID)
	dst = jsonx.AppendString(append(dst, `,"attempt_id":`...), e.attempt)
	dst = jsonx.AppendFloat(append(dst, `,"timestamp":`...), e.timestamp)
	return append(append(append(dst, `,"data":`...), e.data...), '}')
}

// attributes are built in order.
type attributes agl.Attributes

func (a *attributes) add(key string, value any) {
	*a = append(*a, agl.Attribute{Key: key, Value: value})
}

// text adds a member that is text.
func (a *attributes) text(key string, raw jsonx.Raw) {
	if jsonx.KindOf(raw) != jsonx.String {
		return
	}
	if s, err := jsonx.Text(raw); err == nil {
		a.add(key, s)
	}
}

// spanOf returns the span of an event that somebody posts; data is an object.
// Rewards and model requests get the names and attributes by which readers of
// spans know them.
func spanOf(kind string, data jsonx.Raw) agl.SpanCore {
	core := agl.SpanCore{Name: semconv.SpanEvent + kind, Status: agl.TraceStatus{StatusCode: agl.StatusOK}}
	var a attributes
	switch kind {
	case eventReward:
		core.Name = semconv.SpanAnnotation
		members, err := jsonx.Members(data)
		if v := jsonx.Get(members, "value"); err == nil && jsonx.KindOf(v) == jsonx.Number {
			if f, ok := finite(v); ok {
				a.add(semconv.RewardName(0), semconv.PrimaryReward)
				a.add(semconv.RewardValue(0), f)
			}
		}
	case eventModelRequest:
		core.Name = semconv.SpanModelCall
		var routes string
		data, routes = takeRoutes(data)
		a = attributesOfRequest(data)
		if routes != "" {
			a.add(semconv.RoutedExperts, routes)
		}
	}
	a.add(semconv.EventData, string(data))
	core.Attributes = agl.Attributes(a)
	return core
}

// eventOf returns the event of a span; ok is false for spans that are none.
func eventOf(s *agl.Span) (e event, ok bool) {
	e = event{attempt: s.AttemptID}
	switch {
	case s.EndTime != nil:
		e.timestamp = *s.EndTime
	case s.StartTime != nil:
		e.timestamp = *s.StartTime
	}
	kind, other := strings.CutPrefix(s.Name, semconv.SpanEvent)
	text, posted := s.Attributes.String(semconv.EventData)
	if posted {
		e.data = jsonx.Raw(text)
	}
	switch {
	case other && posted:
		e.kind = kind
	case other:
		e.kind, e.data = kind, jsonx.Raw("{}")
	case s.Name == semconv.SpanModelCall && posted:
		e.kind = eventModelRequest
		if routes, kept := s.Attributes.String(semconv.RoutedExperts); kept {
			e.data = withRoutes(e.data, routes)
		}
	case s.Name == semconv.SpanModelCall:
		if _, answered := s.Attributes.Get(semconv.CallStatus); !answered {
			return e, false // no backend answered
		}
		e.kind, e.data = eventModelRequest, requestOf(s)
	case s.Name == semconv.SpanAnnotation && posted:
		e.kind = eventReward
	default:
		value, err := agl.RewardValue(s)
		if err != nil || value == nil {
			return e, false
		}
		e.kind, e.data = eventReward, append(jsonx.AppendFloat([]byte(`{"value":`), *value), '}')
	}
	return e, true
}

func (h *handler) postEvent(w http.ResponseWriter, r *http.Request, p params) {
	var f form
	body, ok := h.read(w, r, &f)
	if !ok {
		return
	}
	kind, data := eventCreate(body)
	if h.refused(w, &f) {
		return
	}
	span := spanOf(kind, data).Span(p.rollout, p.attempt, 0, 0)
	stored, err := h.store.AddEvent(r.Context(), span)
	if err != nil {
		h.failOf(w, r, p.rollout, err)
		return
	}
	e, ok := eventOf(&stored)
	if !ok {
		e = event{attempt: stored.AttemptID}
	}
	e.kind, e.data = kind, data
	writeJSON(w, http.StatusOK, e.appendJSON(nil, p.rollout))
}

func eventCreate(body field) (kind string, data jsonx.Raw) {
	o, ok := body.model()
	if !ok {
		return "", nil
	}
	if v, ok := o.need("event_type"); ok {
		kind = v.text()
	}
	data = jsonx.Raw("{}")
	if v := o.get("data"); v.raw != nil {
		if d, ok := v.dict(); ok {
			data = jsonx.AppendNormal(nil, d.raw)
		}
	}
	return kind, data
}

func (h *handler) listEvents(w http.ResponseWriter, r *http.Request, p params) {
	var f form
	q := query{&f, r.URL.Query()}
	routes := q.boolean("include_routed_experts", true)
	if h.refused(w, &f) {
		return
	}
	ro, err := h.store.Rollout(r.Context(), p.rollout)
	if err != nil {
		h.failOf(w, r, p.rollout, err)
		return
	}
	attempt := lastAttempt(&ro)
	page, err := h.store.QuerySpans(r.Context(), store.SpanQuery{RolloutID: p.rollout, AttemptID: &attempt})
	if err != nil {
		h.fail(w, r, err)
		return
	}
	wanted, filtered := q.text("event_type")
	events := make([]event, 0, len(page.Items))
	for i := range page.Items {
		if e, ok := eventOf(&page.Items[i]); ok && (!filtered || e.kind == wanted) {
			events = append(events, e)
		}
	}
	if format, _ := q.text("format"); format == "triplet" {
		events = triplets(events)
	}
	out := []byte{'['}
	for i := range events {
		if i > 0 {
			out = append(out, ',')
		}
		if e := &events[i]; !routes && e.kind == eventModelRequest {
			e.data = withoutRoutes(e.data)
		}
		out = events[i].appendJSON(out, p.rollout)
	}
	writeJSON(w, http.StatusOK, append(out, ']'))
}
