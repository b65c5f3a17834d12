package llmproxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"agentlightning/store"
)

// maxRollouts is how many rollouts each of the two generations of the cache
// holds. A rollout beyond that which calls again is looked up and routed anew.
const maxRollouts = 16 << 10

// rollouts remembers which attempts exist and where the calls of a rollout
// went, so that neither costs a call anything.
type rollouts struct {
	source AttemptSource

	mu         sync.Mutex
	young, old map[string]*rollout // by id; old are those not used since young was begun
}

// rollout is what is known of one rollout.
type rollout struct {
	mu       sync.Mutex
	attempts []string // those known to exist
	backends []stay
}

// stay is the backend of a model to which a rollout keeps.
type stay struct{ model, endpoint string }

func newRollouts(source AttemptSource) *rollouts {
	return &rollouts{source: source, young: map[string]*rollout{}}
}

// find returns the rollout of an attempt, [store.ErrNotFound] when the attempt
// does not exist.
func (s *rollouts) find(ctx context.Context, at store.Attempted) (*rollout, error) {
	if ro := s.get(at.RolloutID); ro != nil && ro.has(at.AttemptID) {
		return ro, nil
	}
	page, err := s.source.QueryAttempts(ctx, store.AttemptQuery{RolloutID: at.RolloutID})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	ids := make([]string, len(page.Items))
	for i := range page.Items {
		ids[i] = page.Items[i].AttemptID
	}
	if !slices.Contains(ids, at.AttemptID) {
		what := fmt.Sprintf("rollout %q has no attempt %q", at.RolloutID, at.AttemptID)
		if len(ids) == 0 {
			what = fmt.Sprintf("rollout %q is not known or has no attempt %q", at.RolloutID, at.AttemptID)
		}
		return nil, &store.Error{Kind: store.ErrNotFound, Message: what + "; check the base URL that the agent was given"}
	}
	ro := s.add(at.RolloutID)
	ro.mu.Lock()
	ro.attempts = ids
	ro.mu.Unlock()
	return ro, nil
}

func (s *rollouts) get(id string) *rollout {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ro := s.young[id]; ro != nil {
		return ro
	}
	ro := s.old[id]
	if ro != nil {
		s.put(id, ro)
	}
	return ro
}

// add returns the rollout, new when it is not known.
func (s *rollouts) add(id string) *rollout {
	s.mu.Lock()
	defer s.mu.Unlock()
	ro := s.young[id]
	if ro == nil {
		if ro = s.old[id]; ro == nil {
			ro = &rollout{}
		}
		s.put(id, ro)
	}
	return ro
}

// put is called with the lock held.
func (s *rollouts) put(id string, ro *rollout) {
	if len(s.young) >= maxRollouts {
		s.young, s.old = make(map[string]*rollout, maxRollouts), s.young
	}
	s.young[id] = ro
}

// forget makes the next call of a rollout look it up again.
func (s *rollouts) forget(id string) {
	if ro := s.get(id); ro != nil {
		ro.mu.Lock()
		ro.attempts = nil
		ro.mu.Unlock()
	}
}

func (ro *rollout) has(attemptID string) bool {
	ro.mu.Lock()
	defer ro.mu.Unlock()
	return slices.Contains(ro.attempts, attemptID)
}

// choose calls next with the endpoint to which the rollout keeps for a model,
// empty when it has none yet, and keeps to the one that next returns. Calls
// that begin at once are led to the same backend.
func (ro *rollout) choose(model string, next func(endpoint string) string) {
	ro.mu.Lock()
	defer ro.mu.Unlock()
	for i := range ro.backends {
		if s := &ro.backends[i]; s.model == model {
			s.endpoint = next(s.endpoint)
			return
		}
	}
	ro.backends = append(ro.backends, stay{model, next("")})
}
