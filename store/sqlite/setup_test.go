package sqlite

import (
	"encoding/json"
	"strconv"
	"testing"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

func mustJSON(v any) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err)
	}
	return string(b)
}

func digits(n int64) string { return strconv.FormatInt(n, 10) }

// encode encodes spans.
func encode(spans ...agl.Span) []store.EncodedSpan {
	out := make([]store.EncodedSpan, len(spans))
	for i := range spans {
		out[i] = store.EncodeSpan(&spans[i])
	}
	return out
}

// dump tells everything that a reader can see.
func dump(t *testing.T, b engine.Backend) string {
	t.Helper()
	var out string
	err := b.View(t.Context(), func(r engine.Reader) error {
		rollouts, err := r.QueryRollouts(store.RolloutQuery{})
		if err != nil {
			return err
		}
		open, err := r.OpenRollouts()
		if err != nil {
			return err
		}
		length, err := r.QueueLength()
		if err != nil {
			return err
		}
		counts, err := r.Counts()
		if err != nil {
			return err
		}
		// What is held in memory, and how long, is not what the database says.
		content := struct {
			Name                                                                   string
			TotalRollouts, TotalAttempts, TotalSpans, TotalResources, TotalWorkers int64
			Uptime, SpanBytes                                                      int64
		}{counts.Name, counts.TotalRollouts, counts.TotalAttempts, counts.TotalSpans, counts.TotalResources, counts.TotalWorkers, 0, 0}
		out = mustJSON(map[string]any{"rollouts": rollouts, "open": append([]agl.AttemptedRollout{}, open...), "queue": length, "counts": content})
		for _, ro := range rollouts.Items {
			attempts, err := r.QueryAttempts(store.AttemptQuery{RolloutID: ro.RolloutID})
			if err != nil {
				return err
			}
			spans, err := r.QuerySpans(store.SpanQuery{RolloutID: ro.RolloutID})
			if err != nil {
				return err
			}
			out += mustJSON([]any{attempts, spans})
			if ro.Control != nil {
				out += mustJSON(ro.Control)
			}
		}
		resources, err := r.QueryResources(store.ResourcesQuery{})
		if err != nil {
			return err
		}
		workers, err := r.QueryWorkers(store.WorkerQuery{})
		if err != nil {
			return err
		}
		out += mustJSON([]any{resources, workers})
		completed, _, err := r.Completions(0, 100)
		if err != nil {
			return err
		}
		out += mustJSON(completed)
		runs, err := r.Runs(0)
		if err != nil {
			return err
		}
		for _, run := range runs {
			metrics, err := r.StepMetrics(run.RunID, -1)
			if err != nil {
				return err
			}
			checkpoint, _, err := r.LatestCheckpoint(run.RunID)
			if err != nil {
				return err
			}
			out += mustJSON([]any{run, metrics, checkpoint})
			log, err := r.RunLog(store.LogQuery{RunID: run.RunID, Limit: 100})
			if err != nil {
				return err
			}
			if log.Last > 0 { // files of older schemas have none
				out += mustJSON(log)
			}
		}
		models, err := r.Models()
		out += mustJSON(append([]agl.Model{}, models...)) + "\n"
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
