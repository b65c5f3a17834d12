package storetest

import (
	"encoding/json"
	"regexp"
	"time"

	agl "agentlightning"
	"agentlightning/semconv"
	"agentlightning/store"
)

// control is the part of the store that the 1.0 protocol adds.
func (f *fixture) control() store.ControlStore {
	f.Helper()
	c, ok := f.Store.(store.ControlStore)
	if !ok {
		f.Fatalf("%T is not a store.ControlStore", f.Store)
	}
	return c
}

func (f *fixture) controlled(ids ...string) []agl.Rollout {
	f.Helper()
	reqs := make([]store.ControlRequest, len(ids))
	for i, id := range ids {
		reqs[i] = store.ControlRequest{RolloutID: id, Input: json.RawMessage(`{"q":1.0}`), Mode: agl.ModeTrain}
	}
	return must(f.control().CreateControlled(f.Context(), reqs))(f)
}

func (f *fixture) patch(id string, u store.ControlUpdate) agl.Rollout {
	f.Helper()
	return must(f.control().UpdateControlled(f.Context(), id, u))(f)
}

func toState(s agl.RolloutStatus) store.ControlUpdate { return store.ControlUpdate{State: store.To(s)} }

func (f *fixture) event(id, attempt, kind string) agl.Span {
	f.Helper()
	return must(f.control().AddEvent(f.Context(), agl.SpanCore{
		Name: semconv.SpanEvent + kind, Attributes: agl.Attributes{{Key: semconv.EventData, Value: "{}"}},
	}.Span(id, attempt, 0, 0)))(f)
}

func (f *fixture) completions(after int64, limit int) store.CompletionPage {
	f.Helper()
	return must(f.control().Completions(f.Context(), store.CompletionQuery{After: after, Limit: limit}))(f)
}

func (f *fixture) sameCompletions(after int64, limit int, next, total int64, ids ...string) {
	f.Helper()
	page := f.completions(after, limit)
	got := []string{}
	for _, ro := range page.Rollouts {
		got = append(got, ro.RolloutID)
	}
	f.same("completed", got, append([]string{}, ids...))
	f.same("next and total", []int64{page.Next, page.Total}, []int64{next, total})
}

func controlTests() []test {
	tests := []test{
		{"made by a controller, never queued", "", func(f *fixture) {
			made := must(f.control().CreateControlled(f.Context(), []store.ControlRequest{
				{Input: json.RawMessage(` {"é" : [1, null]} `), Mode: agl.ModeVal, Config: json.RawMessage(`{"timeout_seconds": 7}`)},
				{RolloutID: "mine", Metadata: json.RawMessage(`{"a":1}`)},
			}))(f)
			ro := made[0]
			if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(ro.RolloutID) {
				f.Errorf("id %q, want 32 hex digits", ro.RolloutID)
			}
			f.isNow("start", &ro.StartTime)
			f.same("rollout", ro, agl.Rollout{
				RolloutID: ro.RolloutID, Input: json.RawMessage(`{"é":[1,null]}`), StartTime: ro.StartTime, Mode: agl.ModeVal,
				Status: agl.RolloutQueuing, Config: agl.RolloutConfig{MaxAttempts: 1}, Metadata: json.RawMessage(`{}`),
				Control: &agl.Control{Config: json.RawMessage(`{"timeout_seconds":7}`), Version: 1, UpdatedAt: ro.StartTime},
			})
			f.same("the other", []string{made[1].RolloutID, string(made[1].Metadata)}, []string{"mine", `{"a":1}`})
			f.same("stored", must(f.Rollout(f.Context(), "mine"))(f).Rollout, made[1])
			claimed := must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 5}))(f)
			f.same("claimed", len(claimed), 0)
			queued := must(f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{{}}))(f)
			page := must(f.QueryRollouts(f.Context(), store.RolloutQuery{Controlled: true, StatusIn: []agl.RolloutStatus{agl.RolloutQueuing}}))(f)
			f.same("listed to controllers", []string{page.Items[0].RolloutID, page.Items[1].RolloutID}, []string{ro.RolloutID, "mine"})
			f.same("their number", page.Total, 2)
			all := must(f.QueryRollouts(f.Context(), store.RolloutQuery{}))(f)
			f.same("all", all.Total, 3)
			f.same("control state of the other", queued[0].Control, (*agl.Control)(nil))
		}},
		{"creation repeats without an effect", "", func(f *fixture) {
			made := f.controlled("a", "b", "a")
			f.same("within one call", made[2], made[0])
			f.patch("a", toState(agl.RolloutRunning))
			again := must(f.control().CreateControlled(f.Context(), []store.ControlRequest{
				{RolloutID: "a", Input: json.RawMessage(`"other"`)}, {RolloutID: "c"},
			}))(f)
			f.same("status", again[0].Status, agl.RolloutRunning)
			f.same("input", string(again[0].Input), `{"q":1.0}`)
			_, err := f.control().CreateControlled(f.Context(), []store.ControlRequest{{RolloutID: "d"}, {RolloutID: "e", Input: json.RawMessage(`{`)}})
			f.refused(err, store.ErrInvalid, "")
			f.same("all", must(f.QueryRollouts(f.Context(), store.RolloutQuery{}))(f).Total, 3)
			f.same("none", len(must(f.control().CreateControlled(f.Context(), nil))(f)), 0)
		}},
		{"states follow the protocol", "", func(f *fixture) {
			states := []agl.RolloutStatus{agl.RolloutQueuing, agl.RolloutRunning, agl.RolloutSucceeded, agl.RolloutFailed}
			ways := map[agl.RolloutStatus][]agl.RolloutStatus{
				agl.RolloutQueuing:   nil,
				agl.RolloutRunning:   {agl.RolloutRunning},
				agl.RolloutSucceeded: {agl.RolloutRunning, agl.RolloutSucceeded},
				agl.RolloutFailed:    {agl.RolloutFailed},
			}
			allowed := map[[2]agl.RolloutStatus]bool{
				{agl.RolloutQueuing, agl.RolloutRunning}: true, {agl.RolloutQueuing, agl.RolloutFailed}: true,
				{agl.RolloutRunning, agl.RolloutSucceeded}: true, {agl.RolloutRunning, agl.RolloutFailed}: true,
			}
			for _, from := range states {
				for _, to := range append(states, "", agl.RolloutCancelled) {
					id := string(from) + "-" + string(to)
					f.controlled(id)
					for _, step := range ways[from] {
						f.patch(id, toState(step))
					}
					before := must(f.Rollout(f.Context(), id))(f).Rollout
					u := toState(to)
					u.ErrorMessage = store.To(new("x"))
					_, err := f.control().UpdateControlled(f.Context(), id, u)
					after := must(f.Rollout(f.Context(), id))(f).Rollout
					if allowed[[2]agl.RolloutStatus{from, to}] {
						f.ok(err)
						f.same(id, []any{after.Status, after.Control.Version}, []any{to, before.Control.Version + 1})
						continue
					}
					name := string(to)
					if name == "" {
						name = "None"
					}
					f.refused(err, store.ErrConflict, "Rollout "+id+": cannot transition "+string(from)+" -> "+name)
					f.same(id, after, before)
				}
			}
		}},
		{"fields of a control state", "", func(f *fixture) {
			f.controlled("a")
			f.pass(1)
			ro := f.patch("a", store.ControlUpdate{K8sJobName: store.To(new("job")), ErrorMessage: store.To(new("e"))})
			f.isNow("update", &ro.Control.UpdatedAt)
			f.same("version", ro.Control.Version, 2)
			f.same("status", ro.Status, agl.RolloutQueuing)
			f.same("nothing given", f.patch("a", store.ControlUpdate{}), ro)
			ro = f.patch("a", store.ControlUpdate{K8sJobName: store.To[*string](nil)})
			f.same("cleared and kept", []*string{ro.Control.K8sJobName, ro.Control.ErrorMessage}, []*string{nil, new("e")})
			f.patch("a", toState(agl.RolloutFailed))
			ro = f.patch("a", store.ControlUpdate{ErrorMessage: store.To(new("late"))})
			f.same("after the end", []any{*ro.Control.ErrorMessage, ro.Control.Version}, []any{"late", int64(5)})
			_, err := f.control().UpdateControlled(f.Context(), "unknown", store.ControlUpdate{})
			f.refused(err, store.ErrNotFound, "Rollout unknown not found")
			queued := must(f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{{}}))(f)[0]
			f.same("nothing given", f.patch(queued.RolloutID, store.ControlUpdate{}), queued)
			_, err = f.control().UpdateControlled(f.Context(), queued.RolloutID, toState(agl.RolloutRunning))
			f.refused(err, store.ErrConflict, "Rollout "+queued.RolloutID+": it was made through the 0.3 protocol, so its state follows its attempts")
		}},
		{"attempts follow what the controller says", "", func(f *fixture) {
			f.controlled("a", "b")
			u := toState(agl.RolloutRunning)
			u.LastAttemptID = store.To(new("0"))
			f.patch("a", u)
			at := must(f.LatestAttempt(f.Context(), "a"))(f)
			f.same("attempt", []any{at.AttemptID, at.SequenceID, at.Status}, []any{"0", 1, agl.AttemptRunning})
			f.patch("a", toState(agl.RolloutSucceeded))
			at = must(f.LatestAttempt(f.Context(), "a"))(f)
			f.same("at the end", at.Status, agl.AttemptSucceeded)
			f.isNow("end of the attempt", at.EndTime)
			f.patch("b", toState(agl.RolloutFailed))
			f.same("never started", must(f.QueryAttempts(f.Context(), store.AttemptQuery{RolloutID: "b"}))(f).Total, 0)
		}},
		{"the other protocol sees and changes it", "", func(f *fixture) {
			f.controlled("a")
			at := must(f.StartAttempt(f.Context(), "a", new("w")))(f)
			f.same("last attempt", at.Control.LastAttemptID, &at.Attempt.AttemptID)
			_, err := f.UpdateAttempt(f.Context(), "a", at.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)})
			f.ok(err)
			ro := must(f.Rollout(f.Context(), "a"))(f)
			f.same("state and version", []any{ro.Status, ro.Control.Version}, []any{agl.RolloutSucceeded, int64(3)})
			f.sameCompletions(0, 5, 1, 1, "a")
			_, err = f.UpdateRollout(f.Context(), "a", store.RolloutUpdate{Status: store.To(agl.RolloutRequeuing)})
			f.ok(err)
			f.same("claimed", len(must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 1}))(f)), 0)
			f.patch("a", toState(agl.RolloutRunning)) // requeuing is queuing to controllers
			f.sameCompletions(0, 5, 1, 1)
			_, err = f.UpdateRollout(f.Context(), "a", store.RolloutUpdate{Status: store.To(agl.RolloutCancelled)})
			f.ok(err)
			f.sameCompletions(0, 5, 2, 2, "a", "a")
		}},
		{"events make their attempt", "", func(f *fixture) {
			f.controlled("a")
			first := f.event("a", "0", "x")
			f.isNow("start", first.StartTime)
			f.isNow("end", first.EndTime)
			f.same("number", first.SequenceID, int64(1))
			f.event("a", "7", "y")
			f.event("a", "0", "z")
			f.same("attempts with events", must(f.control().EventAttempts(f.Context(), "a"))(f), []string{"0", "7"})
			f.same("of nobody", must(f.control().EventAttempts(f.Context(), "unknown"))(f), []string{})
			ro := must(f.Rollout(f.Context(), "a"))(f)
			f.same("status", ro.Status, agl.RolloutQueuing)
			spans := must(f.QuerySpans(f.Context(), store.SpanQuery{RolloutID: "a", AttemptID: new("0")}))(f)
			f.same("spans", []string{spans.Items[0].Name, spans.Items[1].Name}, []string{semconv.SpanEvent + "x", semconv.SpanEvent + "z"})
			f.same("latest", must(f.LatestAttempt(f.Context(), "a"))(f).AttemptID, "7")
			f.patch("a", toState(agl.RolloutFailed))
			f.event("a", "9", "late")
			f.same("made after the end", must(f.LatestAttempt(f.Context(), "a"))(f).Status, agl.AttemptFailed)
			f.same("status", must(f.Rollout(f.Context(), "a"))(f).Status, agl.RolloutFailed)
			_, err := f.control().AddEvent(f.Context(), agl.Span{RolloutID: "unknown", AttemptID: "0", SpanID: "s"})
			f.refused(err, store.ErrNotFound, "Rollout unknown not found")
			f.same("resolved", must(f.control().ResolveAttempt(f.Context(), "a", "fresh"))(f), "fresh")
			f.same("made", must(f.LatestAttempt(f.Context(), "a"))(f).AttemptID, "fresh")
		}},
		{"attempt 0 of the other protocol is the latest", "", func(f *fixture) {
			at := must(f.StartRollout(f.Context(), store.StartRequest{}))(f)
			id := at.RolloutID
			f.same("resolved", must(f.control().ResolveAttempt(f.Context(), id, "0"))(f), at.Attempt.AttemptID)
			f.same("stored under", f.event(id, "0", "x").AttemptID, at.Attempt.AttemptID)
			f.same("revived", must(f.Rollout(f.Context(), id))(f).Status, agl.RolloutRunning)
			_, err := f.control().ResolveAttempt(f.Context(), id, "1")
			f.refused(err, store.ErrNotFound, "Attempt 1 not found for rollout "+id)
			queued := must(f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{{}}))(f)[0]
			_, err = f.control().ResolveAttempt(f.Context(), queued.RolloutID, "0")
			f.refused(err, store.ErrNotFound, "Attempt 0 not found for rollout "+queued.RolloutID)
			_, err = f.control().ResolveAttempt(f.Context(), "unknown", "0")
			f.refused(err, store.ErrNotFound, "Rollout unknown not found")
		}},
		{"deleting", "", func(f *fixture) {
			f.controlled("a", "b")
			queued := must(f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{{}, {}}))(f)
			f.event("a", "0", "x")
			f.event("b", "0", "y")
			f.patch("a", toState(agl.RolloutFailed))
			done := make(chan []agl.Rollout, 1)
			go func() {
				got, err := f.WaitForRollouts(f.Context(), []string{"b"}, time.Minute)
				if err != nil {
					f.Error(err)
				}
				done <- got
			}()
			for _, id := range []string{"a", "b", queued[0].RolloutID, "unknown"} {
				f.ok(f.control().DeleteRollout(f.Context(), id))
			}
			f.same("waited for", len(<-done), 0)
			_, err := f.Rollout(f.Context(), "a")
			f.refused(err, store.ErrNotFound, "")
			f.same("spans", must(f.QuerySpans(f.Context(), store.SpanQuery{RolloutID: "b"}))(f).Total, 0)
			st := must(f.Statistics(f.Context()))(f)
			f.same("counts", []int64{st.TotalRollouts, st.TotalAttempts, st.TotalSpans}, []int64{1, 0, 0})
			claimed := must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 5}))(f)
			f.same("claimed", []string{claimed[0].RolloutID}, []string{queued[1].RolloutID})
			f.sameCompletions(0, 5, 1, 1)
			f.controlled("a")
			f.sameCompletions(0, 5, 1, 1)
			f.same("number", f.event("a", "0", "again").SequenceID, int64(1))
			f.patch("a", toState(agl.RolloutFailed))
			f.sameCompletions(0, 5, 2, 2, "a", "a")
			f.same("list", must(f.QueryRollouts(f.Context(), store.RolloutQuery{}))(f).Total, 2)
		}},
		{"the log of completions", "", func(f *fixture) {
			f.sameCompletions(0, 5, 0, 0)
			f.sameCompletions(7, 5, 7, 0)
			f.controlled("a", "b", "c")
			for _, id := range []string{"b", "c", "a"} {
				f.patch(id, toState(agl.RolloutFailed))
				f.patch(id, store.ControlUpdate{ErrorMessage: store.To(new("late"))})
			}
			f.sameCompletions(0, 5, 3, 3, "b", "c", "a")
			f.sameCompletions(-3, 2, 2, 3, "b", "c")
			f.sameCompletions(2, 5, 3, 3, "a")
			f.sameCompletions(9, 5, 9, 3)
			f.sameCompletions(0, 0, 0, 3)
			at := must(f.StartRollout(f.Context(), store.StartRequest{}))(f)
			_, err := f.UpdateAttempt(f.Context(), at.RolloutID, at.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)})
			f.ok(err)
			f.sameCompletions(3, 5, 4, 4, at.RolloutID)
		}},
		{"waiting for the log", "", func(f *fixture) {
			f.controlled("a")
			got := make(chan store.CompletionPage, 1)
			go func() {
				page, err := f.control().Completions(f.Context(), store.CompletionQuery{Limit: 5, Wait: time.Minute})
				if err != nil {
					f.Error(err)
				}
				got <- page
			}()
			f.event("a", "0", "x")
			f.patch("a", toState(agl.RolloutFailed))
			page := <-got
			f.same("next and number", []int64{page.Next, int64(len(page.Rollouts))}, []int64{1, 1})
			page = must(f.control().Completions(f.Context(), store.CompletionQuery{After: 1, Limit: 5, Wait: time.Millisecond}))(f)
			f.same("when the wait is over", []int64{page.Next, page.Total, int64(len(page.Rollouts))}, []int64{1, 1, 0})
		}},
		{"a later call takes over the expert routes", "", func(f *fixture) {
			f.controlled("a")
			call := func(routes string, prompt, answer []int64) {
				f.Helper()
				must(f.control().AddEvent(f.Context(), agl.SpanCore{Name: semconv.SpanModelCall, Attributes: agl.Attributes{
					{Key: semconv.PromptTokenIDs, Value: prompt},
					{Key: semconv.ResponseTokenIDs, Value: answer},
					{Key: semconv.RoutedExperts, Value: routes},
				}}.Span("a", "0", 0, 0)))(f)
			}
			call(`"A"`, []int64{1}, []int64{2})
			call(`"B"`, []int64{1, 2, 3}, []int64{4})
			f.event("a", "0", "between")
			call(`"C"`, []int64{1, 2, 3}, []int64{5})
			call(`"D"`, []int64{9}, []int64{9})
			call("", []int64{9, 9}, []int64{9})
			call(`"E"`, []int64{9, 9, 9}, []int64{9})
			var routes []string
			for _, s := range must(f.QuerySpans(f.Context(), store.SpanQuery{RolloutID: "a", Name: new(semconv.SpanModelCall)}))(f).Items {
				text, _ := s.Attributes.String(semconv.RoutedExperts)
				routes = append(routes, text)
			}
			f.same("routes", routes, []string{"", "", `"C"`, `"D"`, "", `"E"`})
		}},
	}
	for i := range tests {
		tests[i].needs = Control
	}
	return tests
}
