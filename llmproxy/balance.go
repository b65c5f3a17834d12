package llmproxy

import (
	"slices"
	"time"
)

// rest is how long a backend that could not be reached is avoided while there
// is another one. It is short: the price of trying is a refused connection.
const rest = 2 * time.Second

// pick chooses the backend of a call and counts it as open there: the one to
// which the rollout keeps, otherwise the one with the fewest open calls, ties
// in turn. Backends that rest are taken only when all do. Those to avoid are
// not taken; nil when none is left.
func (p *Proxy) pick(g *group, ro *rollout, avoid ...*backend) *backend {
	if ro == nil {
		return g.leastLoaded(time.Now(), avoid)
	}
	var b *backend
	ro.choose(g.model, func(endpoint string) string {
		if b = g.find(endpoint); b != nil && !slices.Contains(avoid, b) {
			b.load.Add(1)
			return endpoint
		}
		if b = g.leastLoaded(time.Now(), avoid); b != nil {
			return b.Endpoint
		}
		return endpoint
	})
	return b
}

func (g *group) leastLoaded(now time.Time, avoid []*backend) *backend {
	if len(g.backends) == 1 && len(avoid) == 0 {
		b := g.backends[0]
		b.load.Add(1)
		return b
	}
	for {
		var best *backend
		var load int64
		bestUp := false
		start := int(g.turn.Load())
		for i := range g.backends {
			b := g.backends[(start+i)%len(g.backends)]
			if slices.Contains(avoid, b) {
				continue
			}
			up := b.resting.Load() <= now.UnixNano()
			n := b.load.Load()
			if best == nil || up && !bestUp || up == bestUp && n < load {
				best, load, bestUp = b, n, up
			}
		}
		// Another call may have taken the place that was seen; then look again,
		// so that calls that come at once are spread as evenly as others.
		if best == nil || best.load.CompareAndSwap(load, load+1) {
			g.turn.Add(1)
			return best
		}
	}
}

// down notes that the backend could not be reached. It may come back as
// something else, so what it refused is forgotten.
func (b *backend) down() {
	b.resting.Store(time.Now().Add(rest).UnixNano())
	b.refuses.Store(nil)
}
