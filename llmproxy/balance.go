package llmproxy

import (
	"math"
	"slices"
	"sync"
	"time"
)

// rest is how long a backend that could not be reached is avoided while there
// is another one. It is short: the price of trying is a refused connection.
const rest = 2 * time.Second

// group are the backends of one model.
type group struct {
	model    string
	backends []*backend
	choice   *sync.Mutex // held while a backend is chosen
}

func (g *group) find(endpoint string) *backend {
	if g == nil {
		return nil
	}
	for _, b := range g.backends {
		if b.Endpoint == endpoint {
			return b
		}
	}
	return nil
}

// pick chooses the backend of a call and counts the call there: the one to which
// the rollout keeps, otherwise the one with the fewest calls for its weight, ties
// in turn by weight. Backends that rest are taken only when all do. Those that are
// paused and those to avoid are not taken; nil when none is left.
func (p *Proxy) pick(g *group, ro *rollout, avoid ...*backend) *backend {
	if ro == nil {
		return g.leastLoaded(avoid)
	}
	var b *backend
	ro.choose(g.model, func(endpoint string) string {
		b = g.find(endpoint)
		if b != nil && !slices.Contains(avoid, b) && !(b.rests(time.Now()) && g.anyUp(avoid)) && b.enter() {
			return endpoint
		}
		if b = g.leastLoaded(avoid); b != nil {
			return b.Endpoint
		}
		return endpoint
	})
	return b
}

func (b *backend) rests(now time.Time) bool { return b.resting.Load() > now.UnixNano() }

// anyUp reports whether there is a backend to take in place of one that rests.
func (g *group) anyUp(avoid []*backend) bool {
	now := time.Now()
	return slices.ContainsFunc(g.backends, func(b *backend) bool {
		return !slices.Contains(avoid, b) && !b.rests(now) && b.held.Load() == nil
	})
}

// candidate is a backend as seen when one is chosen.
type candidate struct {
	*backend
	rests, full bool
	load        int64
}

func (g *group) leastLoaded(avoid []*backend) *backend {
	if len(g.backends) == 1 && len(avoid) == 0 {
		if b := g.backends[0]; b.enter() {
			return b
		}
		return nil
	}
	g.choice.Lock()
	defer g.choice.Unlock()
	return g.leastLoadedLocked(avoid)
}

// leastLoadedLocked is called with the lock of the choice held.
func (g *group) leastLoadedLocked(avoid []*backend) *backend {
	now := time.Now()
	var best candidate
	for _, b := range g.backends {
		if slices.Contains(avoid, b) || b.held.Load() != nil {
			continue
		}
		c := candidate{b, b.rests(now), !b.limits.free(), b.load.Load()}
		if best.backend == nil || c.before(best) {
			best = c
		}
	}
	if best.backend == nil {
		return nil
	}
	if !best.backend.enter() { // paused since
		return g.leastLoadedLocked(avoid)
	}
	best.share += 1 / float64(best.weight())
	return best.backend
}

// before reports whether c is the better choice.
func (c candidate) before(o candidate) bool {
	switch {
	case c.rests != o.rests:
		return o.rests
	case c.full != o.full:
		return o.full
	}
	// Whole calls for the weight: below that, what each has had before decides, so
	// that a light load is spread by weight too.
	if mine, other := c.load/c.weight(), o.load/o.weight(); mine != other {
		return mine < other
	}
	return c.share < o.share
}

// join lets a new backend begin where the others are, so that it is not given
// all that they had before.
func (g *group) join(b *backend) {
	g.choice.Lock()
	defer g.choice.Unlock()
	least := math.Inf(1)
	for _, o := range g.backends {
		least = min(least, o.share)
	}
	if !math.IsInf(least, 1) {
		b.share = least
	}
}
