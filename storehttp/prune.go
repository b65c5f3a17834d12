package storehttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

// Pruner deletes what ended long ago in the background; see [store.Pruner] for
// what that is and what it never is.
type Pruner interface {
	// Preview tells what [Pruner.Start] would delete now.
	Preview(ctx context.Context, before float64) (Prunable, error)
	// Start begins the work and returns at once. While other work of the kind
	// runs it is [store.ErrConflict].
	Start(ctx context.Context, before float64) (Pruning, error)
	// List returns the work that runs and what ended lately, the newest first.
	List() []Pruning
	// Stop asks the work to end. One that is not known is [store.ErrNotFound].
	Stop(id string) (Pruning, error)
}

// Prunable is what would be deleted and what stays.
type Prunable struct {
	Before float64 `json:"before"` // Unix seconds: what ended earlier goes
	PrunedCounts
	Oldest *float64 `json:"oldest"` // ends of those that go, Unix seconds
	Newest *float64 `json:"newest"`
	// Complete is false when there was no time to look at all rollouts, only at
	// so many; then the counts are those among them.
	Complete bool        `json:"complete"`
	Looked   int64       `json:"looked"`
	Stays    PruneStayed `json:"stays"`
}

// PrunedCounts counts what is deleted.
type PrunedCounts struct {
	Rollouts int64 `json:"rollouts"`
	Attempts int64 `json:"attempts"`
	Spans    int64 `json:"spans"`
	LogLines int64 `json:"log_lines"` // in the logs of runs
	Bytes    int64 `json:"bytes"`     // about, in the database
}

// PruneStayed counts what is not deleted.
type PruneStayed struct {
	Open      int64 `json:"open"`  // rollouts that have not ended
	Later     int64 `json:"later"` // rollouts that ended since
	Runs      int64 `json:"runs"`  // logs of those that ended before are emptied
	Resources int64 `json:"resources"`
	Workers   int64 `json:"workers"`
}

// PruneStatus says how far a [Pruning] is.
type PruneStatus string

// The statuses.
const (
	PruneRunning   PruneStatus = "running"
	PruneSucceeded PruneStatus = "succeeded"
	PruneFailed    PruneStatus = "failed"
	PruneStopped   PruneStatus = "stopped"
)

// Pruning is work that deletes what ended long ago. Its counts are of what is
// deleted already, which stays deleted however it ends.
type Pruning struct {
	ID     string      `json:"prune_id"`
	Before float64     `json:"before"`
	Status PruneStatus `json:"status"`
	PrunedCounts
	// Of is how many rollouts a preview of the same moment announced; nil when
	// nobody asked for one.
	Of        *int64   `json:"of"`
	Error     string   `json:"error"` // why it did not come to the end
	StartTime float64  `json:"start_time"`
	EndTime   *float64 `json:"end_time"`
}

const noPrune = "delete what is old; agl db prune does it when the server is stopped"

func (h *handler) previewPrune(c *call) answer {
	if h.config.Pruner == nil {
		return missingPower(noPrune)
	}
	o := c.query()
	age := 0.0
	if v, given := o.need("older_than_seconds"); given {
		age = v.float()
	}
	if !c.valid() {
		return c.invalid()
	}
	if !(age >= 0 && age < 1e10) {
		return failed(&refusal{http.StatusBadRequest, fmt.Sprintf("older_than_seconds: must be an age in seconds from 0 on, not %v", age)})
	}
	seen, err := h.config.Pruner.Preview(c.Context(), agl.Seconds(time.Now())-age)
	if err != nil {
		return failed(err)
	}
	return encoded(http.StatusOK, seen)
}

func (h *handler) startPrune(c *call) answer {
	if h.config.Pruner == nil {
		return missingPower(noPrune)
	}
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	before := 0.0
	if v, given := o.need("before"); given {
		before = v.float()
	}
	if !c.valid() {
		return c.invalid()
	}
	if now := agl.Seconds(time.Now()); !(before > 0 && before <= now) {
		return failed(&refusal{http.StatusBadRequest, fmt.Sprintf("before: must be Unix seconds that are not in the future, not %v; it is %.0f now", before, now)})
	}
	return pruning(http.StatusAccepted)(h.config.Pruner.Start(c.Context(), before))
}

func (h *handler) listPrunes(*call) answer {
	if h.config.Pruner == nil {
		return missingPower(noPrune)
	}
	return encoded(http.StatusOK, h.config.Pruner.List())
}

func (h *handler) stopPrune(c *call) answer {
	if h.config.Pruner == nil {
		return missingPower(noPrune)
	}
	return pruning(http.StatusOK)(h.config.Pruner.Stop(c.params[0]))
}

func pruning(status int) func(Pruning, error) answer {
	return func(p Pruning, err error) answer {
		if errors.Is(err, store.ErrInvalid) {
			err = &refusal{http.StatusBadRequest, err.Error()}
		}
		if err != nil {
			return failed(err)
		}
		return encoded(status, p)
	}
}
