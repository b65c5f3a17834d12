package storehttp

import (
	"sync"
	"time"

	agl "agentlightning"
)

// turns keeps apart the requests of one dequeue that is repeated by its key. A
// client that missed an answer closes its connection and asks again on another
// one, and the server may come to see the two in either order. So every claim
// belongs to the last answer that has it: the loss of an earlier one does not
// undo it, and a claim that was undone is in no later answer.
type turns struct {
	mu      sync.Mutex
	byKey   map[string]*keyTurns
	cleanup time.Time
}

// keyTurns are the requests of one key.
type keyTurns struct {
	mu     sync.Mutex
	last   int
	holder map[string]int // attempt id → turn whose answer has it, undone for none

	used time.Time // guarded by the mutex of turns
}

const (
	undone = 0
	// turnsKept is how long a key is remembered: longer than an answer may count as unread.
	turnsKept = 4 * undeliveredFor
)

// turn is one request among those of its key.
type turn struct {
	of *keyTurns
	n  int
}

// take gives a request its turn. Without a key it is alone.
func (t *turns) take(key string) turn {
	k := &keyTurns{holder: map[string]int{}}
	if key != "" {
		k = t.of(key, k)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last++
	return turn{k, k.last}
}

func (t *turns) of(key string, fresh *keyTurns) *keyTurns {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.After(t.cleanup) {
		for key, k := range t.byKey {
			if now.Sub(k.used) > turnsKept {
				delete(t.byKey, key)
			}
		}
		t.cleanup = now.Add(turnsKept)
	}
	if t.byKey == nil {
		t.byKey = map[string]*keyTurns{}
	}
	k := t.byKey[key]
	if k == nil {
		k = fresh
		t.byKey[key] = k
	}
	k.used = now
	return k
}

// hold makes the claims those of this request's answer and returns them,
// without those that were undone since the store named them.
func (t turn) hold(claimed []agl.AttemptedRollout) []agl.AttemptedRollout {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	held := claimed[:0:0]
	for _, c := range claimed {
		if n, known := t.of.holder[c.Attempt.AttemptID]; known && n == undone {
			continue
		}
		t.of.holder[c.Attempt.AttemptID] = t.n
		held = append(held, c)
	}
	return held
}

// undo releases the claims that are in no later answer. A repetition that was
// told of them waits until they are released.
func (t turn) undo(claimed []agl.AttemptedRollout, release func([]agl.AttemptedRollout)) {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	var mine []agl.AttemptedRollout
	for _, c := range claimed {
		if t.of.holder[c.Attempt.AttemptID] == t.n {
			t.of.holder[c.Attempt.AttemptID] = undone
			mine = append(mine, c)
		}
	}
	if len(mine) > 0 {
		release(mine)
	}
}
