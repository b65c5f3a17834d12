package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	agl "agentlightning"
	"agentlightning/store"
)

// line makes a line of a log.
func line(level agl.LogLevel, message, attributes string) agl.LogLine {
	return agl.LogLine{Time: 5, Level: level, Message: message, Attributes: json.RawMessage(attributes)}
}

// shown sums up a page: the messages, what is kept, and whether there is more.
func shown(p store.LogPage) string {
	var b strings.Builder
	for i, l := range p.Lines {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d:%s", l.Position, l.Message)
	}
	fmt.Fprintf(&b, " | %d-%d, %d dropped", p.First, p.Last, p.Dropped)
	if p.More {
		b.WriteString(", more")
	}
	return b.String()
}

func runLogTests() []test {
	tests := []test{
		{"lines get positions and are read in parts", "", func(f *fixture) {
			f.createRun("r")
			f.createRun("other")
			read := func(q store.LogQuery) string {
				q.RunID = "r"
				return shown(must(f.RunLog(f.Context(), q))(f))
			}
			equal(f, "an empty log", read(store.LogQuery{}), " | 1-0, 0 dropped")
			f.ok(f.AddLogLines(f.Context(), "r", line(agl.LogDebug, "a", "{}"), line(agl.LogWarn, "Bad", `{"step":1,"x":1.0}`)))
			f.ok(f.AddLogLines(f.Context(), "other", line(agl.LogInfo, "not mine", "{}")))
			f.ok(f.AddLogLines(f.Context(), "r", line(agl.LogInfo, "c", `{"why":"Slow disk"}`), line(agl.LogError, "d", "{}")))
			f.ok(f.AddLogLines(f.Context(), "r"))
			for _, tt := range []struct {
				q    store.LogQuery
				want string
			}{
				{store.LogQuery{}, "1:a 2:Bad 3:c 4:d | 1-4, 0 dropped"},
				{store.LogQuery{Limit: 2}, "1:a 2:Bad | 1-4, 0 dropped, more"},
				{store.LogQuery{After: 2}, "3:c 4:d | 1-4, 0 dropped"},
				{store.LogQuery{After: 4}, " | 1-4, 0 dropped"},
				{store.LogQuery{After: 99}, " | 1-4, 0 dropped"},
				{store.LogQuery{Limit: 2, Newest: true}, "3:c 4:d | 1-4, 0 dropped, more"},
				{store.LogQuery{Limit: 4, Newest: true}, "1:a 2:Bad 3:c 4:d | 1-4, 0 dropped"},
				{store.LogQuery{Limit: 1, Newest: true, Before: 3}, "2:Bad | 1-4, 0 dropped, more"},
				{store.LogQuery{After: 1, Before: 4}, "2:Bad 3:c | 1-4, 0 dropped"},
				{store.LogQuery{After: 3, Before: 2}, " | 1-4, 0 dropped"},
				{store.LogQuery{Level: agl.LogWarn}, "2:Bad 4:d | 1-4, 0 dropped"},
				{store.LogQuery{Level: agl.LogDebug, Limit: 1}, "1:a | 1-4, 0 dropped, more"},
				{store.LogQuery{Text: "bAD"}, "2:Bad | 1-4, 0 dropped"},
				{store.LogQuery{Text: "slow DISK"}, "3:c | 1-4, 0 dropped"},
				{store.LogQuery{Text: "step", Level: agl.LogError}, " | 1-4, 0 dropped"},
			} {
				equal(f, fmt.Sprintf("%+v", tt.q), read(tt.q), tt.want)
			}
			f.same("a line", must(f.RunLog(f.Context(), store.LogQuery{RunID: "r", After: 1, Limit: 1}))(f).Lines, []agl.LogLine{
				{Position: 2, Time: 5, Level: agl.LogWarn, Message: "Bad", Attributes: json.RawMessage(`{"step":1,"x":1.0}`)},
			})
		}},
		{"a line without a time or attributes", "", func(f *fixture) {
			f.createRun("r")
			f.ok(f.AddLogLines(f.Context(), "r", agl.LogLine{Position: 77, Level: agl.LogInfo, Message: "\"quoted\"\n✓"}))
			got := must(f.RunLog(f.Context(), store.LogQuery{RunID: "r"}))(f).Lines[0]
			f.isNow("time", &got.Time)
			f.same("line", got, agl.LogLine{Position: 1, Time: got.Time, Level: agl.LogInfo, Message: "\"quoted\"\n✓", Attributes: json.RawMessage("{}")})
		}},
		{"a log takes no line that is wrong, and none beside it", "", func(f *fixture) {
			f.createRun("r")
			fine := line(agl.LogInfo, "fine", "{}")
			for _, wrong := range []agl.LogLine{
				line("fatal", "", "{}"), line("", "", "{}"), line(agl.LogInfo, "", "[]"),
				line(agl.LogInfo, strings.Repeat("x", store.LogLineBytes), "{}"),
			} {
				f.refused(f.AddLogLines(f.Context(), "r", fine, wrong), store.ErrInvalid, "")
			}
			f.ok(f.AddLogLines(f.Context(), "r", line(agl.LogInfo, strings.Repeat("x", store.LogLineBytes-2), "{}")))
			equal(f, "lines", len(must(f.RunLog(f.Context(), store.LogQuery{RunID: "r"}))(f).Lines), 1)
			for _, q := range []store.LogQuery{{Level: "fatal"}, {Limit: store.LogPageLines + 1}, {After: -1}, {Before: -1}} {
				q.RunID = "r"
				_, err := f.RunLog(f.Context(), q)
				f.refused(err, store.ErrInvalid, "")
			}
		}},
		{"the oldest lines go when there are too many", "", func(f *fixture) {
			f.createRun("r")
			batch := make([]agl.LogLine, store.LogLines/4)
			for i := range batch {
				batch[i] = line(agl.LogInfo, "m", "{}")
			}
			for range 4 {
				f.ok(f.AddLogLines(f.Context(), "r", batch...))
			}
			f.ok(f.AddLogLines(f.Context(), "r", line(agl.LogError, "last", "{}"), line(agl.LogInfo, "m", "{}")))
			p := must(f.RunLog(f.Context(), store.LogQuery{RunID: "r", Level: agl.LogError}))(f)
			equal(f, "what is kept", shown(p), fmt.Sprintf("%d:last | 3-%d, 2 dropped", store.LogLines+1, store.LogLines+2))
			p = must(f.RunLog(f.Context(), store.LogQuery{RunID: "r", Limit: 1}))(f)
			equal(f, "the oldest", p.Lines[0].Position, 3)
			p = must(f.RunLog(f.Context(), store.LogQuery{RunID: "r"}))(f)
			equal(f, "a page", len(p.Lines), store.LogPageLines)
			equal(f, "more", p.More, true)
		}},
		{"the oldest lines go when they take too much", "", func(f *fixture) {
			f.createRun("r")
			const lines = store.LogBytes / store.LogLineBytes
			batch := make([]agl.LogLine, lines/4)
			for i := range batch {
				batch[i] = line(agl.LogInfo, strings.Repeat("x", store.LogLineBytes-2), "{}")
			}
			for range 4 {
				f.ok(f.AddLogLines(f.Context(), "r", batch...))
			}
			p := must(f.RunLog(f.Context(), store.LogQuery{RunID: "r", Limit: 1}))(f)
			equal(f, "dropped while it fits", p.Dropped, 0)
			f.ok(f.AddLogLines(f.Context(), "r", line(agl.LogInfo, "small", "{}")))
			p = must(f.RunLog(f.Context(), store.LogQuery{RunID: "r", Limit: 1, Newest: true}))(f)
			equal(f, "what is kept", shown(p), fmt.Sprintf("%d:small | 2-%d, 1 dropped, more", lines+1, lines+1))
		}},
		{"a run is deleted with what it recorded", "", func(f *fixture) {
			f.createRun("r")
			f.createRun("other")
			f.ok(f.AddStepMetrics(f.Context(), "r", agl.StepMetrics{Step: 1, Values: map[string]float64{"v": 1}}))
			f.ok(f.PutCheckpoint(f.Context(), "r", agl.Checkpoint{Step: 1}))
			f.ok(f.AddLogLines(f.Context(), "r", line(agl.LogInfo, "a", "{}")))
			f.ok(f.AddLogLines(f.Context(), "other", line(agl.LogInfo, "b", "{}")))
			ro := must(f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{{Input: json.RawMessage("1"), Metadata: json.RawMessage(`{"agl.run_id":"r"}`)}}))(f)[0]
			f.refused(f.DeleteRun(f.Context(), "r", false), store.ErrConflict, "")
			equal(f, "runs", len(must(f.Runs(f.Context(), 0))(f)), 2)
			must(f.UpdateRun(f.Context(), "r", store.RunUpdate{Status: store.To(agl.RunFailed)}))(f)
			f.ok(f.DeleteRun(f.Context(), "r", false))
			f.refused(f.DeleteRun(f.Context(), "r", false), store.ErrNotFound, "")
			_, err := f.RunLog(f.Context(), store.LogQuery{RunID: "r"})
			f.refused(err, store.ErrNotFound, "")
			equal(f, "runs that are left", len(must(f.Runs(f.Context(), 0))(f)), 1)
			f.same("its rollout", string(f.rollout(ro.RolloutID).Metadata), `{"agl.run_id":"r"}`)

			f.createRun("r") // a new run of the same id begins with nothing
			f.same("metrics", must(f.StepMetrics(f.Context(), "r", -1))(f), []agl.StepMetrics{})
			f.same("checkpoints", must(f.Checkpoints(f.Context(), "r"))(f), []agl.Checkpoint{})
			equal(f, "log", shown(must(f.RunLog(f.Context(), store.LogQuery{RunID: "r"}))(f)), " | 1-0, 0 dropped")
			f.ok(f.DeleteRun(f.Context(), "r", true))
			equal(f, "log of the other", shown(must(f.RunLog(f.Context(), store.LogQuery{RunID: "other"}))(f)), "1:b | 1-1, 0 dropped")
		}},
		{"lines with a key are added once", Keys, func(f *fixture) {
			f.createRun("r")
			ctx := store.WithKey(f.Context(), "k")
			for range 2 {
				f.ok(f.AddLogLines(ctx, "r", line(agl.LogInfo, "a", "{}")))
			}
			if err := f.AddLogLines(ctx, "r", line(agl.LogInfo, "b", "{}")); err == nil {
				f.Error("another line with the same key was added")
			}
			equal(f, "log", shown(must(f.RunLog(f.Context(), store.LogQuery{RunID: "r"}))(f)), "1:a | 1-1, 0 dropped")
		}},
	}
	for i := range tests {
		if tests[i].needs == "" {
			tests[i].needs = Runs
		}
	}
	return tests
}
