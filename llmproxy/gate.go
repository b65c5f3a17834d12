package llmproxy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Gate lets model calls in, or does not while it is paused, as for an update of
// the weights. A pause is a lease: it has an owner, and may end by itself, so
// that a trainer that died does not stop the agents for ever.
//
// A trainer pauses, drains, updates, and resumes:
//
//	_, err := gate.Pause(llmproxy.Pause{Owner: "run-7", Lease: time.Minute})
//	err = gate.Drain(ctx)
//	// … new weights …
//	_, err = gate.Resume("run-7")
//
// Methods are safe for concurrent use.
type Gate struct {
	now  func() time.Time
	hold time.Duration

	mu       sync.Mutex
	pause    Pause
	paused   bool
	until    time.Time     // when the pause ends by itself; zero for never
	changed  chan struct{} // closed when the pause changes
	inFlight int
	held     int
	drained  chan struct{} // closed when no call is in flight; nil while nobody waits
	began    time.Time     // of the pause
	quiet    bool          // since the pause began no call was in flight at some time
	told     []func(HealthChange)
}

// Pause says how calls are kept out.
type Pause struct {
	// Owner is who pauses; only the same may renew or end the pause before its
	// time. Empty leaves that to anybody.
	Owner string
	// Lease is after what time the pause ends by itself; 0 means never.
	Lease time.Duration
	// RetryAfter is what refused callers are told. 0 keeps what was said last,
	// 5s at first.
	RetryAfter time.Duration
	// Reason is told to refused callers; nil is none.
	Reason *string
	// Hold keeps calls waiting in place of refusing them, up to the time that the
	// gate was made with.
	Hold bool
}

// PauseState is what a gate tells of itself.
type PauseState struct {
	Pause
	Paused   bool
	Until    time.Time // when the pause ends by itself; zero for never
	InFlight int       // calls let in that have not ended
	Held     int       // calls that wait for the end of the pause
}

// PausedError is the refusal of a call because of a pause.
type PausedError struct {
	RetryAfter time.Duration
	Reason     *string
	// Held is how long the call was kept waiting before.
	Held time.Duration
}

// Error says how long to wait and why.
func (e *PausedError) Error() string {
	text := "model calls are paused"
	if e.Reason != nil {
		text += " (" + *e.Reason + ")"
	}
	if e.Held > 0 {
		text += fmt.Sprintf("; this one was held for %s, the limit that --pause-hold-timeout sets", e.Held)
	}
	return text + fmt.Sprintf("; try again in %s", e.RetryAfter)
}

// PauseOwnerError is the refusal to change a pause of somebody else.
type PauseOwnerError struct {
	Owner string    // who paused
	Until time.Time // when the pause ends by itself; zero for never
}

// Error names the owner and what is left of the lease.
func (e *PauseOwnerError) Error() string {
	if e.Until.IsZero() {
		return fmt.Sprintf("%q paused the model calls; only that owner may change the pause", e.Owner)
	}
	return fmt.Sprintf("%q paused the model calls until %s; only that owner may change the pause before", e.Owner, e.Until.UTC().Format(time.RFC3339))
}

const (
	defaultRetryAfter = 5 * time.Second
	defaultHold       = 5 * time.Minute
)

// NewGate returns an open gate. Calls that a pause holds wait at most hold; 0
// means 5m. A nil clock is [time.Now].
func NewGate(hold time.Duration, now func() time.Time) *Gate {
	if hold <= 0 {
		hold = defaultHold
	}
	if now == nil {
		now = time.Now
	}
	return &Gate{now: now, hold: hold, changed: make(chan struct{}), pause: Pause{RetryAfter: defaultRetryAfter}}
}

// Pause keeps calls out from now on; those that were let in go on. The owner of
// a pause renews it by pausing again. The error is a [*PauseOwnerError].
func (g *Gate) Pause(p Pause) (PauseState, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.owned(p.Owner); err != nil {
		return g.state(), err
	}
	if p.RetryAfter <= 0 {
		p.RetryAfter = g.pause.RetryAfter
	}
	if !g.paused {
		g.began, g.quiet = g.now(), false
		g.tell(HealthChange{Time: g.began, To: Paused, Reason: gateReason(&p)})
	}
	g.paused, g.pause, g.until = true, p, time.Time{}
	g.settle()
	if p.Lease > 0 {
		g.until = g.now().Add(p.Lease)
	}
	g.wake()
	return g.state(), nil
}

// Resume lets calls in again. The error is a [*PauseOwnerError].
func (g *Gate) Resume(owner string) (PauseState, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.owned(owner); err != nil {
		return g.state(), err
	}
	g.end()
	return g.state(), nil
}

// State tells whether the gate is paused and how many calls are in flight.
func (g *Gate) State() PauseState {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire()
	return g.state()
}

// Drain waits until no call is in flight. Without a pause new ones may follow.
func (g *Gate) Drain(ctx context.Context) error {
	g.mu.Lock()
	if g.inFlight == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.drained == nil {
		g.drained = make(chan struct{})
	}
	drained := g.drained
	g.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %d model calls in flight: %w", g.State().InFlight, context.Cause(ctx))
	}
}

// Enter lets a call in; the caller calls leave once it has ended. While the gate
// is paused the error is a [*PausedError], or the context's when that ended
// while the call was held.
func (g *Gate) Enter(ctx context.Context) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var late <-chan time.Time
	for {
		g.expire()
		if !g.paused {
			g.inFlight++
			return sync.OnceFunc(g.leave), nil
		}
		if !g.pause.Hold {
			return nil, g.refusal(0)
		}
		if late == nil {
			timer := time.NewTimer(g.hold)
			defer timer.Stop()
			late = timer.C
		}
		if expired, err := g.await(ctx, late); err != nil {
			return nil, err
		} else if expired {
			return nil, g.refusal(g.hold)
		}
	}
}

// await gives up the lock until the pause changes or ends by itself; expired
// tells that a call has been held long enough.
func (g *Gate) await(ctx context.Context, late <-chan time.Time) (expired bool, err error) {
	changed := g.changed
	var ends <-chan time.Time
	if !g.until.IsZero() {
		timer := time.NewTimer(g.until.Sub(g.now()))
		defer timer.Stop()
		ends = timer.C
	}
	g.held++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.held--
	}()
	select {
	case <-changed:
	case <-ends:
	case <-late:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	return false, nil
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	g.settle()
	if g.inFlight == 0 && g.drained != nil {
		close(g.drained)
		g.drained = nil
	}
}

func (g *Gate) refusal(held time.Duration) *PausedError {
	return &PausedError{RetryAfter: g.pause.RetryAfter, Reason: g.pause.Reason, Held: held}
}

// owned returns an error when the pause is somebody else's.
func (g *Gate) owned(owner string) error {
	g.expire()
	if g.paused && g.pause.Owner != "" && g.pause.Owner != owner {
		return &PauseOwnerError{Owner: g.pause.Owner, Until: g.until}
	}
	return nil
}

// expire ends a pause whose lease is over.
func (g *Gate) expire() {
	if g.paused && !g.until.IsZero() && !g.now().Before(g.until) {
		g.end()
	}
}

// watch has f told of what happens to the gate. It must be quick.
func (g *Gate) watch(f func(HealthChange)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told = append(g.told, f)
}

func (g *Gate) tell(c HealthChange) {
	for _, f := range g.told {
		f(c)
	}
}

// settle tells when the calls from before a pause have ended.
func (g *Gate) settle() {
	if g.paused && g.inFlight == 0 && !g.quiet {
		g.quiet = true
		g.tell(HealthChange{Time: g.now(), To: Paused, Drained: true, Reason: gateReason(&g.pause)})
	}
}

// gateReason says why a pause is, and whose.
func gateReason(p *Pause) string {
	var parts []string
	if p.Reason != nil && *p.Reason != "" {
		parts = append(parts, *p.Reason)
	}
	if p.Owner != "" {
		parts = append(parts, "by "+p.Owner)
	}
	return strings.Join(parts, ", ")
}

// end ends the pause; what refused callers are told to wait stays for the next.
func (g *Gate) end() {
	if g.paused {
		now := g.now()
		if !g.until.IsZero() && g.until.Before(now) {
			now = g.until // it ended by itself, and nobody looked
		}
		g.tell(HealthChange{Time: now, To: Fine, From: Paused, Lasted: now.Sub(g.began)})
	}
	g.paused, g.pause, g.until = false, Pause{RetryAfter: g.pause.RetryAfter}, time.Time{}
	g.wake()
}

func (g *Gate) wake() {
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *Gate) state() PauseState {
	return PauseState{Pause: g.pause, Paused: g.paused, Until: g.until, InFlight: g.inFlight, Held: g.held}
}
