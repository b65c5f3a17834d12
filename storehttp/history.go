package storehttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"agentlightning/store"
)

// Backends tells of the model backends of a server, and keeps calls from them.
type Backends interface {
	// Backends lists what went through each, and what happened to them lately.
	Backends(ctx context.Context) (BackendReport, error)
	// PauseBackend keeps new calls from one, and waits up to drain until it has no
	// open one. A backend that is not registered is [store.ErrNotFound].
	PauseBackend(ctx context.Context, model, endpoint, reason string, drain time.Duration) (Backend, error)
	ResumeBackend(ctx context.Context, model, endpoint string) (Backend, error)
}

// BackendReport is how the model backends of a server fare.
type BackendReport struct {
	Time     float64   `json:"time"`    // of the server, Unix seconds
	Started  float64   `json:"started"` // since when it counts
	Backends []Backend `json:"backends"`
	// Changes are the latest, the newest first.
	Changes []BackendChange `json:"changes"`
}

// Backend is how one model backend fares. Counts are since the server started.
type Backend struct {
	Model        string   `json:"model"`
	Endpoint     string   `json:"endpoint"`
	Condition    string   `json:"condition"` // paused, key_missing, unreachable, failing, unseen or fine
	Since        *float64 `json:"since"`     // of the condition, Unix seconds
	Reason       string   `json:"reason"`
	Avoided      bool     `json:"avoided"` // calls go elsewhere for a moment
	Open         int64    `json:"open"`
	Waiting      int64    `json:"waiting"`
	Calls        int64    `json:"calls"`
	Failures     int64    `json:"failures"`
	PromptTokens int64    `json:"prompt_tokens"`
	AnswerTokens int64    `json:"answer_tokens"`
}

// BackendChange is one thing that happened to a model backend, or to all calls.
type BackendChange struct {
	Time     float64 `json:"time"`
	Model    string  `json:"model"` // empty with the endpoint: all model calls
	Endpoint string  `json:"endpoint"`
	// Event is paused, drained, resumed, unreachable, failing or recovered.
	Event   string   `json:"event"`
	Reason  string   `json:"reason"`
	Seconds *float64 `json:"seconds"` // that what ended had lasted; nil for what began
}

// Historian remembers how a server fared.
type Historian interface {
	// Show returns the last minutes, or the last day, in no more than points.
	Show(day bool, points int) History
}

// History is how a server fared, at times that all series share. A value is nil
// where nothing is known.
type History struct {
	Started  float64          `json:"started"` // before that nothing is known, Unix seconds
	Step     float64          `json:"step"`    // seconds between two times
	Times    []float64        `json:"times"`   // Unix seconds
	Store    StoreHistory     `json:"store"`
	Backends []BackendHistory `json:"backends"`
}

// StoreHistory is what a store held.
type StoreHistory struct {
	Bytes    []*float64 `json:"bytes"` // of the database, or of the spans in memory
	Rollouts []*float64 `json:"rollouts"`
	Spans    []*float64 `json:"spans"`
	Queue    []*float64 `json:"queue"`
	Commits  []*float64 `json:"commits_per_second"`
}

// BackendHistory is what went through a model backend: rates a second, and
// latencies in seconds, of calls that ended.
type BackendHistory struct {
	Model        string     `json:"model"`
	Endpoint     string     `json:"endpoint"`
	Calls        []*float64 `json:"calls_per_second"`
	Failures     []*float64 `json:"failures_per_second"`
	PromptTokens []*float64 `json:"prompt_tokens_per_second"`
	AnswerTokens []*float64 `json:"answer_tokens_per_second"`
	P50          []*float64 `json:"latency_p50"`
	P95          []*float64 `json:"latency_p95"`
	Open         []*float64 `json:"open"`
}

const (
	historyPoints     = 240 // when nothing is said
	mostHistoryPoints = 1440
	// longestDrain is how long a pause waits for open calls.
	longestDrain = 60 * time.Second

	noHistory  = "tell how it fared"
	noBackends = "tell of model backends"
)

var historyWindows = []string{"recent", "day"}

func (h *handler) history(c *call) answer {
	if h.config.History == nil {
		return missingPower(noHistory)
	}
	o := c.query()
	window, points := "recent", int64(historyPoints)
	if v, given := o.get("window"); given {
		window = literal(v, historyWindows)
	}
	if v, given := o.get("points"); given {
		points = v.int()
	}
	if !c.valid() {
		return c.invalid()
	}
	if points < 1 || points > mostHistoryPoints {
		return failed(&refusal{http.StatusBadRequest, fmt.Sprintf("points: must be from 1 to %d, not %d", mostHistoryPoints, points)})
	}
	return encoded(http.StatusOK, h.config.History.Show(window == "day", int(points)))
}

func (h *handler) backends(c *call) answer {
	if h.config.Backends == nil {
		return missingPower(noBackends)
	}
	report, err := h.config.Backends.Backends(c.Context())
	if err != nil {
		return failed(err)
	}
	return encoded(http.StatusOK, report)
}

func (h *handler) pauseBackend(c *call) answer {
	return h.changeBackend(c, func(o object, model, endpoint string) (Backend, error) {
		reason, drain := "", 0.0
		if v, given := o.given("reason"); given {
			reason = v.string()
		}
		if v, given := o.given("drain_seconds"); given {
			drain = v.float()
		}
		if !c.valid() {
			return Backend{}, nil
		}
		if !(drain >= 0 && drain <= longestDrain.Seconds()) {
			return Backend{}, &refusal{http.StatusBadRequest, fmt.Sprintf("drain_seconds: must be from 0 to %.0f, not %v", longestDrain.Seconds(), drain)}
		}
		return h.config.Backends.PauseBackend(c.Context(), model, endpoint, reason, time.Duration(drain*float64(time.Second)))
	})
}

func (h *handler) resumeBackend(c *call) answer {
	return h.changeBackend(c, func(_ object, model, endpoint string) (Backend, error) {
		if !c.valid() {
			return Backend{}, nil
		}
		return h.config.Backends.ResumeBackend(c.Context(), model, endpoint)
	})
}

// changeBackend reads which backend is meant. What change returns is not looked
// at when the request is not valid.
func (h *handler) changeBackend(c *call, change func(o object, model, endpoint string) (Backend, error)) answer {
	if h.config.Backends == nil {
		return missingPower(noBackends)
	}
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	b, err := change(o, o.needString("model"), o.needString("endpoint"))
	switch {
	case !c.valid():
		return c.invalid()
	case errors.Is(err, store.ErrInvalid):
		return failed(&refusal{http.StatusBadRequest, err.Error()})
	case err != nil:
		return failed(err)
	}
	return encoded(http.StatusOK, b)
}
