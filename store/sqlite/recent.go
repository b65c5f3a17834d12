package sqlite

import (
	"sync"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

const (
	// maxRecentBytes bounds the JSON of the spans that are held.
	maxRecentBytes = 16 << 20
	// maxRecentAttempt is from which size on those of one attempt are not.
	maxRecentAttempt = 1 << 20
)

// recent holds what was written last, as of the last group that readers may tell
// of: rollouts with their latest attempts, and all spans of attempts that began a
// short while ago.
// That is what people ask for most, and it spares them a look into the database,
// whose pages a reader has to fetch again after every commit.
//
// Rollouts are in two generations, as those of [known] are and of the same size;
// of spans the oldest attempts go first.
type recent struct {
	mu         sync.RWMutex
	young, old map[string]recentRollout
	spans      map[string]*recentSpans // by rollout
	begun      []*recentSpans          // in that order; those that were dropped too
	bytes      int
}

// recentRollout is a rollout as a group left it. Without a value it only says
// that what was known of the rollout no longer holds.
type recentRollout struct {
	id      string
	rollout *agl.Rollout
	latest  *agl.Attempt // nil when there is none
}

// recentSpans are all spans of an attempt in the order of insertion.
type recentSpans struct {
	rolloutID, attemptID string
	list                 []*store.EncodedSpan
	bytes                int
}

// spanChange is one thing that a transaction did to the spans of a rollout: an
// attempt began, which has none, or a span was added, or, without either,
// something else.
type spanChange struct {
	rolloutID, attemptID string
	begun                bool
	added                *store.EncodedSpan
}

func newRecent() *recent {
	return &recent{
		young: make(map[string]recentRollout), old: make(map[string]recentRollout),
		spans: make(map[string]*recentSpans),
	}
}

// put takes what a group changed.
func (r *recent) put(changed []recentRollout, spans []spanChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.putLocked(changed, spans)
}

func (r *recent) putLocked(changed []recentRollout, spans []spanChange) {
	for i := range changed {
		id := changed[i].id
		delete(r.old, id)
		if changed[i].rollout == nil {
			delete(r.young, id)
			continue
		}
		if len(r.young) >= maxKnown {
			r.old, r.young = r.young, make(map[string]recentRollout, maxKnown)
			delete(r.old, id)
		}
		r.young[id] = changed[i]
	}
	for i := range spans {
		r.putSpan(&spans[i])
	}
	for r.bytes > maxRecentBytes || len(r.begun) > 2*maxKnown {
		oldest := r.begun[0]
		r.begun[0] = nil
		r.begun = r.begun[1:]
		if r.spans[oldest.rolloutID] == oldest {
			r.drop(oldest)
		}
	}
}

func (r *recent) putSpan(c *spanChange) {
	s := r.spans[c.rolloutID]
	switch {
	case c.begun:
		if s != nil {
			r.drop(s)
		}
		s = &recentSpans{rolloutID: c.rolloutID, attemptID: c.attemptID}
		r.spans[c.rolloutID] = s
		r.begun = append(r.begun, s)
	case s == nil:
	case c.added == nil || s.bytes+len(c.added.JSON) > maxRecentAttempt:
		r.drop(s)
	case s.attemptID == c.added.AttemptID:
		s.list = append(s.list, c.added)
		s.bytes += len(c.added.JSON)
		r.bytes += len(c.added.JSON)
	}
}

func (r *recent) drop(s *recentSpans) {
	delete(r.spans, s.rolloutID)
	r.bytes -= s.bytes
	s.list = nil // what begun has of it is to cost nothing
}

// find returns what is held of a rollout.
func (r *recent) find(id string) (recentRollout, bool) {
	found, ok := r.young[id]
	if !ok {
		found, ok = r.old[id]
	}
	return found, ok
}

func (r *recent) rollout(id string) (agl.AttemptedRollout, bool) {
	r.mu.RLock()
	found, ok := r.find(id)
	r.mu.RUnlock()
	if !ok {
		return agl.AttemptedRollout{}, false
	}
	out := agl.AttemptedRollout{Rollout: engine.CloneRollout(found.rollout)}
	if found.latest != nil {
		out.Attempt = new(engine.CloneAttempt(found.latest))
	}
	return out, true
}

// query answers a question about the spans of an attempt that are held.
func (r *recent) query(q *store.SpanQuery) (store.Page[store.SpanJSON], bool) {
	if q.AttemptID == nil {
		return store.Page[store.SpanJSON]{}, false
	}
	attempt := *q.AttemptID
	r.mu.RLock()
	s := r.spans[q.RolloutID]
	if s != nil && attempt == agl.LatestAttempt {
		if found, ok := r.find(q.RolloutID); ok && found.latest != nil {
			attempt = found.latest.AttemptID
		}
	}
	if s == nil || s.attemptID != attempt {
		r.mu.RUnlock()
		return store.Page[store.SpanJSON]{}, false
	}
	list := s.list // it only grows, at its end
	r.mu.RUnlock()
	selected, total := engine.SelectSpans(list, q)
	page := store.Page[store.SpanJSON]{Items: make([]store.SpanJSON, len(selected)), Total: total}
	for i, span := range selected {
		page.Items[i] = span.JSON
	}
	return page, true
}
