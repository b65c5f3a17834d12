package storehttp

import (
	"math"
	"net/http"
	"time"
)

func (h *handler) waitForRollouts(c *call) answer {
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	ids, timeout := o.waited()
	if !c.valid() {
		return c.invalid()
	}
	done, err := h.store.WaitForRollouts(c.Context(), ids, timeout)
	if err != nil {
		return failed(err)
	}
	return ok(appendItems(nil, done, appendRollout))
}

// waitForCount waits for a count, or for a share, of a set of rollouts.
func (h *handler) waitForCount(c *call) answer {
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	ids, timeout := o.waited()
	share := o.floatOrNull("share")
	count := -1
	if v, given := o.given("count"); given && !v.null() {
		count = int(min(max(v.int(), 0), math.MaxInt32))
	}
	if !c.valid() {
		return c.invalid()
	}
	switch {
	case (share == nil) == (count < 0):
		return failed(&refusal{http.StatusBadRequest, "give either count, how many rollouts to wait for, or share, which part of them"})
	case share != nil && !(*share >= 0 && *share <= 1):
		return failed(&refusal{http.StatusBadRequest, "share must be between 0 and 1"})
	case share != nil:
		count = shareOf(ids, *share)
	}
	done, err := h.store.WaitForCount(c.Context(), ids, count, timeout)
	if err != nil {
		return failed(err)
	}
	return ok(appendItems(nil, done, appendRollout))
}

// waited reads which rollouts to wait for, and for how long; less than 0 is
// without limit.
func (o object) waited() (ids []string, timeout time.Duration) {
	if v, given := o.need("rollout_ids"); given {
		ids = v.strings()
	}
	if seconds := o.floatOrNull("timeout"); seconds != nil {
		return ids, waitTime(*seconds)
	}
	return ids, -1
}

// shareOf is how many of the distinct ids make up a share of them, rounded up.
func shareOf(ids []string, share float64) int {
	// A tenth of thirty is three, although the product of the doubles is more.
	const rounding = 1e-9
	return int(math.Ceil(share*float64(distinct(ids)) - rounding))
}

// waitTime converts seconds to wait: none or less checks once, more than can
// be counted waits without limit.
func waitTime(seconds float64) time.Duration {
	switch {
	case !(seconds > 0): // NaN too
		return 0
	case seconds > float64(math.MaxInt64)/float64(time.Second):
		return -1
	}
	return time.Duration(seconds * float64(time.Second))
}
