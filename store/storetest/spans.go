package storetest

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	agl "agentlightning"
	"agentlightning/store"
)

func (f *fixture) addSpans(spans ...agl.Span) []store.AddedSpan {
	f.Helper()
	got := must(f.AddSpans(f.Context(), spans))(f)
	equal(f, "answers", len(got), len(spans))
	return got
}

func (f *fixture) spans(q store.SpanQuery) store.Page[agl.Span] {
	f.Helper()
	return must(f.QuerySpans(f.Context(), q))(f)
}

// named makes a span that can be told apart.
func named(a *agl.Attempt, id string, sequenceID int64, parent *string, name string) agl.Span {
	s := newSpan(a, sequenceID)
	s.SpanID, s.TraceID, s.ParentID, s.Name = id, "trace-"+id[:1], parent, name
	return s
}

func spanIDs(spans []agl.Span) []string {
	out := make([]string, len(spans))
	for i := range spans {
		out[i] = spans[i].SpanID
	}
	return out
}

// fullSpan has every member, each with what is hard to keep.
const fullSpan = `{"rollout_id":%q,"attempt_id":%q,"sequence_id":7,"trace_id":"t","span_id":"s","parent_id":"p","name":"näme\n",
"status":{"status_code":"ERROR","description":"why","more":[1,1.0]},
"attributes":{"i":1,"f":1.0,"big":123456789012345678901234567890,"s":"x","b":true,"ints":[1,2],"floats":[1.0,2.5],"strings":["a",""],"bools":[true,false],"none":[]},
"events":[{"name":"e","attributes":{"k":-0.0},"timestamp":1.5,"x":{"y":null}},{"name":"f","attributes":{},"timestamp":null}],
"links":[{"context":{"trace_id":"a","span_id":"b","is_remote":true,"trace_state":{"k":"v"}},"attributes":null},
{"context":{"trace_id":"a","span_id":"b","is_remote":false,"trace_state":{},"z":1},"attributes":{"a":"b"},"w":"v"}],
"start_time":5.0,"end_time":null,"context":{"trace_id":"t","span_id":"s","is_remote":false,"trace_state":{}},"parent":null,
"resource":{"attributes":{"service.name":"svc"},"schema_url":"http://x"},"kind":"SpanKind.INTERNAL","free":{"b":1,"a":1.0}}`

func spanTests() []test {
	return []test{
		{"a span comes back to the letter", "", func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{}).Attempt
			var s agl.Span
			f.ok(json.Unmarshal([]byte(fmt.Sprintf(fullSpan, a.RolloutID, a.AttemptID)), &s))
			want := jsonOf(f.T, s)
			got := f.addSpans(s)[0]
			equal(f, "stored", got.Stored, true)
			equal(f, "answer", jsonOf(f.T, got.Span), want)
			page := f.spans(store.SpanQuery{RolloutID: a.RolloutID})
			equal(f, "total", page.Total, 1)
			equal(f, "read again", jsonOf(f.T, page.Items[0]), want)
			if v, _ := page.Items[0].Attributes.Get("i"); v != int64(1) {
				f.Errorf("attribute i = %T %v, want int64 1", v, v)
			}
			if v, _ := page.Items[0].Attributes.Get("f"); v != 1.0 {
				f.Errorf("attribute f = %T %v, want float64 1", v, v)
			}
		}},
		{"attributes that are no number read back as null", "", func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{}).Attempt
			s := newSpan(a, 1)
			s.Attributes = agl.Attributes{{Key: "nan", Value: math.NaN()}, {Key: "list", Value: []float64{1, math.Inf(1)}}}
			equal(f, "stored", f.addSpans(s)[0].Stored, true)
			got := f.spans(store.SpanQuery{RolloutID: a.RolloutID}).Items[0]
			equal(f, "attributes", string(got.Attributes.AppendJSON(nil)), `{"nan":null,"list":[1.0,null]}`)
		}},
		{"the first span starts the attempt", "", func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{}).Attempt
			f.pass(1)
			f.addSpan(a)
			got := f.rollout(a.RolloutID)
			equal(f, "rollout", got.Status, agl.RolloutRunning)
			equal(f, "attempt", got.Attempt.Status, agl.AttemptRunning)
			f.isNow("heartbeat", got.Attempt.LastHeartbeatTime)
			f.pass(1)
			f.addSpan(a)
			f.isNow("second heartbeat", f.rollout(a.RolloutID).Attempt.LastHeartbeatTime)
		}},
		{"a duplicate is dropped and is no heartbeat", "", func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{}).Attempt
			first := f.addSpan(a)
			before := f.rollout(a.RolloutID)
			f.pass(1)
			again := first
			again.Name = "changed"
			got := f.addSpans(again)[0]
			equal(f, "stored", got.Stored, false)
			f.ok(got.Err)
			f.same("rollout", f.rollout(a.RolloutID), before)
			page := f.spans(store.SpanQuery{RolloutID: a.RolloutID})
			equal(f, "total", page.Total, 1)
			equal(f, "name", page.Items[0].Name, first.Name)
		}},
		{"one span id may occur in several attempts", "", func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{}).Attempt
			b := f.startAttempt(a.RolloutID).Attempt
			for _, got := range f.addSpans(named(a, "s", 1, nil, "x"), named(b, "s", 1, nil, "x")) {
				equal(f, "stored", got.Stored, true)
			}
		}},
		{"a mixed batch stores what is new", "", func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{}).Attempt
			old := f.addSpan(a)
			f.pass(1)
			fresh, other := newSpan(a, 2), newSpan(a, 3)
			missing := newSpan(&agl.Attempt{RolloutID: a.RolloutID, AttemptID: "at-missing"}, 4)
			unknown := newSpan(&agl.Attempt{RolloutID: "nonexistent", AttemptID: a.AttemptID}, 5)
			got := f.addSpans(fresh, old, unknown, fresh, missing, other)
			stored := []bool{}
			for _, g := range got {
				stored = append(stored, g.Stored)
			}
			f.same("stored", stored, []bool{true, false, false, false, false, true})
			f.refused(got[2].Err, store.ErrNotFound, "Rollout nonexistent not found")
			f.refused(got[4].Err, store.ErrNotFound, "Attempt at-missing not found for rollout "+a.RolloutID)
			for _, i := range []int{0, 1, 3, 5} {
				f.ok(got[i].Err)
			}
			equal(f, "spans", f.spans(store.SpanQuery{RolloutID: a.RolloutID}).Total, 3)
			f.isNow("heartbeat", f.rollout(a.RolloutID).Attempt.LastHeartbeatTime)
		}},
		{"a batch over several attempts", "", func(f *fixture) {
			a, b := f.claimed(agl.RolloutConfig{}).Attempt, f.claimed(agl.RolloutConfig{}).Attempt
			c := f.startAttempt(b.RolloutID).Attempt
			f.addSpans(newSpan(a, 1), newSpan(b, 1), newSpan(c, 2), newSpan(a, 2))
			f.statuses(a.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
			f.statuses(b.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
			equal(f, "earlier attempt", f.attempt(b.RolloutID, b.AttemptID).Status, agl.AttemptRunning)
			equal(f, "spans", f.spans(store.SpanQuery{RolloutID: a.RolloutID}).Total, 2)
		}},
		{"no spans is nothing", "", func(f *fixture) { f.addSpans() }},
		{"which attempt", "", func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{}).Attempt
			b := f.startAttempt(a.RolloutID).Attempt
			f.addSpans(named(a, "a1", 1, nil, "x"), named(b, "b1", 2, nil, "x"), named(b, "b2", 1, nil, "x"))
			bare := f.enqueue("1")[0].RolloutID
			for _, tt := range []struct {
				name, rollout string
				attempt       *string
				want          []string
			}{
				{"the first", a.RolloutID, &a.AttemptID, []string{"a1"}},
				{"the second", a.RolloutID, &b.AttemptID, []string{"b1", "b2"}},
				{"the latest", a.RolloutID, new(agl.LatestAttempt), []string{"b1", "b2"}},
				{"all", a.RolloutID, nil, []string{"a1", "b1", "b2"}},
				{"an unknown one", a.RolloutID, new("at-x"), nil},
				{"an empty id", a.RolloutID, new(""), nil},
				{"latest without attempts", bare, new(agl.LatestAttempt), nil},
				{"all without attempts", bare, nil, nil},
				{"an unknown rollout", "ro-x", nil, nil},
				{"latest of an unknown rollout", "ro-x", new(agl.LatestAttempt), nil},
				{"an attempt of an unknown rollout", "ro-x", &a.AttemptID, nil},
			} {
				got := f.spans(store.SpanQuery{RolloutID: tt.rollout, AttemptID: tt.attempt})
				sameIDs(f, tt.name, slices.Sorted(slices.Values(spanIDs(got.Items))), tt.want)
				equal(f, tt.name+": total", got.Total, len(tt.want))
			}
		}},
		{"conditions, order and pages", "", spanConditions},
	}
}

func spanConditions(f *fixture) {
	a := f.claimed(agl.RolloutConfig{}).Attempt
	other := f.claimed(agl.RolloutConfig{}).Attempt
	f.addSpans(named(a, "a1", 3, nil, "plan"), named(a, "a2", 1, new("a1"), "plan.step"), named(a, "b1", 2, new(""), ""),
		named(a, "b2", 2, new("a1"), "act"), named(other, "a9", 1, new("a1"), "plan"))
	anyOf := store.Paging{Any: true}
	for _, tt := range []struct {
		name string
		q    store.SpanQuery
		want []string
	}{
		{"trace", store.SpanQuery{TraceID: new("trace-a")}, []string{"a1", "a2"}},
		{"part of a trace", store.SpanQuery{TraceIDContains: new("-b")}, []string{"b1", "b2"}},
		{"span", store.SpanQuery{SpanID: new("b2")}, []string{"b2"}},
		{"part of a span", store.SpanQuery{SpanIDContains: new("1")}, []string{"a1", "b1"}},
		{"parent", store.SpanQuery{ParentID: new("a1")}, []string{"a2", "b2"}},
		{"empty parent", store.SpanQuery{ParentID: new("")}, []string{"b1"}},
		{"part of a parent, null has none", store.SpanQuery{ParentIDContains: new("")}, []string{"a2", "b1", "b2"}},
		{"name", store.SpanQuery{Name: new("plan")}, []string{"a1"}},
		{"empty name", store.SpanQuery{Name: new("")}, []string{"b1"}},
		{"part of a name", store.SpanQuery{NameContains: new("plan")}, []string{"a1", "a2"}},
		{"case counts", store.SpanQuery{NameContains: new("PLAN")}, nil},
		{"percent is no wildcard", store.SpanQuery{NameContains: new("p%n")}, nil},
		{"underscore is no wildcard", store.SpanQuery{NameContains: new("pl_n")}, nil},
		{"two of one field", store.SpanQuery{Name: new("plan"), NameContains: new("step")}, nil},
		{"several", store.SpanQuery{TraceID: new("trace-a"), ParentID: new("a1"), NameContains: new("step")}, []string{"a2"}},
		{"by or", store.SpanQuery{SpanID: new("b1"), NameContains: new("plan"), Paging: anyOf}, []string{"a1", "a2", "b1"}},
		{"by or without a condition", store.SpanQuery{Paging: anyOf}, nil},
		{"by or within an attempt", store.SpanQuery{AttemptID: &other.AttemptID, SpanID: new("a1"), Paging: anyOf}, nil},
		{"by sequence", store.SpanQuery{Paging: store.Paging{SortBy: "sequence_id"}}, []string{"a2", "b1", "b2", "a1"}},
		{"by sequence, down", store.SpanQuery{Paging: store.Paging{SortBy: "sequence_id", Desc: true}}, []string{"a1", "b1", "b2", "a2"}},
		{"by parent", store.SpanQuery{Paging: store.Paging{SortBy: "parent_id"}}, []string{"a1", "b1", "a2", "b2"}},
		{"by parent, down", store.SpanQuery{Paging: store.Paging{SortBy: "parent_id", Desc: true}}, []string{"a2", "b2", "a1", "b1"}},
		{"by end", store.SpanQuery{Paging: store.Paging{SortBy: "end_time"}}, []string{"a1", "a2", "b1", "b2"}},
		{"by name", store.SpanQuery{Paging: store.Paging{SortBy: "name", Desc: true}}, []string{"a2", "a1", "b2", "b1"}},
	} {
		tt.q.RolloutID = a.RolloutID
		got := f.spans(tt.q)
		sameIDs(f, tt.name, spanIDs(got.Items), tt.want)
		equal(f, tt.name+": total", got.Total, len(tt.want))
		for from := range tt.want {
			tt.q.Limit, tt.q.Offset = 2, from
			got = f.spans(tt.q)
			sameIDs(f, fmt.Sprintf("%s: from %d on", tt.name, from), spanIDs(got.Items), tt.want[from:min(from+2, len(tt.want))])
			equal(f, tt.name+": total", got.Total, len(tt.want))
		}
	}
	for _, field := range []string{"kind", "attributes", "status"} {
		_, err := f.QuerySpans(f.Context(), store.SpanQuery{RolloutID: a.RolloutID, Paging: store.Paging{SortBy: field}})
		f.refused(err, store.ErrInvalid, "")
	}
}
