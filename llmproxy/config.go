package llmproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	agl "agentlightning"
	"agentlightning/store"
)

// Sink is where calls are recorded, a part of [store.Store].
type Sink interface {
	NextSequenceIDs(ctx context.Context, attempts []store.Attempted) ([]int64, error)
	AddSpans(ctx context.Context, spans []agl.Span) ([]store.AddedSpan, error)
}

// AttemptSource knows which attempts exist, a part of [store.Store].
type AttemptSource interface {
	QueryAttempts(ctx context.Context, q store.AttemptQuery) (store.Page[agl.Attempt], error)
}

// ModelSource lists the model backends, a part of [store.Store].
type ModelSource interface {
	Models(ctx context.Context) ([]agl.Model, error)
}

// Config says where a [Proxy] finds what it needs.
type Config struct {
	// Sink records the calls. Required.
	Sink Sink
	// Attempts tells calls of unknown attempts, which are refused. Required.
	Attempts AttemptSource
	// Models lists the backends that may change while the proxy runs. It may
	// be nil when Static is not empty.
	Models ModelSource
	// Static are backends that are there until [Proxy.Forget] drops them, before
	// those of Models.
	Static []agl.Model
	// ModelsMaxAge is how long a list from Models is used before it is asked
	// again; a name that is not on it asks at once, and so does [Proxy.Refresh].
	// 0 means 100ms.
	ModelsMaxAge time.Duration

	// ModelsGap is how long calls wait for a model that was withdrawn to be
	// registered again, as those do that replace a list by deleting it first. 0
	// means 5s, less than 0 does not wait.
	ModelsGap time.Duration
	// Environ returns variables of the environment, for keys of backends that are
	// named by one. Nil means that there are none.
	Environ func(name string) string
	// Gate pauses the calls. Nil means one of the proxy's own, see [Proxy.Gate].
	Gate *Gate

	// UpstreamConnectTimeout limits connecting to a backend. 0 means 10s, less
	// than 0 no limit.
	UpstreamConnectTimeout time.Duration
	// UpstreamTimeout limits the wait for the first byte of an answer. 0 means
	// 10m, less than 0 no limit.
	UpstreamTimeout time.Duration
	// UpstreamIdleTimeout limits the wait between two reads of an answer. 0
	// means 2m, less than 0 no limit.
	UpstreamIdleTimeout time.Duration
	// UpstreamQueueTimeout limits the wait for a backend whose own limits
	// (concurrency, rpm, tpm) are reached. 0 means 1m, less than 0 refuses at once.
	UpstreamQueueTimeout time.Duration
	// NoBodies leaves out of spans what was asked and answered; token ids, counts
	// and reasons stay.
	NoBodies bool
	// Redact takes what it matches out of the texts in spans. Token ids stay, and
	// can be turned into text by who has the tokenizer.
	Redact []*regexp.Regexp
	// LiteLLMSpans stores beside each call's span one as LiteLLM's proxy writes it,
	// for the readers that look for that.
	LiteLLMSpans bool
	// MaxRequestBytes limits a request. 0 means 64 MiB.
	MaxRequestBytes int64
	// MaxAnswerBytes limits an answer that is recorded or translated, whole or as
	// a stream. 0 means 256 MiB.
	MaxAnswerBytes int64

	// Transport calls the backends. Nil means a pooled transport that connects
	// directly; UpstreamConnectTimeout has no effect on another.
	Transport http.RoundTripper
	// Logger is told of calls that went wrong. Nil means none.
	Logger *slog.Logger
	// Now stamps spans. Nil means [time.Now].
	Now func() time.Time
	// Metrics receives agl_proxy_*. Nil means none.
	Metrics prometheus.Registerer
}

const (
	defaultConnectTimeout  = 10 * time.Second
	defaultTimeout         = 10 * time.Minute
	defaultIdleTimeout     = 2 * time.Minute
	defaultQueueTimeout    = time.Minute
	defaultModelsGap       = 5 * time.Second
	defaultMaxRequestBytes = 64 << 20
	defaultMaxAnswerBytes  = 256 << 20
	defaultModelsMaxAge    = 100 * time.Millisecond
)

func (c Config) withDefaults() Config {
	limit := func(d *time.Duration, standard time.Duration) {
		switch {
		case *d == 0:
			*d = standard
		case *d < 0:
			*d = 0
		}
	}
	limit(&c.UpstreamConnectTimeout, defaultConnectTimeout)
	limit(&c.UpstreamTimeout, defaultTimeout)
	limit(&c.UpstreamIdleTimeout, defaultIdleTimeout)
	limit(&c.UpstreamQueueTimeout, defaultQueueTimeout)
	limit(&c.ModelsGap, defaultModelsGap)
	if c.Environ == nil {
		c.Environ = func(string) string { return "" }
	}
	if c.ModelsMaxAge <= 0 {
		c.ModelsMaxAge = defaultModelsMaxAge
	}
	if c.MaxRequestBytes <= 0 {
		c.MaxRequestBytes = defaultMaxRequestBytes
	}
	if c.MaxAnswerBytes <= 0 {
		c.MaxAnswerBytes = defaultMaxAnswerBytes
	}
	if c.Gate == nil {
		c.Gate = NewGate(0, c.Now)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Sink == nil {
		errs = append(errs, errors.New("Sink is nil, the proxy has nowhere to record calls"))
	}
	if c.Attempts == nil {
		errs = append(errs, errors.New("Attempts is nil, the proxy cannot tell whose calls it serves"))
	}
	if c.Models == nil && len(c.Static) == 0 {
		errs = append(errs, errors.New("Models is nil and Static is empty, the proxy has no backend"))
	}
	for _, m := range c.Static {
		if err := m.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("llmproxy: %w", err)
	}
	return nil
}
