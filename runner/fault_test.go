package runner_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/emit"
	"agentlightning/runner"
	"agentlightning/store"
)

var errAway = errors.New("connection refused")

// faulty is a store that is away at times.
type faulty struct {
	store.Store
	down atomic.Bool

	mu   sync.Mutex
	keys []string // of claims
	// claimed, when set, sees each claim and may lose its answer.
	claimed func([]agl.AttemptedRollout, error) ([]agl.AttemptedRollout, error)
}

func (f *faulty) DequeueRollouts(ctx context.Context, req store.DequeueRequest) ([]agl.AttemptedRollout, error) {
	f.mu.Lock()
	f.keys = append(f.keys, req.Key)
	f.mu.Unlock()
	if f.down.Load() {
		return nil, errAway
	}
	out, err := f.Store.DequeueRollouts(ctx, req)
	if f.claimed != nil {
		return f.claimed(out, err)
	}
	return out, err
}

func (f *faulty) Resources(ctx context.Context, id string) (agl.ResourcesUpdate, error) {
	if f.down.Load() {
		return agl.ResourcesUpdate{}, errAway
	}
	return f.Store.Resources(ctx, id)
}

func (f *faulty) UpdateAttempt(ctx context.Context, rolloutID, attemptID string, u store.AttemptUpdate) (agl.Attempt, error) {
	if f.down.Load() {
		return agl.Attempt{}, errAway
	}
	return f.Store.UpdateAttempt(ctx, rolloutID, attemptID, u)
}

func (f *faulty) NextSequenceIDs(ctx context.Context, attempts []store.Attempted) ([]int64, error) {
	if f.down.Load() {
		return nil, errAway
	}
	return f.Store.NextSequenceIDs(ctx, attempts)
}

func (f *faulty) AddSpans(ctx context.Context, spans []agl.Span) ([]store.AddedSpan, error) {
	if f.down.Load() {
		return nil, errAway
	}
	return f.Store.AddSpans(ctx, spans)
}

func TestStoreThatWasNeverReached(t *testing.T) {
	bubble(t, func(b *bench) {
		f := &faulty{Store: b.store}
		f.down.Store(true)
		r, err := runner.New(runner.Config{Store: f, Agent: rewardAgent(1), ConnectTimeout: 30 * time.Second})
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		err = r.Run(b.Context())
		if !errors.Is(err, errAway) || !strings.Contains(err.Error(), "is the server running") {
			b.Errorf("Run() = %v", err)
		}
		if took := time.Since(began); took < 30*time.Second || took > 40*time.Second {
			b.Errorf("Run() gave up after %v, want some 30s", took)
		}
	})
}

func TestStoreThatGoesAwayAndComesBack(t *testing.T) {
	bubble(t, func(b *bench) {
		f := &faulty{Store: b.store}
		f.down.Store(true)
		// Rollouts with resources, so that every call is in the way.
		if _, err := b.store.AddResources(b.Context(), agl.NamedResources{}); err != nil {
			b.Fatal(err)
		}
		work := agent.New(func(ctx context.Context, t task, _ *agent.Call) (float64, error) {
			f.down.Store(true) // away while the agent works, at the end, and at the next claim
			time.AfterFunc(time.Minute, func() { f.down.Store(false) })
			return float64(t.N), emit.Message(ctx, "working")
		})
		ids := b.enqueue(nil, 1, 2, 3)
		stop := b.start(runner.Config{Store: f, Agent: work})
		time.Sleep(45 * time.Second) // started before the server
		f.down.Store(false)
		for i, r := range b.finish(ids...) {
			spans := b.spans(ids[i])
			got, err := agl.FinalReward(spans)
			if r.Status != agl.RolloutSucceeded || err != nil || got == nil || *got != float64(i+1) || len(spans) != 2 || r.Attempt.SequenceID != 1 {
				b.Errorf("rollout %d: %s, reward %v, %d spans, attempt %d", i, r.Status, got, len(spans), r.Attempt.SequenceID)
			}
		}
		f.down.Store(false)
		stop()
	})
}

// A claim whose answer is lost is asked for again with its key, and the store
// then answers with what it had claimed.
func TestClaimKeepsItsKeyUntilItIsAnswered(t *testing.T) {
	bubble(t, func(b *bench) {
		f := &faulty{Store: b.store}
		lost := 0
		f.claimed = func(out []agl.AttemptedRollout, err error) ([]agl.AttemptedRollout, error) {
			if len(out) > 0 && lost < 2 {
				lost++
				return nil, errAway
			}
			return out, err
		}
		ids := b.enqueue(nil, 1, 2)
		stop := b.start(runner.Config{Store: f, Agent: rewardAgent(1)})
		for _, id := range ids {
			if r := b.finish(id)[0]; r.Attempt.SequenceID != 1 {
				b.Errorf("rollout %s took %d attempts", id, r.Attempt.SequenceID)
			}
		}
		stop()
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.keys) < 4 || f.keys[0] != f.keys[1] || f.keys[1] != f.keys[2] || f.keys[2] == f.keys[3] {
			b.Errorf("keys %q, want the first one until it was answered", f.keys)
		}
	})
}

func TestClosedStoreEndsTheRunner(t *testing.T) {
	bubble(t, func(b *bench) {
		r, err := runner.New(runner.Config{Store: b.store, Agent: rewardAgent(1)})
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- r.Run(b.Context()) }()
		time.Sleep(time.Second)
		b.store.Close()
		if err := <-done; !errors.Is(err, store.ErrClosed) {
			b.Errorf("Run() = %v, want ErrClosed", err)
		}
	})
}

// Resources that do not exist fail the attempt with that reason.
func TestUnknownResources(t *testing.T) {
	bubble(t, func(b *bench) {
		id := "rs-unknown"
		rollouts, err := b.store.EnqueueRollouts(b.Context(), []store.EnqueueRequest{{Input: []byte(`{}`), ResourcesID: &id}})
		if err != nil {
			b.Fatal(err)
		}
		hooked := false
		defer b.start(runner.Config{Agent: rewardAgent(1), Hooks: []agent.Hook{{
			OnRolloutEnd: func(context.Context, *agent.Call, agent.Outcome) error { hooked = true; return nil },
		}}})()
		r := b.finish(rollouts[0].RolloutID)[0]
		reason, text, _ := failure(b, *r.Attempt)
		if r.Status != agl.RolloutFailed || reason != "resources" || !strings.Contains(text, "rs-unknown") {
			b.Errorf("rollout %s: %s %q", r.Status, reason, text)
		}
		if hooked {
			b.Error("a hook was called")
		}
	})
}
