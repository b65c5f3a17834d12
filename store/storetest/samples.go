package storetest

import (
	"encoding/json"
	"fmt"
	"slices"

	agl "agentlightning"
	"agentlightning/semconv"
	"agentlightning/store"
)

// sampled is a rollout of a run with what it earned.
type sampled struct {
	task     string
	mode     agl.Mode
	step     int
	reward   *float64
	baseline bool
}

// sample stores rollouts of a run, each with an attempt, and returns their ids.
func (f *fixture) sample(run string, list ...sampled) []string {
	f.Helper()
	var out []string
	for _, s := range list {
		metadata := fmt.Sprintf(`{"agl.run_id":%q,"agl.step":%d}`, run, s.step)
		if s.baseline {
			metadata = fmt.Sprintf(`{"agl.run_id":%q,"agl.step":%d,"agl.baseline":true}`, run, s.step)
		}
		out = append(out, must(f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{{
			Input: json.RawMessage(s.task), Mode: s.mode, Metadata: json.RawMessage(metadata),
		}}))(f)[0].RolloutID)
		f.pass(1)
		got := must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 1}))(f)[0]
		if s.reward != nil {
			note := agl.SpanCore{Name: semconv.SpanAnnotation, Attributes: agl.Attributes{
				{Key: semconv.RewardName(0), Value: "primary"}, {Key: semconv.RewardValue(0), Value: *s.reward},
			}}
			f.addSpans(note.Span(got.RolloutID, got.Attempt.AttemptID, 1, 1))
		}
		f.setAttempt(got.Attempt, agl.AttemptSucceeded)
	}
	return out
}

func (f *fixture) changes(q store.SamplesQuery) store.SamplesPage {
	f.Helper()
	return must(f.Store.(store.Browser).TaskChanges(f.Context(), q))(f)
}

// told is a task of the answer, in short.
func told(items []store.TaskChange) []string {
	out := make([]string, len(items))
	short := func(t store.TaskTried) string {
		reward := "none"
		if t.Reward != nil {
			reward = fmt.Sprint(*t.Reward)
		}
		return fmt.Sprintf("%s of %d/%d at %d", reward, t.Rewarded, t.Tried, t.Step)
	}
	for i, item := range items {
		out[i] = fmt.Sprintf("%s: %s, %s", item.Task, short(item.Before), short(item.After))
	}
	return out
}

func sampleTests() []test {
	const train, val = agl.ModeTrain, agl.ModeVal
	return []test{
		{"the tasks of a run are compared early and late", Browse, func(f *fixture) {
			f.createRun("r")
			f.createRun("other")
			all := f.sample(
				"r",
				// Training: the words of a task may change as long as its id stays.
				sampled{task: `{"id":"a","q":"one"}`, mode: train, step: 1, reward: new(0.0)},
				sampled{task: `{"id":"a","q":"one"}`, mode: train, step: 1, reward: new(1.0)},
				sampled{task: `{"id":"a","q":"one"}`, mode: train, step: 3, reward: new(0.25)},
				sampled{task: `{"q":"two","id":"a"}`, mode: train, step: 7, reward: new(1.0)},
				sampled{task: `{"id":"a","q":"one"}`, mode: train, step: 7},
				sampled{task: `"words"`, mode: train, step: 2, reward: new(1.0)},
				sampled{task: `"words"`, mode: train, step: 7, reward: new(0.25)},
				sampled{task: `{"data_id":5}`, mode: train, step: 1, reward: new(0.5)},
				sampled{task: `{"data_id":5}`, mode: train, step: 7, reward: new(0.5)},
				sampled{task: `{"data_id":6}`, mode: train, step: 1, reward: new(0.0)},
				sampled{task: `{"data_id":6}`, mode: train, step: 7, reward: new(0.0)},
				sampled{task: `"crash"`, mode: train, step: 1, reward: new(1.0)},
				sampled{task: `"crash"`, mode: train, step: 7},
				sampled{task: `"once"`, mode: train, step: 7, reward: new(1.0)},
				// A baseline is no sample, and validation of one step compares nothing.
				sampled{task: `"once"`, mode: val, step: 1, reward: new(1.0), baseline: true},
				sampled{task: `"words"`, mode: val, step: 7, reward: new(1.0)},
			)
			f.sample("other", sampled{task: `"once"`, mode: train, step: 1, reward: new(0.0)})

			got := f.changes(store.SamplesQuery{RunID: "r"})
			equal(f, "mode", got.Mode, train)
			f.same("improved", told(got.Items), []string{`{"id":"a","q":"one"}: 0.5 of 2/2 at 1, 1 of 1/2 at 7`})
			f.same("steps", got.Steps, []int64{1, 2, 3, 7})
			f.same("modes", got.Modes, []agl.Mode{val, train})
			f.same("counts", []int{got.Total, got.Improved, got.Worsened, got.Unchanged, got.Unrewarded, got.Once, got.Stepless}, []int{1, 1, 1, 2, 1, 1, 0})
			equal(f, "mean before", *got.Before, (0.5+1+0.5+0)/4)
			equal(f, "mean after", *got.After, (1+0.25+0.5+0)/4)
			equal(f, "change", *got.Items[0].Change, 0.5)
			equal(f, "complete", got.Complete, true)
			equal(f, "examined", got.Examined, len(all)+1)
			before := got.Items[0].Before.Rollouts
			sameIDs(f, "rollouts before", []string{before[0].RolloutID, before[1].RolloutID}, all[:2])
			equal(f, "a reward", *before[1].Reward, 1)
			equal(f, "a status", before[1].Status, agl.RolloutSucceeded)
			if before[1].AttemptID == "" {
				f.Error("the attempt of a sample is not named")
			}

			for order, want := range map[store.SampleOrder][]string{
				store.MostWorsened:  {`"words": 1 of 1/1 at 2, 0.25 of 1/1 at 7`},
				store.Unchanged:     {`{"data_id":6}: 0 of 1/1 at 1, 0 of 1/1 at 7`, `{"data_id":5}: 0.5 of 1/1 at 1, 0.5 of 1/1 at 7`},
				store.NotComparable: {`"crash": 1 of 1/1 at 1, none of 0/1 at 7`},
			} {
				f.same(string(order), told(f.changes(store.SamplesQuery{RunID: "r", Order: order}).Items), want)
			}
			second := f.changes(store.SamplesQuery{RunID: "r", Order: store.Unchanged, Limit: 1, Offset: 1})
			f.same("second page", told(second.Items), []string{`{"data_id":5}: 0.5 of 1/1 at 1, 0.5 of 1/1 at 7`})
			equal(f, "total of a part", second.Total, 2)

			chosen := f.changes(store.SamplesQuery{RunID: "r", Before: new(int64(3)), After: new(int64(7))})
			f.same("steps that are chosen", told(chosen.Items), []string{`{"id":"a","q":"one"}: 0.25 of 1/1 at 3, 1 of 1/2 at 7`})
			equal(f, "tasks without the step", chosen.Once, 5)

			validated := f.changes(store.SamplesQuery{RunID: "r", Mode: new(val)})
			equal(f, "nothing to compare", validated.Once, 1)
			f.sample("r", sampled{task: `"words"`, mode: val, step: 9, reward: new(2.0)})
			preferred := f.changes(store.SamplesQuery{RunID: "r"})
			equal(f, "preferred", preferred.Mode, val)
			f.same("validated", told(preferred.Items), []string{`"words": 1 of 1/1 at 7, 2 of 1/1 at 9`})

			found := f.browse(store.BrowseQuery{RunID: "r", SameTask: all[0], ModeIn: []agl.Mode{train}})
			sameIDs(f, "of one task", browsedIDs(found.Items), all[:5])
			equal(f, "of the task of nothing", f.browse(store.BrowseQuery{SameTask: "ro-none"}).Total, 0)
		}},
		{"samples that make no sense are refused", Browse, func(f *fixture) {
			f.createRun("r")
			ask := func(q store.SamplesQuery) error {
				_, err := f.Store.(store.Browser).TaskChanges(f.Context(), q)
				return err
			}
			f.refused(ask(store.SamplesQuery{RunID: "nothing"}), store.ErrNotFound, "")
			for _, q := range []store.SamplesQuery{
				{Order: "best"}, {Limit: 1001}, {Limit: -1}, {Offset: -1}, {Before: new(int64(3)), After: new(int64(3))},
			} {
				q.RunID = "r"
				f.refused(ask(q), store.ErrInvalid, "")
			}
		}},
		{"both ends of a long run are compared", Browse, func(f *fixture) {
			f.createRun("r")
			many := func(n, step int) {
				reqs := slices.Repeat([]store.EnqueueRequest{{
					Input: json.RawMessage(`"filler"`), Mode: val, Metadata: fmt.Appendf(nil, `{"agl.run_id":"r","agl.step":%d}`, step),
				}}, n)
				must(f.EnqueueRollouts(f.Context(), reqs))(f)
				f.pass(1)
				// Out of the way of those that are claimed.
				must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: n}))(f)
				f.ok(f.AddStepMetrics(f.Context(), "r", agl.StepMetrics{Step: step}))
				f.pass(1)
			}
			task := func(step int, reward float64) {
				f.sample("r", sampled{task: `"t"`, mode: train, step: step, reward: &reward})
				f.ok(f.AddStepMetrics(f.Context(), "r", agl.StepMetrics{Step: step}))
				f.pass(1)
			}
			task(1, 0.25)
			many(store.SamplesLimit, 5)
			task(10, 0.5)
			many(store.SamplesLimit, 15)
			last := f.sample("r", sampled{task: `"t"`, mode: train, step: 20, reward: new(1.0)}, sampled{task: `"t"`, mode: train, step: 20, reward: new(0.5)})
			f.ok(f.AddStepMetrics(f.Context(), "r", agl.StepMetrics{Step: 20}))
			got := f.changes(store.SamplesQuery{RunID: "r", Mode: new(train)})
			f.same("ends", told(got.Items), []string{`"t": 0.25 of 1/1 at 1, 0.75 of 2/2 at 20`})
			after := got.Items[0].After.Rollouts
			sameIDs(f, "rollouts of the newest end", []string{after[0].RolloutID, after[1].RolloutID}, last)
			equal(f, "complete", got.Complete, false)
			equal(f, "examined", got.Examined, 2*store.SamplesLimit)
			got = f.changes(store.SamplesQuery{RunID: "r", Mode: new(train), After: new(int64(10))})
			f.same("a step in the middle", told(got.Items), []string{`"t": 0.25 of 1/1 at 1, 0.5 of 1/1 at 10`})
		}},
	}
}
