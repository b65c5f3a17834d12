package runner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/semconv"
	"agentlightning/store"
)

// write stores what the agent returned: spans, then cores, then the reward, so
// that the returned reward is the last and therefore the final one.
func (r *Runner) write(ctx context.Context, c *agent.Call, result agent.Result, outcome *agent.Outcome) *AttemptError {
	if result.Spans != nil && len(result.Spans) == 0 || result.Cores != nil && len(result.Cores) == 0 {
		c.Logger.WarnContext(ctx, "the agent returned an empty list of spans")
	}
	if len(result.Spans) > 0 {
		if err := r.addSpans(ctx, result.Spans); err != nil {
			return fail(ReasonResult, fmt.Errorf("write returned spans: %w", err))
		}
		outcome.Spans = append(outcome.Spans, result.Spans...)
		outcome.Reward = emitted(outcome.Spans)
	}
	cores := result.Cores
	if result.Reward != nil {
		value := *result.Reward
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return fail(ReasonResult, fmt.Errorf("the agent returned the reward %v; a reward must be a finite number", value))
		}
		if outcome.Reward != nil {
			r.rewardOnce.Do(func() {
				c.Logger.WarnContext(ctx, "the agent both emitted and returned a reward; the returned one is final, emitted ones are intermediate (said once)",
					"emitted", *outcome.Reward, "returned", value)
			})
		}
		cores = append(slices.Clip(cores), reward(value))
	}
	if len(cores) > 0 {
		if err := r.writeCores(ctx, c, cores, outcome); err != nil {
			return fail(ReasonResult, fmt.Errorf("write the result: %w", err))
		}
		outcome.Reward = emitted(outcome.Spans)
	}
	return nil
}

// writeCores completes spans with sequence ids and stores them.
func (r *Runner) writeCores(ctx context.Context, c *agent.Call, cores []agl.SpanCore, outcome *agent.Outcome) error {
	attempted := store.Attempted{RolloutID: c.Rollout.RolloutID, AttemptID: c.Rollout.Attempt.AttemptID}
	wanted := make([]store.Attempted, len(cores))
	for i := range wanted {
		wanted[i] = attempted
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ReportTimeout)
	defer cancel()
	var ids []int64
	err := persist(ctx, func(ctx context.Context) (err error) {
		ids, err = r.cfg.Store.NextSequenceIDs(ctx, wanted)
		return err
	})
	if err != nil {
		return fmt.Errorf("sequence ids: %w", err)
	}
	if len(ids) != len(cores) {
		return fmt.Errorf("sequence ids: got %d, asked for %d", len(ids), len(cores))
	}
	spans := make([]agl.Span, len(cores))
	for i, core := range cores {
		spans[i] = core.Span(attempted.RolloutID, attempted.AttemptID, ids[i], agl.Seconds(time.Now()))
	}
	if err := r.addSpans(ctx, spans); err != nil {
		return err
	}
	outcome.Spans = append(outcome.Spans, spans...)
	return nil
}

func (r *Runner) addSpans(ctx context.Context, spans []agl.Span) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ReportTimeout)
	defer cancel()
	return persist(ctx, func(ctx context.Context) error {
		added, err := r.cfg.Store.AddSpans(ctx, spans)
		if err != nil {
			return err
		}
		var refused []error
		for i := range added {
			if added[i].Err != nil {
				refused = append(refused, fmt.Errorf("span %q: %w", spans[i].Name, added[i].Err))
			}
		}
		return errors.Join(refused...)
	})
}

// emitted returns the last reward among spans, nil when there is none. Spans
// whose reward attributes do not add up are not rewards.
func emitted(spans []agl.Span) *float64 {
	for i := len(spans) - 1; i >= 0; i-- {
		if v, err := agl.RewardValue(&spans[i]); err == nil && v != nil {
			return v
		}
	}
	return nil
}

func reward(value float64) agl.SpanCore {
	return pointSpan(semconv.SpanAnnotation, agl.Attributes{
		{Key: semconv.RewardName(0), Value: semconv.PrimaryReward},
		{Key: semconv.RewardValue(0), Value: value},
	})
}

// span is the panic as an exception span.
func (e *AttemptError) span() agl.SpanCore {
	return pointSpan(semconv.SpanException, agl.Attributes{
		{Key: semconv.ExceptionType, Value: string(e.Reason)},
		{Key: semconv.ExceptionMessage, Value: e.Err.Error()},
		{Key: semconv.ExceptionEscaped, Value: true},
		{Key: semconv.ExceptionStack, Value: e.Stack},
	})
}

func pointSpan(name string, attributes agl.Attributes) agl.SpanCore {
	now := agl.Seconds(time.Now())
	return agl.SpanCore{
		Name: name, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: attributes,
		StartTime: &now, EndTime: &now,
	}
}
