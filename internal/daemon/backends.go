package daemon

import (
	"context"
	"errors"
	"time"

	agl "agentlightning"
	"agentlightning/internal/history"
	"agentlightning/llmproxy"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// backends tells of the model backends behind a proxy.
type backends struct {
	proxy   *llmproxy.Proxy
	started float64
}

var _ storehttp.Backends = backends{}

// Backends implements [storehttp.Backends].
func (b backends) Backends(ctx context.Context) (storehttp.BackendReport, error) {
	if err := b.proxy.Refresh(ctx); err != nil {
		return storehttp.BackendReport{}, err
	}
	out := storehttp.BackendReport{
		Time: agl.Seconds(time.Now()), Started: b.started, Backends: []storehttp.Backend{}, Changes: []storehttp.BackendChange{},
	}
	for _, t := range b.proxy.Traffic() {
		out.Backends = append(out.Backends, backendOf(&t))
	}
	for _, c := range b.proxy.Changes() {
		out.Changes = append(out.Changes, changeOf(&c))
	}
	return out, nil
}

// PauseBackend implements [storehttp.Backends].
func (b backends) PauseBackend(ctx context.Context, model, endpoint, reason string, drain time.Duration) (storehttp.Backend, error) {
	if err := b.proxy.Refresh(ctx); err != nil {
		return storehttp.Backend{}, err
	}
	if err := b.proxy.PauseBackend(model, endpoint, reason); err != nil {
		return storehttp.Backend{}, unknown(err)
	}
	if drain > 0 {
		waiting, cancel := context.WithTimeout(ctx, drain)
		defer cancel()
		// Calls that are open still are told of by their number.
		if err := b.proxy.DrainBackend(waiting, model, endpoint); err != nil && ctx.Err() != nil {
			return storehttp.Backend{}, err
		}
	}
	return b.find(model, endpoint)
}

// ResumeBackend implements [storehttp.Backends].
func (b backends) ResumeBackend(ctx context.Context, model, endpoint string) (storehttp.Backend, error) {
	if err := b.proxy.Refresh(ctx); err != nil {
		return storehttp.Backend{}, err
	}
	if err := b.proxy.ResumeBackend(model, endpoint); err != nil {
		return storehttp.Backend{}, unknown(err)
	}
	return b.find(model, endpoint)
}

func (b backends) find(model, endpoint string) (storehttp.Backend, error) {
	for _, t := range b.proxy.Traffic() {
		if t.Model == model && t.Endpoint == endpoint {
			return backendOf(&t), nil
		}
	}
	return storehttp.Backend{}, unknown(llmproxy.ErrNoBackend)
}

func unknown(err error) error {
	if errors.Is(err, llmproxy.ErrNoBackend) {
		return &store.Error{Kind: store.ErrNotFound, Message: err.Error()}
	}
	return err
}

func backendOf(t *llmproxy.Traffic) storehttp.Backend {
	out := storehttp.Backend{
		Model: t.Model, Endpoint: t.Endpoint, Condition: string(t.Condition), Reason: t.Reason, Avoided: t.Avoided, Open: t.Open, Waiting: t.Waiting,
		Calls: t.Calls, Failures: t.Failures, PromptTokens: t.PromptTokens, AnswerTokens: t.AnswerTokens,
	}
	if !t.Since.IsZero() {
		out.Since = new(agl.Seconds(t.Since))
	}
	return out
}

func changeOf(c *llmproxy.HealthChange) storehttp.BackendChange {
	out := storehttp.BackendChange{Time: agl.Seconds(c.Time), Model: c.Model, Endpoint: c.Endpoint, Event: string(c.To), Reason: c.Reason}
	switch {
	case c.Drained:
		out.Event = "drained"
	case c.To == llmproxy.Fine && c.From == llmproxy.Paused:
		out.Event = "resumed"
	case c.To == llmproxy.Fine:
		out.Event = "recovered"
	}
	if c.Lasted > 0 {
		out.Seconds = new(c.Lasted.Seconds())
	}
	return out
}

// newHistory returns the history of a server, which [Server.Run] fills.
func newHistory(c *Config, proxy *llmproxy.Proxy) *history.History {
	return history.New(history.Config{
		Backends: proxy.Traffic,
		Store: func(ctx context.Context) (history.Store, error) {
			st, err := c.Store.Statistics(ctx)
			if err != nil {
				return history.Store{}, err
			}
			out := history.Store{Bytes: st.SpanBytes, Rollouts: st.TotalRollouts, Spans: st.TotalSpans, Commits: c.Metrics.committed.Load()}
			if n, ok := c.Metrics.fileBytes(); ok {
				out.Bytes = n
			}
			if q, ok := c.Store.(queued); ok {
				state, err := q.Queue(ctx)
				if err != nil {
					return history.Store{}, err
				}
				out.Queue = int64(state.Length)
			}
			return out, nil
		},
		Every: c.pace.look,
	})
}
