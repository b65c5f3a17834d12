package storehttp

import (
	"context"
	"hash/maphash"
	"net/http"
	"sync"
	"time"

	"agentlightning/store"
)

const (
	keyHeader = "Idempotency-Key"
	// maxKey is longer than any id that a client would make up.
	maxKey = 256
	// maxKept bounds the memory of remembered answers; the oldest go first.
	maxKept = 64 << 20
	// keptOverhead is about what an answer takes beside its key and its body.
	keptOverhead = 512
)

// keyring remembers the answers of requests that carry a key, so that a
// request that is repeated because its answer was lost does nothing twice. It
// makes repetitions cheap and lets them wait for one another; the store gets
// the key too, and remembers it over a restart. Failures are not remembered:
// repeating them is the point of a retry.
type keyring struct {
	lifetime time.Duration
	seed     maphash.Seed

	mu      sync.Mutex
	answers map[string]*keyed
	order   []*keyed // by age
	bytes   int
}

// keyed is the answer of one key, ready once done is closed.
type keyed struct {
	key     string
	request uint64 // hash of the body
	done    chan struct{}
	ok      bool
	answer  answer
	expires time.Time
}

// size is about how much memory a settled entry takes.
func (e *keyed) size() int { return keptOverhead + len(e.key) + len(e.answer.body) }

func newKeyring(lifetime time.Duration) *keyring {
	return &keyring{lifetime: lifetime, seed: maphash.MakeSeed(), answers: map[string]*keyed{}}
}

// once serves a request that must not be done twice.
func (h *handler) once(c *call, do func(ctx context.Context) answer) answer {
	key := c.Header.Get(keyHeader)
	if key == "" {
		return do(c.Context())
	}
	if len(key) > maxKey {
		return failed(&refusal{http.StatusBadRequest, "Idempotency-Key is longer than 256 bytes"})
	}
	return h.keys.once(c.Context(), c.Method+" "+c.URL.Path+" "+key, c.raw, do)
}

func (k *keyring) once(ctx context.Context, key string, body []byte, do func(context.Context) answer) answer {
	request := maphash.Bytes(k.seed, body)
	for {
		entry, first := k.claim(key, request)
		if first {
			a := answer{err: errDisconnected} // what a panic leaves behind
			defer func() { k.settle(entry, a) }()
			// Not cut short when the client goes away: it comes back for the answer.
			a = do(store.WithKey(context.WithoutCancel(ctx), key))
			return a
		}
		if entry.request != request {
			const why = "Idempotency-Key was used for another request; use a new key for each request"
			return failed(&refusal{http.StatusUnprocessableEntity, why})
		}
		select {
		case <-entry.done:
			if entry.ok {
				return entry.answer
			}
		case <-ctx.Done():
			return failed(errDisconnected)
		}
	}
}

// claim returns the entry of a key, and whether the caller has to fill it.
func (k *keyring) claim(key string, request uint64) (entry *keyed, first bool) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.order) > 0 && (now.After(k.order[0].expires) || k.bytes > maxKept) {
		k.bytes -= k.order[0].size()
		delete(k.answers, k.order[0].key)
		k.order[0] = nil
		k.order = k.order[1:]
	}
	if entry = k.answers[key]; entry != nil {
		return entry, false
	}
	entry = &keyed{key: key, request: request, done: make(chan struct{})}
	k.answers[key] = entry
	return entry, true
}

func (k *keyring) settle(entry *keyed, a answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	entry.ok = a.err == nil && a.status < http.StatusMultipleChoices
	if entry.ok {
		entry.answer, entry.expires = a, time.Now().Add(k.lifetime)
		k.order = append(k.order, entry)
		k.bytes += entry.size()
	} else {
		delete(k.answers, entry.key)
	}
	close(entry.done)
}
