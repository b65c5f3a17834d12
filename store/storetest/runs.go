package storetest

import (
	"encoding/json"
	"math"
	"regexp"

	agl "agentlightning"
	"agentlightning/store"
)

func (f *fixture) createRun(id string) agl.Run {
	f.Helper()
	return must(f.CreateRun(f.Context(), agl.Run{RunID: id, Algorithm: "grpo"}))(f)
}

func runTests() []test {
	tests := []test{
		{"a run is created running", "", func(f *fixture) {
			got := must(f.CreateRun(f.Context(), agl.Run{
				Algorithm: "grpo", Seed: math.MaxInt64,
				Config: json.RawMessage(`{"lr":1.0,"steps":2}`), Status: agl.RunFailed, Error: "x",
			}))(f)
			if !regexp.MustCompile(`^run-[0-9a-f]{12}$`).MatchString(got.RunID) {
				f.Errorf("id = %q, want run- and 12 hex digits", got.RunID)
			}
			f.isNow("start", &got.StartTime)
			f.same("run", got, agl.Run{
				RunID: got.RunID, Algorithm: "grpo", Seed: math.MaxInt64,
				Config: json.RawMessage(`{"lr":1.0,"steps":2}`), Status: agl.RunRunning, StartTime: got.StartTime,
			})
			f.same("read again", must(f.Store.Run(f.Context(), got.RunID))(f), got)
		}},
		{"an id is taken once", "", func(f *fixture) {
			f.createRun("mine")
			_, err := f.CreateRun(f.Context(), agl.Run{RunID: "mine"})
			f.refused(err, store.ErrConflict, "")
			equal(f, "algorithm", must(f.Store.Run(f.Context(), "mine"))(f).Algorithm, "grpo")
		}},
		{"an unknown run", "", func(f *fixture) {
			_, err := f.Store.Run(f.Context(), "x")
			f.refused(err, store.ErrNotFound, "")
			_, err = f.UpdateRun(f.Context(), "x", store.RunUpdate{})
			f.refused(err, store.ErrNotFound, "")
			f.refused(f.AddStepMetrics(f.Context(), "x", agl.StepMetrics{Step: 1}), store.ErrNotFound, "")
			_, err = f.StepMetrics(f.Context(), "x", 0)
			f.refused(err, store.ErrNotFound, "")
			f.refused(f.PutCheckpoint(f.Context(), "x", agl.Checkpoint{Step: 1}), store.ErrNotFound, "")
			_, err = f.LatestCheckpoint(f.Context(), "x")
			f.refused(err, store.ErrNotFound, "")
			_, err = f.Checkpoints(f.Context(), "x")
			f.refused(err, store.ErrNotFound, "")
			f.refused(f.AddLogLines(f.Context(), "x", agl.LogLine{Level: agl.LogInfo}), store.ErrNotFound, "")
			_, err = f.RunLog(f.Context(), store.LogQuery{RunID: "x"})
			f.refused(err, store.ErrNotFound, "")
			f.refused(f.DeleteRun(f.Context(), "x", true), store.ErrNotFound, "")
		}},
		{"a run ends and goes on", "", func(f *fixture) {
			run := f.createRun("r")
			f.pass(1)
			got := must(f.UpdateRun(f.Context(), "r", store.RunUpdate{Status: store.To(agl.RunFailed), Error: store.To("no disk")}))(f)
			f.isNow("end", got.EndTime)
			run.Status, run.EndTime, run.Error = agl.RunFailed, got.EndTime, "no disk"
			f.same("failed", must(f.Store.Run(f.Context(), "r"))(f), run)
			run.Status, run.EndTime, run.Error, run.Config = agl.RunRunning, nil, "", json.RawMessage(`{"a":2}`)
			f.same("resumed", must(f.UpdateRun(f.Context(), "r", store.RunUpdate{
				Status: store.To(agl.RunRunning),
				Config: store.To(json.RawMessage(`{"a":2}`)),
			}))(f), run)
			_, err := f.UpdateRun(f.Context(), "r", store.RunUpdate{Status: store.To(agl.RunStatus("bored"))})
			f.refused(err, store.ErrInvalid, "")
		}},
		{"runs are listed newest first", "", func(f *fixture) {
			for _, id := range []string{"b", "c", "a"} {
				f.createRun(id)
			}
			must(f.UpdateRun(f.Context(), "b", store.RunUpdate{Status: store.To(agl.RunSucceeded)}))(f)
			list := func(limit int) (out string) {
				for _, r := range must(f.Runs(f.Context(), limit))(f) {
					out += r.RunID
				}
				return out
			}
			equal(f, "all", list(0), "acb")
			equal(f, "all, with a large limit", list(10), "acb")
			equal(f, "two", list(2), "ac")
		}},
		{"metrics by step, the last ones win", "", func(f *fixture) {
			f.createRun("r")
			f.createRun("other")
			m := func(step int, v float64) agl.StepMetrics {
				return agl.StepMetrics{Step: step, Time: 5, Values: map[string]float64{"reward": v, "loss": 1e-9}}
			}
			f.ok(f.AddStepMetrics(f.Context(), "r", m(1, 0.5), m(3, 1)))
			f.ok(f.AddStepMetrics(f.Context(), "r", m(2, 2), m(3, 3)))
			f.ok(f.AddStepMetrics(f.Context(), "r"))
			f.same("all", must(f.StepMetrics(f.Context(), "r", -1))(f), []agl.StepMetrics{m(1, 0.5), m(2, 2), m(3, 3)})
			f.same("after 1", must(f.StepMetrics(f.Context(), "r", 1))(f), []agl.StepMetrics{m(2, 2), m(3, 3)})
			f.same("after the last", must(f.StepMetrics(f.Context(), "r", 3))(f), []agl.StepMetrics{})
			f.same("of the other", must(f.StepMetrics(f.Context(), "other", -1))(f), []agl.StepMetrics{})
		}},
		{"metrics without a time or a number", "", func(f *fixture) {
			f.createRun("r")
			f.ok(f.AddStepMetrics(f.Context(), "r", agl.StepMetrics{Step: 1, Values: map[string]float64{"nan": math.NaN(), "ok": 1}}))
			got := must(f.StepMetrics(f.Context(), "r", 0))(f)[0]
			f.isNow("time", &got.Time)
			f.same("values", got.Values, map[string]float64{"ok": 1})
		}},
		{"the latest checkpoint is that of the highest step", "", func(f *fixture) {
			f.createRun("r")
			_, err := f.LatestCheckpoint(f.Context(), "r")
			f.refused(err, store.ErrNotFound, "")
			f.same("none", must(f.Checkpoints(f.Context(), "r"))(f), []agl.Checkpoint{})
			put := func(c agl.Checkpoint) { f.ok(f.PutCheckpoint(f.Context(), "r", c)) }
			want := agl.Checkpoint{Step: 7, Time: 3, Path: "/p", Score: new(0.75), State: json.RawMessage(`{"a":[1,1.0]}`)}
			put(want)
			put(agl.Checkpoint{Step: 2, Time: 4})
			f.same("latest", must(f.LatestCheckpoint(f.Context(), "r"))(f), want)
			f.same("all", must(f.Checkpoints(f.Context(), "r"))(f), []agl.Checkpoint{{Step: 2, Time: 4}, {Step: 7, Time: 3, Path: "/p", Score: new(0.75)}})
			put(agl.Checkpoint{Step: 7, Path: "/q"})
			got := must(f.LatestCheckpoint(f.Context(), "r"))(f)
			f.isNow("time", &got.Time)
			f.same("replaced", got, agl.Checkpoint{Step: 7, Time: got.Time, Path: "/q", State: json.RawMessage(`{}`)})
		}},
	}
	for i := range tests {
		tests[i].needs = Runs
	}
	return tests
}
