package engine

import "testing"

// hears reports whether the place was called, and takes the call.
func (p *place) hears() bool {
	select {
	case <-p.called:
		return true
	default:
		return false
	}
}

func TestLinePassesCallsOn(t *testing.T) {
	t.Parallel()
	var l line
	a, b, c := l.join(), l.join(), l.join()
	l.wake(1)
	l.leave(a) // gives up before it heard
	if !b.hears() {
		t.Fatal("the call of the one that gave up did not go to the next")
	}
	l.rejoin(b) // looks, and another was quicker
	l.wake(1)
	if !b.hears() || c.hears() {
		t.Fatal("who was woken in vain is not the next any more")
	}
	l.rejoin(b)
	l.leave(b) // got something
	if c.hears() {
		t.Fatal("a call that was heard was passed on")
	}
	l.wake(5)
	if !c.hears() || !l.empty() {
		t.Fatal("the last was not called")
	}
	l.leave(c)
	l.wake(1) // nobody there
	if d := l.join(); d.hears() {
		t.Fatal("a call was kept for who came later")
	}
}
