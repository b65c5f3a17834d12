package storetest

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

func (f *fixture) pruner() store.Pruner { return f.Store.(store.Pruner) }

// present is the moment of the store, in Unix seconds.
func (f *fixture) present() float64 {
	if f.clock != nil {
		return agl.Seconds(f.clock.Now())
	}
	return agl.Seconds(time.Now())
}

// finished makes rollouts with two attempts and three spans each, and ends them.
func (f *fixture) finished(n int) []string {
	f.Helper()
	ids := make([]string, n)
	for i := range ids {
		first := f.start()
		ids[i] = first.RolloutID
		f.addSpan(first.Attempt)
		second := f.startAttempt(first.RolloutID)
		f.addSpan(second.Attempt)
		f.addSpan(second.Attempt)
		f.setAttempt(second.Attempt, agl.AttemptSucceeded)
	}
	return ids
}

// untold is for work of which nobody wants to hear.
func untold(store.Pruned) error { return nil }

func (f *fixture) left() []string {
	f.Helper()
	var ids []string
	for _, ro := range f.query(store.RolloutQuery{}).Items {
		ids = append(ids, ro.RolloutID)
	}
	return ids
}

func pruneTests() []test {
	return []test{
		{"what ended before and nothing else", Browse, func(f *fixture) {
			f.createRun("run")
			waiting := f.enqueue("1", "2", "3")
			f.setRollout(waiting[0].RolloutID, agl.RolloutCancelled) // keeps its place in the queue until it is deleted
			open := f.claim()
			began := f.present()
			old := f.finished(120)
			f.pass(2)
			cut := f.present()
			f.pass(2)
			fresh := f.finished(3)

			seen := must(f.pruner().Prunable(f.Context(), cut))(f)
			f.same("would go", []int64{seen.Rollouts, seen.Attempts, seen.Spans}, []int64{121, 240, 360})
			f.same("stays", []int64{seen.Open, seen.Later, seen.Runs, seen.Resources, seen.Workers, seen.Looked}, []int64{2, 3, 1, 0, 0, 126})
			if seen.Bytes < 360*50 || seen.Oldest == nil || *seen.Oldest > *seen.Newest || *seen.Newest >= cut || *seen.Newest < began {
				f.Errorf("Prunable() = %+v, want bytes and ends before %v", seen, cut)
			}

			var told []store.Pruned
			done := must(f.pruner().Prune(f.Context(), cut, func(p store.Pruned) error { told = append(told, p); return nil }))(f)
			f.same("deleted", []int64{done.Rollouts, done.Attempts, done.Spans}, []int64{121, 240, 360})
			if done.Bytes != seen.Bytes {
				f.Errorf("deleted %d bytes, announced were %d", done.Bytes, seen.Bytes)
			}
			if len(told) < 3 || told[len(told)-1] != done {
				f.Errorf("told %d times, the last of %+v, want several and in the end all of it", len(told), told)
			}
			f.same("left", f.left(), slices.Concat([]string{open.RolloutID, waiting[2].RolloutID}, fresh))
			st := must(f.Statistics(f.Context()))(f)
			f.same("counts", []int64{st.TotalRollouts, st.TotalAttempts, st.TotalSpans}, []int64{5, 7, 9})
			_, err := f.Rollout(f.Context(), old[7])
			f.refused(err, store.ErrNotFound, "")
			f.same("claimed", f.claim().RolloutID, waiting[2].RolloutID)
			f.same("run", must(f.Store.Run(f.Context(), "run"))(f).RunID, "run")

			again := must(f.pruner().Prune(f.Context(), cut, untold))(f)
			f.same("deleted again", again, store.Pruned{})
			none := must(f.pruner().Prunable(f.Context(), cut))(f)
			f.same("would go", none.Pruned, store.Pruned{})
			if none.Oldest != nil || none.Newest != nil {
				f.Errorf("ends of nothing are %v and %v", none.Oldest, none.Newest)
			}
		}},
		{"the logs of runs that ended", Browse, func(f *fixture) {
			log := func(id string) {
				f.createRun(id)
				f.ok(f.AddLogLines(f.Context(), id, agl.LogLine{Level: agl.LogInfo, Message: "a"}, agl.LogLine{Level: agl.LogInfo, Message: "b"}))
			}
			end := func(id string) {
				must(f.UpdateRun(f.Context(), id, store.RunUpdate{Status: store.To(agl.RunFailed)}))(f)
			}
			for _, id := range []string{"old", "open", "new"} {
				log(id)
			}
			end("old")
			f.pass(1)
			cut := f.present()
			f.pass(1)
			end("new")
			p := f.pruner()
			f.same("would go", must(p.Prunable(f.Context(), cut))(f).Pruned, store.Pruned{LogLines: 2, Bytes: 6})
			f.same("deleted", must(p.Prune(f.Context(), cut, untold))(f), store.Pruned{LogLines: 2, Bytes: 6})
			f.same("deleted again", must(p.Prune(f.Context(), cut, untold))(f), store.Pruned{})
			for id, want := range map[string][]int{"old": {0, 2}, "open": {2, 0}, "new": {2, 0}} {
				page := must(f.RunLog(f.Context(), store.LogQuery{RunID: id}))(f)
				f.same("lines and dropped of "+id, []int{len(page.Lines), int(page.Dropped)}, want)
			}
			f.ok(f.AddLogLines(f.Context(), "old", agl.LogLine{Level: agl.LogInfo, Message: "c"}))
			f.same("position", must(f.RunLog(f.Context(), store.LogQuery{RunID: "old"}))(f).Lines[0].Position, int64(3))
		}},
		{"nothing that has not ended, however old", Browse, func(f *fixture) {
			f.enqueue("1", "2")
			f.claim()
			again := f.finished(1)[0]
			f.setRollout(again, agl.RolloutRequeuing)
			f.pass(5)
			f.same("deleted", must(f.pruner().Prune(f.Context(), math.Inf(1), untold))(f), store.Pruned{})
			f.same("left", len(f.left()), 3)
		}},
		{"more than a page, with holes", Browse, func(f *fixture) {
			ids := make([]string, 0, 2500)
			for range 5 {
				for _, ro := range must(f.EnqueueRollouts(f.Context(), make([]store.EnqueueRequest, 500)))(f) {
					ids = append(ids, ro.RolloutID)
				}
			}
			// Two of three end, so that memory closes its holes while it goes on.
			var kept []string
			for i, id := range ids {
				if i%3 == 2 {
					kept = append(kept, id)
					continue
				}
				f.setRollout(id, agl.RolloutCancelled)
			}
			seen := must(f.pruner().Prunable(f.Context(), math.Inf(1)))(f)
			f.same("looked at", []int64{seen.Looked, seen.Rollouts, seen.Open}, []int64{2500, 1667, 833})
			done := must(f.pruner().Prune(f.Context(), math.Inf(1), untold))(f)
			f.same("deleted", done.Rollouts, int64(1667))
			f.same("left", f.left(), kept)
		}},
		{"ends when it is told to", Browse, func(f *fixture) {
			all := f.finished(130)
			f.pass(1)
			enough := errors.New("enough")
			done, err := f.pruner().Prune(f.Context(), math.Inf(1), func(p store.Pruned) error {
				if p.Rollouts > 60 {
					return enough
				}
				return nil
			})
			if !errors.Is(err, enough) || done.Rollouts != 100 {
				f.Errorf("Prune() = %+v, %v, want 100 rollouts and %v", done, err, enough)
			}
			f.same("left", f.left(), all[100:])
			ctx, cancel := context.WithCancel(f.Context())
			cancel()
			if _, err := f.pruner().Prune(ctx, math.Inf(1), untold); !errors.Is(err, context.Canceled) {
				f.Errorf("Prune() = %v, want %v", err, context.Canceled)
			}
			if _, err := f.pruner().Prunable(ctx, math.Inf(1)); !errors.Is(err, context.Canceled) {
				f.Errorf("Prunable() = %v, want %v", err, context.Canceled)
			}
			f.same("left", len(f.left()), 30)
		}},
		{"an id that is made again is new", Browse, func(f *fixture) {
			f.controlled("a")
			f.event("a", "0", "first")
			f.patch("a", toState(agl.RolloutFailed))
			f.pass(1)
			f.same("deleted", must(f.pruner().Prune(f.Context(), math.Inf(1), untold))(f).Rollouts, int64(1))
			f.controlled("a")
			f.same("number", f.event("a", "0", "again").SequenceID, int64(1))
		}},
	}
}
