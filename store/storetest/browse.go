package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	agl "agentlightning"
	"agentlightning/semconv"
	"agentlightning/store"
)

func (f *fixture) browse(q store.BrowseQuery) store.BrowsePage {
	f.Helper()
	return must(f.Store.(store.Browser).BrowseRollouts(f.Context(), q))(f)
}

func browsedIDs(items []store.Browsed) []string {
	out := make([]string, len(items))
	for i := range items {
		out[i] = items[i].RolloutID
	}
	return out
}

// recorded stores a model call and a reward for an attempt.
func (f *fixture) recorded(a *agl.Attempt, model, problem string, tokens int64, reward *float64) {
	f.Helper()
	call := agl.SpanCore{Name: semconv.SpanModelCall, Attributes: agl.Attributes{
		{Key: "gen_ai.request.model", Value: model}, {Key: "gen_ai.usage.output_tokens", Value: tokens},
	}}
	if problem != "" {
		call.Attributes = append(call.Attributes, agl.Attribute{Key: semconv.CallProblem, Value: problem})
	}
	f.addSpans(call.Span(a.RolloutID, a.AttemptID, 1, 1))
	if reward != nil {
		note := agl.SpanCore{Name: semconv.SpanAnnotation, Attributes: agl.Attributes{
			{Key: semconv.RewardName(0), Value: "primary"},
			{Key: semconv.RewardValue(0), Value: *reward},
			{Key: semconv.RewardName(1), Value: "form"},
			{Key: semconv.RewardValue(1), Value: 0.5},
		}}
		f.addSpans(note.Span(a.RolloutID, a.AttemptID, 2, 2))
	}
}

// searchable stores five rollouts that differ in everything people search by.
func (f *fixture) searchable() []string {
	f.Helper()
	f.createRun("run-a")
	var out []string
	for i, r := range []struct{ input, metadata string }{
		{`{"q":"Add apples"}`, `{"agl.run_id":"run-a","agl.step":1,"agl.group":"7"}`},
		{`{"q":"add PEARS"}`, `{"agl.run_id":"run-a","agl.step":2,"agl.group":"7"}`},
		{`"share plums"`, `{"agl.run_id":"run-a","agl.step":10}`},
		{`"share"`, `{"tag":"Blue"}`},
		{`null`, `{}`},
	} {
		out = append(out, must(f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{{
			Input: json.RawMessage(r.input), Metadata: json.RawMessage(r.metadata),
			Mode: []agl.Mode{agl.ModeTrain, agl.ModeVal, "", agl.ModeTrain, agl.ModeTest}[i],
		}}))(f)[0].RolloutID)
		f.pass(1)
	}
	for i, c := range []struct {
		worker, model, problem string
		tokens                 int64
		reward                 *float64
		end                    agl.AttemptStatus
	}{
		{"w1", "Small", "", 5, new(1.0), agl.AttemptSucceeded},
		{"w2", "large", "no_token_ids", 50, new(0.25), agl.AttemptSucceeded},
		{"w1", "small", "", 500, nil, agl.AttemptFailed},
	} {
		got := must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 1, WorkerID: &c.worker}))(f)[0]
		equal(f, "claimed", got.RolloutID, out[i])
		f.recorded(got.Attempt, c.model, c.problem, c.tokens, c.reward)
		f.pass(float64(1 + i))
		f.setAttempt(got.Attempt, c.end)
	}
	return out
}

// outlined stores an attempt with a span of each kind, out of their order.
func (f *fixture) outlined() (agl.Attempt, []agl.Span) {
	f.Helper()
	f.enqueue("1")
	claimed := must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 1}))(f)[0]
	a := *claimed.Attempt
	built := func(id string, sequence int64, name string, attributes agl.Attributes) agl.Span {
		core := agl.SpanCore{Name: name, Attributes: attributes}
		s := core.Span(a.RolloutID, a.AttemptID, sequence, 1)
		s.SpanID, s.TraceID, s.StartTime, s.EndTime = id, "trace", new(1.0), nil
		s.Status = agl.TraceStatus{StatusCode: agl.StatusUnset}
		return s
	}
	spans := []agl.Span{
		built("call", 1, semconv.SpanModelCall, agl.Attributes{
			{Key: "gen_ai.usage.input_tokens", Value: int64(7)}, {Key: "gen_ai.usage.output_tokens", Value: int64(3)},
		}),
		built("other", 2, "a \"tool\"\n", agl.Attributes{{Key: "an \"odd\" name", Value: "x"}}),
		built("foreign", 3, "chat", agl.Attributes{
			{Key: "an \"odd\" name", Value: "x"},
			{Key: semconv.CompletionKey(0, "role"), Value: "assistant"},
			{Key: "gen_ai.usage.prompt_tokens", Value: int64(8)},
			{Key: "gen_ai.usage.completion_tokens", Value: int64(4)},
		}),
		built("said", 4, semconv.SpanMessage, nil),
		built("reward", 5, semconv.SpanAnnotation, agl.Attributes{
			{Key: semconv.RewardName(0), Value: "primary"},
			{Key: semconv.RewardValue(0), Value: 0.5},
			{Key: semconv.RewardName(1), Value: "form"},
			{Key: semconv.RewardValue(1), Value: 1.0},
		}),
	}
	spans = append(spans, built("rescored", 6, semconv.SpanRescore, agl.Attributes{
		{Key: semconv.RescoreSet, Value: "strict"},
		{Key: semconv.RescoreReward + ".0.name", Value: "primary"},
		{Key: semconv.RescoreReward + ".0.value", Value: 0.25},
	}))
	spans[0].EndTime, spans[0].Status.StatusCode = new(1.5), agl.StatusOK
	spans[1].ParentID, spans[1].Status.StatusCode = new("call"), agl.StatusError
	spans[1].Events = []agl.Event{{Name: "slow", Timestamp: new(2.5)}, {Name: "when"}}
	f.addSpans(spans[3], spans[0], spans[5], spans[1], spans[4], spans[2])
	return a, spans
}

func browseTests() []test {
	return []test{
		{"conditions", Browse, func(f *fixture) {
			all := f.searchable()
			start := func(i int) *float64 { return new(f.rollout(all[i]).StartTime) }
			for _, tt := range []struct {
				name string
				q    store.BrowseQuery
				want []int
			}{
				{"nothing", store.BrowseQuery{}, []int{0, 1, 2, 3, 4}},
				{"status", store.BrowseQuery{StatusIn: []agl.RolloutStatus{agl.RolloutFailed, agl.RolloutQueuing}}, []int{2, 3, 4}},
				{"no status", store.BrowseQuery{StatusIn: []agl.RolloutStatus{}}, nil},
				{"modes, none too", store.BrowseQuery{ModeIn: []agl.Mode{agl.ModeVal, ""}}, []int{1, 2}},
				{"id", store.BrowseQuery{IDContains: all[3][3:]}, []int{3}},
				{"part of all ids", store.BrowseQuery{IDContains: "RO-"}, []int{0, 1, 2, 3, 4}},
				{"text, whatever its case", store.BrowseQuery{Text: "ADD"}, []int{0, 1}},
				{"no wildcards", store.BrowseQuery{Text: "%"}, nil},
				{"tag", store.BrowseQuery{Tag: "blue"}, []int{3}},
				{"run", store.BrowseQuery{RunID: "run-a"}, []int{0, 1, 2}},
				{"unknown run", store.BrowseQuery{RunID: "run-b"}, nil},
				{"step", store.BrowseQuery{RunID: "run-a", Step: new(int64(2))}, []int{1}},
				{"group", store.BrowseQuery{RunID: "run-a", Group: "7"}, []int{0, 1}},
				{"worker", store.BrowseQuery{WorkerID: "w1"}, []int{0, 2}},
				{"attempt status", store.BrowseQuery{AttemptStatusIn: []agl.AttemptStatus{agl.AttemptSucceeded}}, []int{0, 1}},
				{"from", store.BrowseQuery{From: start(3)}, []int{3, 4}},
				{"to", store.BrowseQuery{To: start(1)}, []int{0, 1}},
				{"both", store.BrowseQuery{From: start(1), To: start(1)}, []int{1}},
				{"rewarded", store.BrowseQuery{Rewarded: new(true)}, []int{0, 1}},
				{"not rewarded", store.BrowseQuery{Rewarded: new(false)}, []int{2, 3, 4}},
				{"reward from", store.BrowseQuery{RewardMin: new(0.5)}, []int{0}},
				{"reward to", store.BrowseQuery{RewardMax: new(0.5)}, []int{1}},
				{"model", store.BrowseQuery{Model: "SMALL"}, []int{0, 2}},
				{"problem", store.BrowseQuery{Problem: "no_token_ids"}, []int{1}},
				{"any problem", store.BrowseQuery{Problem: "any"}, []int{1}},
				{"another problem", store.BrowseQuery{Problem: "truncated"}, nil},
				{"together", store.BrowseQuery{Text: "add", Model: "large"}, []int{1}},
			} {
				var want []string
				for _, i := range tt.want {
					want = append(want, all[i])
				}
				got := f.browse(tt.q)
				sameIDs(f, tt.name, browsedIDs(got.Items), want)
				equal(f, tt.name+": total", got.Total, len(want))
				equal(f, tt.name+": complete", got.Complete, true)
				slices.Reverse(want)
				tt.q.Desc = true
				sameIDs(f, tt.name+", newest first", browsedIDs(f.browse(tt.q).Items), want)
			}
		}},
		{"sorting puts what lacks the value last", Browse, func(f *fixture) {
			all := f.searchable()
			for _, tt := range []struct {
				by        string
				asc, desc []int
			}{
				{"start_time", []int{0, 1, 2, 3, 4}, []int{4, 3, 2, 1, 0}},
				{"reward", []int{1, 0}, []int{0, 1}},
				{"tokens", []int{4, 3, 0, 1, 2}, []int{2, 1, 0, 4, 3}},
				{"problem", []int{1}, []int{1}},
				{"model", []int{0, 1, 2}, []int{2, 1, 0}},
				{"step", []int{0, 1, 2}, []int{2, 1, 0}},
				{"group", []int{1, 0}, []int{1, 0}},
				{"mode", []int{4, 3, 0, 1, 2}, []int{1, 3, 0, 4, 2}},
				{"worker_id", []int{2, 0, 1}, []int{1, 2, 0}},
				{"attempt_status", []int{2, 1, 0}, []int{1, 0, 2}},
			} {
				pick := func(at []int) (out []string) {
					for _, i := range at {
						out = append(out, all[i])
					}
					return out
				}
				got := browsedIDs(f.browse(store.BrowseQuery{Paging: store.Paging{SortBy: tt.by}}).Items)
				sameIDs(f, "by "+tt.by, got[:len(tt.asc)], pick(tt.asc))
				page := f.browse(store.BrowseQuery{Paging: store.Paging{SortBy: tt.by, Desc: true, Limit: len(tt.desc) - 1, Offset: min(1, len(tt.desc)-1)}})
				if len(tt.desc) > 1 {
					sameIDs(f, "part by "+tt.by+", descending", browsedIDs(page.Items), pick(tt.desc[1:]))
				}
				equal(f, "total", page.Total, len(all))
			}
			for _, by := range store.BrowseSorts() {
				equal(f, "found by "+by, len(f.browse(store.BrowseQuery{Paging: store.Paging{SortBy: by}}).Items), len(all))
			}
		}},
		{"a digest sums the latest attempt up", Browse, func(f *fixture) {
			all := f.searchable()
			got := f.browse(store.BrowseQuery{IDContains: all[1]}).Items[0]
			f.same("digest", got.Digest, store.Digest{
				Reward: new(0.25), Rewards: []agl.RewardDimension{{Name: "primary", Value: 0.25}, {Name: "form", Value: 0.5}},
				Calls: 1, Tokens: 50, Model: "large", Problem: "no_token_ids", Spans: 2,
			})
			f.same("rollout", got.AttemptedRollout, f.rollout(all[1]))
			trained := func(step int64) agl.Span {
				core := agl.SpanCore{Name: semconv.SpanTrained, Attributes: agl.Attributes{
					{Key: semconv.TrainedRun, Value: "run-a"},
					{Key: semconv.TrainedStep, Value: step},
					{Key: semconv.TrainedTokens, Value: int64(7)},
					{Key: semconv.TrainedGap, Value: -0.5},
					{Key: semconv.TrainedLargest, Value: 1e-7},
					{Key: semconv.TrainedCall, Value: "call"},
					{Key: semconv.TrainedPosition, Value: int64(3)},
					{Key: semconv.TrainedSpanID(0), Value: "call"},
					{Key: semconv.TrainedLogprobs(0), Value: []float64{-1, -2}},
				}}
				return core.Span(all[1], got.Attempt.AttemptID, 2+step, 3)
			}
			f.addSpans(trained(1), trained(2))
			f.same("gap of the last step", f.browse(store.BrowseQuery{IDContains: all[1]}).Items[0].Gap, &store.TokenGap{
				RunID: "run-a", Step: 2, Tokens: 7, Sum: -0.5, Largest: 1e-7, SpanID: "call", Position: 3,
			})
			a := f.startAttempt(all[1])
			f.same("of a new attempt", f.browse(store.BrowseQuery{IDContains: all[1]}).Items[0].Digest, store.Digest{})
			// More than are read at once, whose ids are not in the order of their insertion.
			for i := range int64(100) {
				s := newSpan(a.Attempt, i+1)
				s.SpanID, s.Name = fmt.Sprintf("r%03d", 99-i), semconv.SpanAnnotation
				s.Attributes = agl.Attributes{{Key: "reward", Value: float64(i)}}
				f.addSpans(s)
			}
			f.same("of a hundred spans", f.browse(store.BrowseQuery{IDContains: all[1]}).Items[0].Digest, store.Digest{Reward: new(99.0), Spans: 100})
			a = f.startAttempt(all[1])
			spans := make([]agl.Span, store.DigestSpans+1)
			for i := range spans {
				spans[i] = newSpan(a.Attempt, int64(i+1))
				spans[i].SpanID = fmt.Sprint("s", i)
			}
			f.addSpans(spans...)
			f.same("of a large one", f.browse(store.BrowseQuery{IDContains: all[1]}).Items[0].Digest,
				store.Digest{Spans: store.DigestSpans + 1, Large: true})
		}},
		{"spans in outline, and whole by id", Browse, func(f *fixture) {
			claimed, spans := f.outlined()
			at := store.Attempted{RolloutID: claimed.RolloutID, AttemptID: claimed.AttemptID}
			outline := func(limit, offset int) store.Page[store.SpanOutline] {
				return must(f.Store.(store.Browser).OutlineSpans(f.Context(), at, store.Paging{Limit: limit, Offset: offset}))(f)
			}
			f.same("outline", outline(10, 0), store.Page[store.SpanOutline]{Total: 6, Items: []store.SpanOutline{
				{
					SequenceID: 1, SpanID: "call", TraceID: spans[0].TraceID, Name: semconv.SpanModelCall, StartTime: new(1.0), EndTime: new(1.5),
					Status: "OK", Kind: store.KindCall, PromptTokens: 7, AnswerTokens: 3,
				},
				{
					SequenceID: 2, SpanID: "other", TraceID: spans[0].TraceID, ParentID: new("call"), Name: "a \"tool\"\n", StartTime: new(1.0),
					Status: "ERROR", Kind: store.KindOther, Events: []store.EventMark{{Name: "slow", Timestamp: new(2.5)}, {Name: "when"}},
				},
				{
					SequenceID: 3, SpanID: "foreign", TraceID: spans[0].TraceID, Name: "chat", StartTime: new(1.0), Status: "UNSET",
					Kind: store.KindCall, PromptTokens: 8, AnswerTokens: 4,
				},
				{SequenceID: 4, SpanID: "said", TraceID: spans[0].TraceID, Name: semconv.SpanMessage, StartTime: new(1.0), Status: "UNSET", Kind: store.KindMessage},
				{
					SequenceID: 5, SpanID: "reward", TraceID: spans[0].TraceID, Name: semconv.SpanAnnotation, StartTime: new(1.0), Status: "UNSET", Kind: store.KindReward,
					Rewards: []agl.RewardDimension{{Name: "primary", Value: 0.5}, {Name: "form", Value: 1}},
				},
				{
					SequenceID: 6, SpanID: "rescored", TraceID: spans[0].TraceID, Name: semconv.SpanRescore, StartTime: new(1.0), Status: "UNSET",
					Kind: store.KindReward, RewardSet: "strict", Rewards: []agl.RewardDimension{{Name: "primary", Value: 0.25}},
				},
			}})
			part := outline(2, 3)
			equal(f, "total of a part", part.Total, 6)
			equal(f, "first of a part", part.Items[0].SpanID, "said")
			equal(f, "beyond the end", len(outline(2, 6).Items), 0)
			latest := must(f.Store.(store.Browser).OutlineSpans(f.Context(), store.Attempted{RolloutID: at.RolloutID, AttemptID: agl.LatestAttempt}, store.Paging{Limit: 1}))(f)
			equal(f, "of the latest attempt", latest.Total, 6)

			whole := must(f.Store.(store.Browser).SpansByID(f.Context(), at, []string{"reward", "nothing", "call"}))(f)
			equal(f, "whole spans", len(whole), 2)
			for i, want := range []agl.Span{spans[4], spans[0]} {
				f.same("whole", must(whole[i].Span())(f), want)
			}
		}},
		{"outlines that make no sense are refused", Browse, func(f *fixture) {
			at := store.Attempted{RolloutID: "ro", AttemptID: "at"}
			for _, p := range []store.Paging{{}, {Limit: store.OutlineLimit + 1}, {Limit: 1, Offset: -1}} {
				_, err := f.Store.(store.Browser).OutlineSpans(f.Context(), at, p)
				f.refused(err, store.ErrInvalid, "")
			}
			_, err := f.Store.(store.Browser).SpansByID(f.Context(), at, make([]string, store.SpansByIDLimit+1))
			f.refused(err, store.ErrInvalid, "")
		}},
		{"what makes no sense is refused", Browse, func(f *fixture) {
			for _, q := range []store.BrowseQuery{
				{Paging: store.Paging{SortBy: "config"}},
				{Paging: store.Paging{Offset: -1}},
				{Paging: store.Paging{Limit: 1001}},
				{Paging: store.Paging{Any: true}},
				{RewardMin: new(1.0), RewardMax: new(0.0)},
				{From: new(1.0), To: new(0.0)},
			} {
				_, err := f.Store.(store.Browser).BrowseRollouts(f.Context(), q)
				f.refused(err, store.ErrInvalid, "")
			}
		}},
		{"rollouts are counted by status", Browse, func(f *fixture) {
			f.searchable()
			f.same("counts", must(f.Store.(store.Browser).CountRollouts(f.Context()))(f), map[agl.RolloutStatus]int64{
				agl.RolloutSucceeded: 2, agl.RolloutFailed: 1, agl.RolloutQueuing: 2,
			})
		}},
		{"the work is bounded", Browse, func(f *fixture) {
			const n = store.BrowseLimit + 5
			reqs := make([]store.EnqueueRequest, n)
			for i := range reqs {
				reqs[i].Input = json.RawMessage("1")
			}
			reqs[0].Input = json.RawMessage(`"oldest"`)
			reqs[n-1].Input = json.RawMessage(`"newest"`)
			for i := range reqs {
				reqs[i].Metadata = json.RawMessage(`{"agl.run_id":"r","agl.step":9}`)
			}
			reqs[0].Metadata = json.RawMessage(`{"agl.run_id":"r","agl.step":1}`)
			f.createRun("r")
			all := ids(must(f.EnqueueRollouts(f.Context(), reqs[:1]))(f))
			f.pass(1)
			f.ok(f.AddStepMetrics(f.Context(), "r", agl.StepMetrics{Step: 1}))
			f.pass(1)
			all = append(all, ids(must(f.EnqueueRollouts(f.Context(), reqs[1:n-1]))(f))...)
			f.pass(1)
			all = append(all, ids(must(f.EnqueueRollouts(f.Context(), reqs[n-1:]))(f))...)
			got := f.browse(store.BrowseQuery{Text: "est", Paging: store.Paging{Desc: true}})
			sameIDs(f, "found", browsedIDs(got.Items), all[n-1:])
			equal(f, "complete", got.Complete, false)
			equal(f, "examined", got.Examined, store.BrowseLimit)
			// A sort is one of the newest.
			got = f.browse(store.BrowseQuery{Paging: store.Paging{SortBy: "input", Limit: 3}})
			equal(f, "complete when sorted", got.Complete, false)
			equal(f, "examined when sorted", got.Examined, store.BrowseLimit)
			equal(f, "total when sorted", got.Total, store.BrowseLimit)
			equal(f, "first when sorted", got.Items[0].RolloutID, all[n-1])
			// When steps ended says where to look for theirs.
			for _, order := range []store.Paging{{Desc: true}, {SortBy: "step"}} {
				got = f.browse(store.BrowseQuery{RunID: "r", Step: new(int64(1)), Paging: order})
				sameIDs(f, "of an early step", browsedIDs(got.Items), all[:1])
				equal(f, "complete", got.Complete, true)
				equal(f, "examined", got.Examined, 1)
			}
			got = f.browse(store.BrowseQuery{RunID: "r", Step: new(int64(2)), Paging: store.Paging{Desc: true}})
			equal(f, "complete for a step that has not ended", got.Complete, false)
			// What an index has needs no bound.
			got = f.browse(store.BrowseQuery{Paging: store.Paging{Offset: n - 1}})
			sameIDs(f, "last", browsedIDs(got.Items), all[n-1:])
			equal(f, "total", got.Total, n)
			f.setRollout(all[0], agl.RolloutFailed)
			got = f.browse(store.BrowseQuery{StatusIn: []agl.RolloutStatus{agl.RolloutFailed}})
			sameIDs(f, "of a status that few have", browsedIDs(got.Items), all[:1])
			equal(f, "complete", got.Complete, true)
		}},
		{"changes are told once, summed up", Browse, func(f *fixture) {
			w := f.Store.(store.Feed).Watch()
			defer w.Close()
			ro := f.enqueue("1", "2")
			claimed := must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 1, WorkerID: new("w")}))(f)[0]
			f.addSpan(claimed.Attempt)
			f.createRun("r")
			f.ok(f.AddLogLines(f.Context(), "r", agl.LogLine{Level: agl.LogInfo}))
			must(f.AddResources(f.Context(), nil))(f)
			f.ok(f.PutModels(f.Context(), []agl.Model{{Name: "m", Endpoint: "http://127.0.0.1:1/v1"}}))
			got := must(w.Next(f.Context()))(f)
			for _, c := range got {
				slices.Sort(c.IDs)
			}
			f.same("rollouts", got[store.NounRollouts].IDs, slices.Sorted(slices.Values(ids(ro))))
			f.same("spans", got[store.NounSpans].IDs, []string{claimed.RolloutID})
			f.same("workers", got[store.NounWorkers].IDs, []string{"w"})
			f.same("runs", got[store.NounRuns].IDs, []string{"r"})
			f.same("logs", got[store.NounLogs].IDs, []string{"r"})
			equal(f, "resources", got[store.NounResources].N, 1)
			f.same("models", got[store.NounModels].IDs, []string{"m"})
			stop, cancel := context.WithCancel(f.Context())
			cancel()
			if _, err := w.Next(stop); !errors.Is(err, context.Canceled) {
				f.Errorf("Next without anything new = %v, want %v", err, context.Canceled)
			}
			f.enqueue(slices.Repeat([]string{"1"}, store.FeedIDs+1)...)
			many := must(w.Next(f.Context()))(f)[store.NounRollouts]
			if many.IDs != nil || many.N != store.FeedIDs+1 {
				f.Errorf("many = %d with %d ids, want %d and no ids", many.N, len(many.IDs), store.FeedIDs+1)
			}
		}},
	}
}
