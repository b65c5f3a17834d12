package storehttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"agentlightning/store"
)

// Rescorer scores stored rollouts again in the background.
type Rescorer interface {
	// Kinds lists what can score, such as "expression".
	Kinds() []string
	// Start begins the work and returns at once. A request that makes no sense is
	// [store.ErrInvalid], a set that is being made already [store.ErrConflict].
	Start(ctx context.Context, r RescoreRequest) (Rescoring, error)
	// List returns the work that runs and what ended lately, the newest first.
	List() []Rescoring
	// Stop asks the work to end. One that is not known is [store.ErrNotFound].
	Stop(id string) (Rescoring, error)
}

// RescoreRequest says what to score, by what, and into which set.
type RescoreRequest struct {
	Set          string   `json:"set"`
	Base         string   `json:"base"` // the set that counts as the old reward; empty is the default one
	Expression   string   `json:"expression"`
	RolloutIDs   []string `json:"rollout_ids"`
	Unsuccessful bool     `json:"unsuccessful"` // also those that ended without success
}

// MostRescored is how many rollouts one request may name.
const MostRescored = 100_000

// RescoreStatus says how far a [Rescoring] is.
type RescoreStatus string

// The statuses.
const (
	RescoreRunning   RescoreStatus = "running"
	RescoreSucceeded RescoreStatus = "succeeded" // came to the end; single rollouts may have failed
	RescoreFailed    RescoreStatus = "failed"
	RescoreStopped   RescoreStatus = "stopped"
)

// Rescoring is work that scores rollouts again.
type Rescoring struct {
	ID      string        `json:"rescore_id"`
	Set     string        `json:"set"`
	Scorer  string        `json:"scorer"`
	Status  RescoreStatus `json:"status"`
	Done    int           `json:"done"`
	Of      int           `json:"of"`
	Scored  int           `json:"scored"`
	Already int           `json:"already"` // had a reward in the set; known at the end
	Failed  int           `json:"failed"`
	// Skipped counts by reason what there was nothing to score of; known at the end.
	Skipped     map[string]int `json:"skipped"`
	LastFailure string         `json:"last_failure"`
	Error       string         `json:"error"` // why it did not come to the end
	MeanNew     *float64       `json:"mean_new"`
	MeanOld     *float64       `json:"mean_old"`
	StartTime   float64        `json:"start_time"`
	EndTime     *float64       `json:"end_time"`
}

func (h *handler) startRescore(c *call) answer {
	if h.config.Rescorer == nil {
		return missingPower("score rollouts again")
	}
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	r := RescoreRequest{Set: o.needString("set"), Expression: o.needString("expression")}
	if v, given := o.given("base"); given {
		r.Base = v.string()
	}
	if v, given := o.given("unsuccessful"); given {
		r.Unsuccessful = v.bool()
	}
	if v, given := o.need("rollout_ids"); given {
		for _, e := range v.elements() {
			r.RolloutIDs = append(r.RolloutIDs, e.string())
		}
	}
	if !c.valid() {
		return c.invalid()
	}
	if n := len(r.RolloutIDs); n < 1 || n > MostRescored {
		return failed(&refusal{http.StatusBadRequest, fmt.Sprintf("rollout_ids: must name from 1 to %d rollouts, not %d", MostRescored, n)})
	}
	return rescoring(http.StatusAccepted)(h.config.Rescorer.Start(c.Context(), r))
}

func (h *handler) listRescores(*call) answer {
	if h.config.Rescorer == nil {
		return missingPower("score rollouts again")
	}
	return encoded(http.StatusOK, h.config.Rescorer.List())
}

func (h *handler) stopRescore(c *call) answer {
	if h.config.Rescorer == nil {
		return missingPower("score rollouts again")
	}
	return rescoring(http.StatusOK)(h.config.Rescorer.Stop(c.params[0]))
}

func rescoring(status int) func(Rescoring, error) answer {
	return func(r Rescoring, err error) answer {
		if errors.Is(err, store.ErrInvalid) {
			err = &refusal{http.StatusBadRequest, err.Error()}
		}
		if err != nil {
			return failed(err)
		}
		return encoded(status, r)
	}
}
