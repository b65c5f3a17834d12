package llmproxy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// acquireAll lets callers wait for a place, one after the other, and returns what
// they got.
func acquireAll(l *limiter, n int, patience time.Duration) []chan error {
	got := make([]chan error, n)
	for i := range got {
		got[i] = make(chan error, 1)
		go func() { got[i] <- l.acquire(context.Background(), patience) }()
		synctest.Wait()
	}
	return got
}

// arrived returns how many have got an answer.
func arrived(got []chan error) (n int) {
	synctest.Wait()
	for _, c := range got {
		n += len(c)
	}
	return n
}

func TestConcurrencyInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		l.configure(2, 0, 0)
		got := acquireAll(&l, 5, time.Hour)
		for free := range 3 {
			if n := arrived(got); n != 2+free {
				t.Fatalf("%d calls are in after %d ended, want %d", n, free, 2+free)
			}
			for i, c := range got {
				if (len(c) == 1) != (i < 2+free) {
					t.Errorf("call %d is out of order", i)
				}
			}
			l.release(0)
		}
	})
}

func TestConcurrencyGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		l.configure(1, 0, 0)
		got := acquireAll(&l, 2, 3*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- l.acquire(ctx, time.Hour) }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("call whose caller left = %v", err)
		}
		if e, ok := errors.AsType[*limitError](<-got[1]); !ok || e.limit != "concurrency=1" || e.waited != 3*time.Second {
			t.Errorf("call that waited too long = %v", e)
		}
		l.release(0)
		if err := l.acquire(t.Context(), 0); err != nil {
			t.Errorf("those that gave up hold a place: %v", err)
		}
	})
}

func TestCallsPerMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		l.configure(0, 3, 0)
		got := acquireAll(&l, 3, 0)
		time.Sleep(20 * time.Second)
		got = append(got, acquireAll(&l, 2, time.Hour)...)
		if n := arrived(got); n != 3 {
			t.Fatalf("%d calls are in, want the first 3", n)
		}
		// At no time do more than three begin within a minute.
		time.Sleep(39 * time.Second)
		if n := arrived(got); n != 3 {
			t.Fatalf("%d calls are in after 59s, want 3", n)
		}
		time.Sleep(2 * time.Second)
		if n := arrived(got); n != 5 {
			t.Errorf("%d calls are in after 61s, want all 5", n)
		}
		refused := acquireAll(&l, 2, time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		<-refused[0]
		if e, ok := errors.AsType[*limitError](<-refused[1]); !ok || e.limit != "rpm=3" || e.retryAfter < 55*time.Second || e.retryAfter > 61*time.Second {
			t.Errorf("refusal is %+v", e)
		}
	})
}

func TestTokensPerMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		l.configure(0, 0, 100)
		for range 2 { // what calls use is known at their end
			if err := l.acquire(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		l.release(70)
		if !l.free() {
			t.Error("30 tokens are left, but a call has to wait")
		}
		l.release(70)
		start := time.Now()
		if err := l.acquire(t.Context(), time.Hour); err != nil || time.Since(start) < time.Minute || time.Since(start) > 62*time.Second {
			t.Errorf("call over the limit = %v after %s, want a minute", err, time.Since(start))
		}
	})
}

func TestLimitsChangeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		l.configure(1, 0, 0)
		got := acquireAll(&l, 4, time.Hour)
		l.configure(2, 0, 0)
		if n := arrived(got); n != 2 {
			t.Errorf("%d calls are in after the limit was raised to 2", n)
		}
		l.remove()
		if n := arrived(got); n != 4 {
			t.Fatalf("%d calls know that their backend is gone", n)
		}
		for i, want := range []error{nil, nil, errGone, errGone} {
			if err := <-got[i]; !errors.Is(err, want) {
				t.Errorf("call %d got %v, want %v", i, err, want)
			}
		}
		if err := l.acquire(t.Context(), time.Hour); !errors.Is(err, errGone) {
			t.Errorf("call after that = %v", err)
		}
	})
}

func TestMinute(t *testing.T) {
	t.Parallel()
	var m minute
	at := func(s int64) time.Time { return time.Unix(1000+s, 0) }
	m.add(at(0), 5)
	m.add(at(30), 5)
	for _, tt := range []struct {
		at, limit int64
		want      time.Duration
	}{
		{30, 11, 0}, {30, 10, 31 * time.Second}, {30, 5, 61 * time.Second}, {60, 10, time.Second}, {61, 10, 0}, {61, 5, 30 * time.Second}, {91, 5, 0},
	} {
		if got := m.below(at(tt.at), tt.limit); got != tt.want {
			t.Errorf("at %ds below(%d) = %s, want %s", tt.at, tt.limit, got, tt.want)
		}
	}
	m.add(at(5000), 1)
	if m.sum != 1 {
		t.Errorf("sum after a long time is %d, want 1", m.sum)
	}
}
