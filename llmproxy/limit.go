package llmproxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// limiter keeps the calls of one backend within the limits that it was
// registered with. Calls that have to wait are let in in the order in which they
// came.
type limiter struct {
	mu          sync.Mutex
	concurrency int64 // 0 has no limit, as below
	rpm, tpm    int64
	open        int64
	calls       minute
	tokens      minute
	queue       []*waiting
	timer       *time.Timer // lets the first of the queue in; nil when it waits for no time
	gone        bool        // the backend is not registered any more
}

// waiting is a call in the queue. ready is closed when it is let in or its
// backend is gone; the limiter's lock guards the rest.
type waiting struct {
	ready chan struct{}
	in    bool
}

// errGone tells a call that waited that its backend is no longer registered.
var errGone = errors.New("the backend is not registered any more")

// limitError is the refusal of a call that waited too long.
type limitError struct {
	limit      string // such as concurrency=4
	waited     time.Duration
	retryAfter time.Duration
}

func (e *limitError) Error() string { return "over the limit " + e.limit }

// configure sets the limits; 0 has none.
func (l *limiter) configure(concurrency, rpm, tpm int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.concurrency, l.rpm, l.tpm, l.gone = concurrency, rpm, tpm, false
	l.advance(time.Now())
}

// remove sends the calls that wait to another backend.
func (l *limiter) remove() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	for _, w := range l.queue {
		close(w.ready)
	}
	l.queue = nil
	l.stop()
}

// acquire lets a call in, after a wait of at most patience. The error is
// errGone, a *limitError, or why ctx ended. Who is let in calls release.
func (l *limiter) acquire(ctx context.Context, patience time.Duration) error {
	l.mu.Lock()
	now := time.Now()
	if len(l.queue) == 0 {
		if limit, _ := l.blocked(now); limit == "" {
			l.admit(now)
			l.mu.Unlock()
			return nil
		}
	}
	if l.gone {
		l.mu.Unlock()
		return errGone
	}
	w := &waiting{ready: make(chan struct{})}
	l.queue = append(l.queue, w)
	l.advance(now)
	l.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.ready:
		l.mu.Lock()
		defer l.mu.Unlock()
		if !w.in {
			return errGone
		}
		return nil
	case <-timer.C:
		return l.giveUp(w, func(limit string, free time.Duration) error {
			return &limitError{limit: limit, waited: patience, retryAfter: free}
		})
	case <-ctx.Done():
		return l.giveUp(w, func(string, time.Duration) error { return context.Cause(ctx) })
	}
}

// giveUp takes a call out of the queue, unless it was let in at the last moment.
func (l *limiter) giveUp(w *waiting, refuse func(limit string, free time.Duration) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.in {
		return nil
	}
	for i, other := range l.queue {
		if other == w {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			break
		}
	}
	now := time.Now()
	limit, free := l.blocked(now)
	l.advance(now)
	return refuse(limit, free)
}

// release ends a call that used so many tokens.
func (l *limiter) release(tokens int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.open--
	if l.tpm > 0 && tokens > 0 {
		l.tokens.add(now, tokens)
	}
	l.advance(now)
}

// repeat counts another request of a call that was let in.
func (l *limiter) repeat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rpm > 0 {
		l.calls.add(time.Now(), 1)
	}
}

// free reports whether a call would be let in now.
func (l *limiter) free() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit, _ := l.blocked(time.Now())
	return limit == "" && len(l.queue) == 0
}

// waits returns how many calls wait.
func (l *limiter) waits() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.queue))
}

// advance lets in as many of the queue as there is room for, and sets the timer
// when the first of the rest waits for time to pass.
func (l *limiter) advance(now time.Time) {
	l.stop()
	for len(l.queue) > 0 {
		limit, free := l.blocked(now)
		if limit != "" {
			if free > 0 {
				l.timer = time.AfterFunc(free, l.tick)
			}
			return
		}
		w := l.queue[0]
		l.queue = l.queue[1:]
		l.admit(now)
		w.in = true
		close(w.ready)
	}
}

func (l *limiter) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(time.Now())
}

func (l *limiter) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

func (l *limiter) admit(now time.Time) {
	l.open++
	if l.rpm > 0 {
		l.calls.add(now, 1)
	}
}

// blocked returns the limit that keeps a call out, empty when none does, and
// after what time it will be gone; 0 when that depends on other calls.
func (l *limiter) blocked(now time.Time) (limit string, free time.Duration) {
	if l.rpm > 0 {
		if free := l.calls.below(now, l.rpm); free > 0 {
			return fmt.Sprintf("rpm=%d", l.rpm), free
		}
	}
	if l.tpm > 0 {
		if free := l.tokens.below(now, l.tpm); free > 0 {
			return fmt.Sprintf("tpm=%d", l.tpm), free
		}
	}
	if l.concurrency > 0 && l.open >= l.concurrency {
		return fmt.Sprintf("concurrency=%d", l.concurrency), 0
	}
	return "", 0
}

// minute counts what happened within the last minute, to the second. It may
// count a little more than a minute, never less.
type minute struct {
	second int64     // the last one that was counted in, Unix
	slots  [61]int64 // by second
	sum    int64
}

func (m *minute) add(now time.Time, n int64) {
	m.forget(now)
	m.slots[m.slot(m.second)] += n
	m.sum += n
}

// forget drops the seconds that are over a minute old.
func (m *minute) forget(now time.Time) {
	second := now.Unix()
	if second-m.second >= int64(len(m.slots)) {
		*m = minute{second: second}
		return
	}
	for m.second < second {
		m.second++
		at := m.slot(m.second)
		m.sum -= m.slots[at]
		m.slots[at] = 0
	}
}

// below returns after what time the count will be below a limit.
func (m *minute) below(now time.Time, limit int64) time.Duration {
	m.forget(now)
	left := m.sum
	for i := int64(1); left >= limit && i <= int64(len(m.slots)); i++ {
		left -= m.slots[m.slot(m.second+i)]
		if left < limit {
			return time.Unix(m.second+i, 0).Sub(now)
		}
	}
	return 0
}

func (m *minute) slot(second int64) int64 {
	n := int64(len(m.slots))
	return (second%n + n) % n
}
