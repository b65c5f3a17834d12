package storehttp

import (
	"context"
	"net/http"
)

// Check is what was seen of one thing that a server needs.
type Check struct {
	Level string `json:"level"` // ok, warn or bad
	Name  string `json:"name"`  // what was looked at
	Text  string `json:"text"`  // what was seen
	Fix   string `json:"fix"`   // what to do; empty for nothing
}

// Checker looks at what a server needs. It may take a while.
type Checker func(ctx context.Context) ([]Check, error)

// checks looks at the server. One caller at a time is answered: it reads the
// whole database.
func (h *handler) checks(c *call) answer {
	if h.config.Checks == nil {
		return missingPower("be checked; agl doctor does it from outside")
	}
	if !h.checking.TryLock() {
		return failed(&refusal{http.StatusConflict, "the checks are running for somebody else; ask again in a moment"})
	}
	defer h.checking.Unlock()
	found, err := h.config.Checks(c.Context())
	if err != nil {
		return failed(err)
	}
	return encoded(http.StatusOK, found)
}
