package llmproxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// hold keeps new calls from one backend.
type hold struct {
	since   time.Time
	reason  string
	once    sync.Once
	drained chan struct{} // closed when no call is open, or the hold is over
	tell    func()        // of the moment when no call is open
}

// drain ends the wait for the calls that are open.
func (h *hold) drain() {
	h.once.Do(func() {
		h.tell()
		close(h.drained)
	})
}

// over ends the wait without a moment to tell of.
func (h *hold) over() { h.once.Do(func() { close(h.drained) }) }

// ErrNoBackend is the error for a backend that is not registered.
var ErrNoBackend = errors.New("no such backend")

// PauseBackend keeps new calls from one backend; those that it has go on. Calls of
// its model go to the others, rollouts that kept to it too; when all are paused,
// calls are refused as during a pause of the [Gate]. The reason is told to whoever
// wonders. To pause again changes the reason. It lasts until [Proxy.ResumeBackend],
// or the end of the process.
func (p *Proxy) PauseBackend(model, endpoint, reason string) error {
	b, err := p.backend(model, endpoint)
	if err != nil {
		return err
	}
	h := &hold{since: p.cfg.Now(), reason: reason, drained: make(chan struct{})}
	if before := b.held.Load(); before != nil {
		h.since = before.since
	}
	h.tell = func() {
		p.journal.add(HealthChange{Time: p.cfg.Now(), Model: b.Name, Endpoint: b.Endpoint, To: Paused, Drained: true, Reason: reason})
	}
	before := b.held.Swap(h)
	if before == nil {
		p.journal.add(HealthChange{Time: h.since, Model: b.Name, Endpoint: b.Endpoint, To: Paused, Reason: reason})
	}
	if b.load.Load() == 0 {
		h.drain()
	}
	if before != nil {
		before.over() // who waits looks at the present one
	}
	return nil
}

// ResumeBackend lets calls go to a backend again. One that is not paused stays as
// it is.
func (p *Proxy) ResumeBackend(model, endpoint string) error {
	b, err := p.backend(model, endpoint)
	if err != nil {
		return err
	}
	if before := b.held.Swap(nil); before != nil {
		now := p.cfg.Now()
		p.journal.add(HealthChange{Time: now, Model: b.Name, Endpoint: b.Endpoint, To: Fine, From: Paused, Lasted: now.Sub(before.since)})
		before.over()
	}
	return nil
}

// DrainBackend waits until a paused backend has no open call. It returns at once for one that is not paused, and the cause of ctx when
// that ends before.
func (p *Proxy) DrainBackend(ctx context.Context, model, endpoint string) error {
	for {
		b, err := p.backend(model, endpoint)
		if err != nil {
			return err
		}
		h := b.held.Load()
		if h == nil {
			return nil
		}
		select {
		case <-h.drained:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d calls of model %q at %s: %w", b.load.Load(), model, endpoint, context.Cause(ctx))
		}
		if b.held.Load() == h {
			return nil
		}
	}
}

func (p *Proxy) backend(model, endpoint string) (*backend, error) {
	if b := p.models.now.Load().group(model).find(endpoint); b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("%w: model %q is not registered at %q", ErrNoBackend, model, endpoint)
}

// enter counts a call at the backend, unless calls are kept from it.
func (b *backend) enter() bool {
	if b.held.Load() != nil {
		return false
	}
	b.load.Add(1)
	if b.held.Load() != nil { // since
		b.leave()
		return false
	}
	return true
}

// leave ends what enter began.
func (b *backend) leave() {
	if b.load.Add(-1) > 0 {
		return
	}
	if h := b.held.Load(); h != nil {
		h.drain()
	}
}

// noneLeft says why there is no backend to take: those that are left are paused,
// or none is.
func (c *call) noneLeft(avoid []*backend) error {
	for _, b := range c.group.backends {
		if h := b.held.Load(); h != nil && !slices.Contains(avoid, b) {
			why := fmt.Sprintf("the backend of model %q at %s is", b.Name, b.Endpoint)
			if len(c.group.backends) > 1 {
				why = fmt.Sprintf("all backends of model %q that can be reached are", b.Name)
			}
			if h.reason != "" {
				why += ": " + h.reason
			}
			return &PausedError{RetryAfter: defaultRetryAfter, Reason: &why}
		}
	}
	return errNoOther
}

// gateChanged notes what happens to all calls.
func (p *Proxy) gateChanged(c HealthChange) { p.journal.add(c) }
