package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/store"
)

// execute does one attempt from the resources to the report. work is the
// context that agents get; it ends when the runner stops.
func (r *Runner) execute(work context.Context, claimed agl.AttemptedRollout) *AttemptError {
	began := time.Now()
	c := &agent.Call{Rollout: claimed, Logger: r.cfg.Logger.With(
		"rollout_id", claimed.RolloutID, "attempt_id", claimed.Attempt.AttemptID)}
	ctx, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	if limit := claimed.Config.TimeoutSeconds; limit != nil {
		d := time.Duration(*limit * float64(time.Second))
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d, fmt.Errorf("%w of %v (config.timeout_seconds) has passed", ErrTimeout, d))
		defer stop()
	}
	defer r.watch.add(claimed, cancel)()

	// What has to be written is written after the agent's context ended, too.
	reports, done := r.reporting(work)
	defer done()
	outcome, failed := r.attempt(ctx, reports, c)
	outcome.Elapsed = time.Since(began)
	if failed != nil {
		outcome.Err = failed
	}
	if c.Resources != nil { // nil: hooks were not told of the start either
		r.hooks(reports, c, "OnRolloutEnd", func(h agent.Hook) error {
			if h.OnRolloutEnd == nil {
				return nil
			}
			return h.OnRolloutEnd(reports, c, outcome)
		})
	}
	r.report(reports, c, outcome, failed)
	return failed
}

// reporting returns a context for what must reach the store although the agent
// is done: it lives for ReportTimeout, but not long beyond the end of work.
func (r *Runner) reporting(work context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(work))
	stop := context.AfterFunc(work, func() {
		defer cancel()
		sleep(ctx, r.cfg.Grace+lastReport)
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// lastReport is how long a stopping runner tries to say how its attempts ended.
const lastReport = time.Second

func (r *Runner) attempt(ctx, reports context.Context, c *agent.Call) (agent.Outcome, *AttemptError) {
	if err := r.resources(ctx, c); err != nil {
		return agent.Outcome{}, err
	}
	r.hooks(ctx, c, "OnRolloutStart", func(h agent.Hook) error { return callHook(ctx, h.OnRolloutStart, c) })

	rollout, attempt := c.Rollout.RolloutID, c.Rollout.Attempt.AttemptID
	traced, trace := r.cfg.Tracer.Start(ctx, rollout, attempt)
	r.hooks(traced, c, "OnTraceStart", func(h agent.Hook) error { return callHook(traced, h.OnTraceStart, c) })
	result, err := r.call(traced, c)
	var failed *AttemptError
	if err != nil || overtaken(ctx) {
		failed = classify(ctx, err)
	} else {
		r.hooks(traced, c, "OnTraceEnd", func(h agent.Hook) error { return callHook(traced, h.OnTraceEnd, c) })
	}
	flush, done := context.WithTimeout(reports, r.cfg.ReportTimeout)
	spans, err := trace.End(flush)
	done()
	if err != nil && failed == nil {
		failed = fail(ReasonSpans, err)
	}
	outcome := agent.Outcome{Spans: spans}
	outcome.Reward = emitted(spans)
	switch {
	case failed == nil:
		failed = r.write(reports, c, result, &outcome)
	case failed.Reason == ReasonPanic:
		if err := r.writeCores(reports, c, []agl.SpanCore{failed.span()}, &outcome); err != nil {
			c.Logger.WarnContext(ctx, "the panic could not be recorded as a span", "err", err)
		}
	}
	return outcome, failed
}

// resources fetches what the rollout was enqueued with and checks that the
// agent can work with it. A rollout that names none, in a store that has none,
// runs without.
func (r *Runner) resources(ctx context.Context, c *agent.Call) *AttemptError {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ReportTimeout)
	defer cancel()
	var update agl.ResourcesUpdate
	err := persist(ctx, func(ctx context.Context) (err error) {
		if id := c.Rollout.ResourcesID; id != nil {
			update, err = r.cfg.Store.Resources(ctx, *id)
			return err
		}
		if update, err = r.cfg.Store.LatestResources(ctx); errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
			return classify(ctx, err)
		}
		what := "the latest resources"
		if id := c.Rollout.ResourcesID; id != nil {
			what = "resources " + *id
		}
		return fail(ReasonResources, fmt.Errorf("fetch %s: %w", what, err))
	}
	c.Resources = update.Resources
	if err := agent.Check(r.cfg.Agent, c); err != nil {
		c.Resources = nil // the hooks are not called
		return fail(ReasonResources, err)
	}
	if c.Resources == nil {
		c.Resources = agl.NamedResources{}
	}
	return r.token(ctx, c)
}

// tokenSource is a store at a server that may ask for tokens. Its answer is
// empty when that does not.
type tokenSource interface {
	AttemptToken(ctx context.Context, at store.Attempted, lifetime time.Duration) (string, error)
}

// tokenSlack is how much longer than its attempt a token lives: for the last
// spans of an agent that is out of time.
const tokenSlack = 10 * time.Minute

// token gets the key with which the agent calls models behind the server's proxy,
// and whatever else of the server it asks for: it must not have the runner's own.
func (r *Runner) token(ctx context.Context, c *agent.Call) *AttemptError {
	source, ok := r.cfg.Store.(tokenSource)
	if !ok || !slices.ContainsFunc(c.Resources, proxied) && !agent.UsesToken(r.cfg.Agent, c.Rollout.Mode) {
		return nil
	}
	var lifetime time.Duration
	if limit := c.Rollout.Config.TimeoutSeconds; limit != nil {
		lifetime = time.Duration(*limit*float64(time.Second)) + tokenSlack
	}
	at := store.Attempted{RolloutID: c.Rollout.RolloutID, AttemptID: c.Rollout.Attempt.AttemptID}
	err := persist(ctx, func(ctx context.Context) (err error) {
		c.Token, err = source.AttemptToken(ctx, at, lifetime)
		return err
	})
	if err != nil {
		c.Resources = nil // the hooks are not called
		return fail(ReasonResources, fmt.Errorf("get a token for the attempt: %w", err))
	}
	return nil
}

func proxied(r agl.NamedResource) bool {
	_, ok := r.Resource.(agl.ProxyLLM)
	return ok
}

// call runs the agent in a goroutine of its own, so that a panic stays there and
// an agent that ignores its context can be left behind.
func (r *Runner) call(ctx context.Context, c *agent.Call) (agent.Result, error) {
	type returned struct {
		result agent.Result
		err    error
	}
	done := make(chan returned, 1)
	go func() {
		var out returned
		defer func() {
			if p := recover(); p != nil {
				out.err = &AttemptError{Reason: ReasonPanic, Err: fmt.Errorf("panic: %v", p), Stack: string(debug.Stack())}
			}
			done <- out
		}()
		out.err = errors.New("the agent ended its goroutine (runtime.Goexit)") // unless Run returns
		out.result, out.err = r.cfg.Agent.Run(ctx, c)
	}()
	select {
	case out := <-done:
		return out.result, out.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(r.cfg.Grace)
	defer grace.Stop()
	select {
	case out := <-done:
		return out.result, out.err
	case <-grace.C:
		c.Logger.ErrorContext(ctx, "the agent goes on although its context has ended; it is left behind",
			"cause", context.Cause(ctx), "grace", r.cfg.Grace)
		return agent.Result{}, context.Cause(ctx)
	}
}

// report tells the store how the attempt ended, unless the store knows better.
func (r *Runner) report(ctx context.Context, c *agent.Call, outcome agent.Outcome, failed *AttemptError) {
	attrs := []any{slog.Duration("elapsed", outcome.Elapsed), slog.Int("spans", len(outcome.Spans))}
	if outcome.Reward != nil {
		attrs = append(attrs, slog.Float64("reward", *outcome.Reward))
	}
	update := store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}
	if failed != nil {
		c.Logger.WarnContext(ctx, "attempt failed", append(attrs, "reason", string(failed.Reason), "err", failed.Err)...)
		switch failed.Reason {
		case ReasonCancelled, ReasonSuperseded:
			// Any update of the attempt would move the rollout out of the status
			// that somebody has given to it.
			return
		case ReasonTimeout:
			update.Status = store.To(agl.AttemptTimeout)
		case ReasonStopped:
			if r.cfg.GiveBack {
				if err := r.giveBack(ctx, &c.Rollout); err != nil {
					c.Logger.WarnContext(ctx, "the rollout is not given back to the queue", "err", err)
				}
			}
			update.Status = store.To(agl.AttemptUnresponsive)
		default:
			update.Status = store.To(agl.AttemptFailed)
		}
		metadata, err := failed.metadata(c.Rollout.Attempt.Metadata)
		if err != nil {
			c.Logger.WarnContext(ctx, "the reason of the failure is not stored", "err", err)
		} else {
			update.Metadata = store.To(metadata)
		}
	} else {
		c.Logger.DebugContext(ctx, "attempt succeeded", attrs...)
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ReportTimeout)
	defer cancel()
	err := persist(ctx, func(ctx context.Context) error {
		_, err := r.cfg.Store.UpdateAttempt(ctx, c.Rollout.RolloutID, c.Rollout.Attempt.AttemptID, update)
		return err
	})
	if err != nil {
		c.Logger.ErrorContext(ctx, "the end of the attempt could not be reported", "status", string(update.Status.Value), "err", err)
	}
}
