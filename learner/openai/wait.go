package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/openai/openai-go/v3"

	agl "agentlightning"
	"agentlightning/learner"
)

// cancelLimit bounds how long a job may take to be cancelled when its waiter was
// told to stop.
const cancelLimit = 10 * time.Second

// Wait implements [learner.Tuner].
func (t *Tuner) Wait(ctx context.Context, ticket learner.Ticket, report func(learner.TuningProgress)) (learner.Tuned, error) {
	if ticket.ID == "" || len(ticket.Key) < 12 {
		return learner.Tuned{}, fmt.Errorf("openai: ticket %+v: is not one that Start returned", ticket)
	}
	if report == nil {
		report = func(learner.TuningProgress) {}
	}
	w := &watch{Tuner: t, id: ticket.ID, report: report, metrics: learner.Metrics{}}
	job, err := w.finish(ctx)
	if err != nil {
		if ctx.Err() != nil && t.cfg.CancelOnStop {
			err = errors.Join(err, t.cancel(ctx, ticket.ID))
		}
		return learner.Tuned{}, fmt.Errorf("openai: %w", err)
	}
	tuned := learner.Tuned{
		Model: job.FineTunedModel, TrainedTokens: job.TrainedTokens, Metrics: w.metrics,
		Cost:    float64(job.TrainedTokens) / 1e6 * t.cfg.PricePerMillion,
		Backend: agl.Model{Endpoint: t.cfg.BaseURL, Target: job.FineTunedModel, APIKeyEnv: t.cfg.APIKeyEnv},
	}
	if t.cfg.Azure != nil {
		name, err := t.deploy(ctx, job.FineTunedModel, ticket.Key, report)
		if err != nil {
			return learner.Tuned{}, fmt.Errorf("openai: deploy model %s: %w", job.FineTunedModel, err)
		}
		tuned.Backend.Target, tuned.Backend.Kind, tuned.Backend.APIVersion = name, agl.BackendAzure, t.cfg.Azure.APIVersion
	}
	t.cfg.Logger.InfoContext(ctx, "fine-tuning job done", "job_id", ticket.ID, "model", tuned.Model,
		"trained_tokens", tuned.TrainedTokens, "cost", tuned.Cost)
	return tuned, nil
}

// watch follows one job.
type watch struct {
	*Tuner
	id      string
	report  func(learner.TuningProgress)
	status  string
	last    string // message
	seen    string // id of the newest event that was reported
	metrics learner.Metrics
}

// finish returns the job when it has succeeded.
func (w *watch) finish(ctx context.Context) (*openai.FineTuningJob, error) {
	for began := time.Now(); ; {
		var job *openai.FineTuningJob
		err := w.try(ctx, "look at the fine-tuning job", func(ctx context.Context) error {
			got, err := w.jobs.Get(ctx, w.id)
			if err == nil && (got.ID == "" || got.Status == "" ||
				got.Status == openai.FineTuningJobStatusSucceeded && got.FineTunedModel == "") {
				err = errIncomplete
			}
			job = got
			return err
		})
		if err != nil {
			return nil, err
		}
		if err := w.events(ctx); err != nil {
			return nil, err
		}
		if status := string(job.Status); status != w.status {
			w.status = status
			w.report(learner.TuningProgress{Status: status})
			w.cfg.Logger.InfoContext(ctx, "fine-tuning job", "job_id", w.id, "status", status)
		}
		switch job.Status { //nolint:exhaustive // the others go on, those that are not known yet too
		case openai.FineTuningJobStatusSucceeded:
			return job, nil
		case openai.FineTuningJobStatusFailed, openai.FineTuningJobStatusCancelled:
			e := &learner.TuningError{ID: w.id, Status: string(job.Status), Code: job.Error.Code, Param: job.Error.Param, Message: job.Error.Message}
			if e.Message == "" {
				e.Message = w.last
			}
			return nil, e
		}
		if waited := time.Since(began); waited > w.cfg.Limit {
			return nil, fmt.Errorf("fine-tuning job %s is %s after %v (Limit); it goes on at the service; the last it said was %q", w.id, w.status, w.cfg.Limit, w.last)
		}
		if err := pause(ctx, w.cfg.PollEvery); err != nil {
			return nil, err
		}
	}
}

// events reports those that came since the last look, in order.
func (w *watch) events(ctx context.Context) error {
	var fresh []openai.FineTuningJobEvent
	err := w.try(ctx, "read the events of the fine-tuning job", func(ctx context.Context) error {
		fresh = nil
		for p, err := w.jobs.ListEvents(ctx, w.id, openai.FineTuningJobListEventsParams{Limit: openai.Int(page)}); ; p, err = p.GetNextPage() {
			if err != nil || p == nil {
				return err
			}
			for _, e := range p.Data { // newest first
				if e.ID == w.seen {
					return nil
				}
				fresh = append(fresh, e)
			}
		}
	})
	if err != nil {
		return err
	}
	for _, e := range slices.Backward(fresh) {
		w.seen, w.last = e.ID, e.Message
		measured := numbers(e)
		maps.Copy(w.metrics, measured)
		w.report(learner.TuningProgress{Status: w.status, Message: e.Message, Metrics: measured})
		w.cfg.Logger.DebugContext(ctx, "fine-tuning event", "job_id", w.id, "level", e.Level, "message", e.Message)
	}
	return nil
}

// numbers are the measurements of an event.
func numbers(e openai.FineTuningJobEvent) learner.Metrics {
	var event struct {
		Data map[string]any `json:"data"`
	}
	if e.Type != openai.FineTuningJobEventTypeMetrics || json.Unmarshal([]byte(e.RawJSON()), &event) != nil {
		return nil
	}
	out := learner.Metrics{}
	for name, v := range event.Data {
		if f, ok := v.(float64); ok {
			out[name] = f
		}
	}
	return out
}

// cancel ends a job although ctx has ended.
func (t *Tuner) cancel(ctx context.Context, id string) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), cancelLimit)
	defer done()
	if _, err := t.jobs.Cancel(ctx, id); err != nil {
		return fmt.Errorf("cancel fine-tuning job %s, which may go on: %w", id, words(err))
	}
	return nil
}
