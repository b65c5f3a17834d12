package memory_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// change uses every verb, so that tag tells apart what two calls did.
func change(tx engine.Tx, tag string, now float64) error {
	limited := agl.RolloutConfig{TimeoutSeconds: new(1.0), MaxAttempts: 1}
	ro := agl.Rollout{RolloutID: "ro-" + tag, Status: agl.RolloutRunning, Config: limited}
	other := agl.Rollout{RolloutID: "ro2-" + tag, Status: agl.RolloutQueuing, Config: limited}
	at := agl.Attempt{RolloutID: ro.RolloutID, AttemptID: "at-" + tag, SequenceID: 1}
	gone := agl.Attempt{RolloutID: ro.RolloutID, AttemptID: "gone-" + tag, SequenceID: 2}
	span := agl.Span{RolloutID: ro.RolloutID, AttemptID: at.AttemptID, SpanID: "s"}
	steps := []error{
		tx.InsertRollouts([]agl.Rollout{ro, other}),
		tx.InsertAttempts([]agl.Attempt{at, gone}),
		tx.DeleteAttempts([]store.Attempted{{RolloutID: ro.RolloutID, AttemptID: gone.AttemptID}}),
		tx.Push([]string{ro.RolloutID, other.RolloutID, ro.RolloutID}),
		tx.PushFront([]string{"front-" + tag, other.RolloutID}),
		tx.RaiseSequenceID(ro.RolloutID, 7),
		tx.PutResources(agl.ResourcesUpdate{ResourcesID: "rs", Version: len(tag)}),
		tx.PutResources(agl.ResourcesUpdate{ResourcesID: "rs-" + tag, Version: 1}),
		tx.PutWorkers([]agl.Worker{{WorkerID: "w", CurrentRolloutID: &tag}, {WorkerID: "w-" + tag}}),
		tx.InsertRun(agl.Run{RunID: "run-" + tag}),
		tx.UpdateRun(agl.Run{RunID: "run-" + tag, Algorithm: tag}),
		tx.PutStepMetrics("run-"+tag, []agl.StepMetrics{{Step: 3}, {Step: 1}, {Step: 3, Time: 1}}),
		tx.PutCheckpoint("run-"+tag, agl.Checkpoint{Step: 2}),
		tx.PutCheckpoint("run-"+tag, agl.Checkpoint{Step: 1}),
		tx.AppendLogLines("run-"+tag, []agl.LogLine{{Message: "a"}, {Message: "b"}, {Message: tag}}, engine.LogBounds{Lines: 2, Bytes: 100}),
		tx.InsertRun(agl.Run{RunID: "doomed-" + tag}),
		tx.AppendLogLines("doomed-"+tag, []agl.LogLine{{Message: tag}}, engine.LogBounds{Lines: 2, Bytes: 100}),
		tx.PutModels([]agl.Model{{Name: tag}}),
		tx.PutAnswer("key", []byte(tag), now+5),
		tx.PutAnswer("key-"+tag, []byte(tag), now+5),
	}
	if _, err := tx.InsertSpans(encode(span, span)); err != nil {
		steps = append(steps, err)
	}
	doomed := agl.Rollout{RolloutID: "doomed-" + tag, Status: agl.RolloutRunning, Config: limited, Control: &agl.Control{Version: 1}}
	steps = append(steps,
		tx.InsertRollouts([]agl.Rollout{doomed}),
		tx.InsertAttempts([]agl.Attempt{{RolloutID: doomed.RolloutID, AttemptID: "at-" + tag, SequenceID: 1}}),
		tx.Push([]string{doomed.RolloutID}),
		tx.RaiseSequenceID(doomed.RolloutID, 4),
		tx.AppendCompletion(doomed.RolloutID),
	)
	if _, err := tx.InsertSpans(encode(agl.Span{RolloutID: doomed.RolloutID, AttemptID: "at-" + tag, SpanID: "s"})); err != nil {
		steps = append(steps, err)
	}
	if _, err := tx.TakeSequenceIDs("ro-unknown", 2); err != nil {
		steps = append(steps, err)
	}
	return errors.Join(steps...)
}

// touch changes what an earlier change made.
func touch(tx engine.Tx, tag string) error {
	id := "ro-" + tag
	_, popErr := tx.Pop(2)
	_, takeErr := tx.TakeSequenceIDs(id, -3)
	_, spanErr := tx.InsertSpans(encode(agl.Span{RolloutID: id, AttemptID: "at-" + tag, SpanID: "t"}))
	return errors.Join(popErr, takeErr, spanErr,
		tx.UpdateRollouts([]agl.Rollout{
			{RolloutID: id, Status: agl.RolloutFailed, Input: json.RawMessage("2")},
			{RolloutID: "ro2-" + tag, Status: agl.RolloutPreparing, Config: agl.RolloutConfig{UnresponsiveSeconds: new(2.0)}},
		}),
		tx.UpdateSpan(encode(agl.Span{RolloutID: id, AttemptID: "at-" + tag, SpanID: "s", Name: "other"})[0]),
		tx.DeleteRollouts([]string{"doomed-" + tag, "unknown"}),
		tx.AppendCompletion(id),
		tx.UpdateAttempts([]agl.Attempt{{RolloutID: id, AttemptID: "at-" + tag, SequenceID: 1, Status: agl.AttemptFailed}}),
		tx.InsertAttempts([]agl.Attempt{{RolloutID: "ro2-" + tag, AttemptID: "new", SequenceID: 1}}),
		tx.UpdateRun(agl.Run{RunID: "run-" + tag, Error: "x"}),
		tx.PutStepMetrics("run-"+tag, []agl.StepMetrics{{Step: 1, Time: 9}, {Step: 9}}),
		tx.PutCheckpoint("run-"+tag, agl.Checkpoint{Step: 2, Path: "x"}),
		tx.AppendLogLines("run-"+tag, []agl.LogLine{{Message: "c"}}, engine.LogBounds{Lines: 2, Bytes: 100}),
		tx.DeleteRun("doomed-"+tag),
		tx.EmptyLog("run-"+tag),
		tx.PutModels(nil))
}

// dump reads everything.
func dump(t *testing.T, b *memory.Backend) string {
	t.Helper()
	var all []any
	read := func(v any, err error) {
		if err != nil {
			t.Error(err)
		}
		all = append(all, v)
	}
	err := b.View(t.Context(), func(r engine.Reader) error {
		page, err := r.QueryRollouts(store.RolloutQuery{})
		read(page, err)
		for _, ro := range page.Items {
			read(ro.Control, nil)
			read(r.QueryAttempts(store.AttemptQuery{RolloutID: ro.RolloutID}))
			read(r.QuerySpans(store.SpanQuery{RolloutID: ro.RolloutID}))
			if ro.Attempt != nil {
				read(r.QuerySpans(store.SpanQuery{RolloutID: ro.RolloutID, AttemptID: &ro.Attempt.AttemptID}))
			}
		}
		read(r.OpenRollouts())
		completed, _, err := r.Completions(0, 100)
		read(completed, err)
		read(r.QueueLength())
		read(r.QueryResources(store.ResourcesQuery{}))
		latest, _, err := r.LatestResources()
		read(latest, err)
		read(r.QueryWorkers(store.WorkerQuery{}))
		runs, err := r.Runs(0)
		read(runs, err)
		for _, run := range runs {
			read(r.StepMetrics(run.RunID, -1))
			c, ok, err := r.LatestCheckpoint(run.RunID)
			read(fmt.Sprint(c, ok), err)
			read(r.RunLog(store.LogQuery{RunID: run.RunID, Limit: 10}))
		}
		read(r.Models())
		read(r.Counts())
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// What only a transaction can read; it changes nothing in the end.
	_ = b.Update(t.Context(), func(tx engine.Tx) error {
		read(tx.Pop(100))
		for _, id := range []string{"ro-a", "ro-b", "ro-unknown"} {
			read(tx.TakeSequenceIDs(id, 0))
		}
		for _, key := range []string{"key", "key-a", "key-b"} {
			text, ok, err := tx.Answer(key, 0)
			read(fmt.Sprintf("%s %v", text, ok), err)
		}
		return errUndo
	})
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

var errUndo = errors.New("undo")

func TestFailedTransactionsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(tx engine.Tx) error{
		"error": func(engine.Tx) error { return errUndo },
		"panic": func(engine.Tx) error { panic(errUndo) },
		"broken promise": func(tx engine.Tx) error {
			if err := tx.InsertRollouts([]agl.Rollout{{RolloutID: "ro-z"}, {RolloutID: "ro-a"}}); err == nil {
				t.Error("a rollout was inserted twice")
			}
			return errUndo
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := memory.New()
			update := func(f func(tx engine.Tx) error) (err error) {
				defer func() {
					if r := recover(); r != nil {
						err = r.(error)
					}
				}()
				return b.Update(t.Context(), f)
			}
			if err := update(func(tx engine.Tx) error { return change(tx, "a", 0) }); err != nil {
				t.Fatal(err)
			}
			before := dump(t, b)
			for what, f := range map[string]func(tx engine.Tx) error{
				"additions": func(tx engine.Tx) error { return change(tx, "b", 0) },
				"changes":   func(tx engine.Tx) error { return touch(tx, "a") },
				"both":      func(tx engine.Tx) error { return errors.Join(touch(tx, "a"), change(tx, "b", 0), touch(tx, "b")) },
			} {
				err := update(func(tx engine.Tx) error {
					if err := f(tx); err != nil {
						t.Errorf("%s: %v", what, err)
					}
					return fail(tx)
				})
				if !errors.Is(err, errUndo) {
					t.Errorf("%s: Update = %v, want %v", what, err, errUndo)
				}
				if diff := cmp.Diff(before, dump(t, b)); diff != "" {
					t.Errorf("%s left a trace (-before +after):\n%s", what, diff)
				}
			}
			// And the state is sound: what failed can be done.
			if err := update(func(tx engine.Tx) error { return errors.Join(change(tx, "b", 0), touch(tx, "a"), touch(tx, "b")) }); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnswersExpire(t *testing.T) {
	t.Parallel()
	b := memory.New()
	err := b.Update(t.Context(), func(tx engine.Tx) error {
		for i := range 10 {
			if err := tx.PutAnswer(fmt.Sprint(i), []byte{byte(i)}, float64(i)); err != nil {
				return err
			}
		}
		for i := range 10 {
			if _, ok, err := tx.Answer(fmt.Sprint(i), 5); err != nil || ok != (i > 5) {
				t.Errorf("answer %d is there: %v, %v, want %v", i, ok, err, i > 5)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestCancelledContextStartsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := memory.New()
	if err := b.Update(ctx, func(engine.Tx) error { t.Error("it ran"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Update = %v, want context.Canceled", err)
	}
	if err := b.View(ctx, func(engine.Reader) error { t.Error("it ran"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("View = %v, want context.Canceled", err)
	}
}

// encode encodes spans.
func encode(spans ...agl.Span) []store.EncodedSpan {
	out := make([]store.EncodedSpan, len(spans))
	for i := range spans {
		out[i] = store.EncodeSpan(&spans[i])
	}
	return out
}
