package pg_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm/pg"
	"agentlightning/learner"
	"agentlightning/semconv"
	"agentlightning/store"
)

// overlapping is a policy whose first update does not end before an agent samples
// from it.
type overlapping struct {
	*arms
	mu       sync.Mutex
	updating bool
	met      chan struct{} // closed when an agent came during an update
	once     sync.Once
}

func (o *overlapping) sample(prompt int32, seed int64) (int32, float64) {
	o.mu.Lock()
	updating := o.updating
	o.mu.Unlock()
	if updating {
		o.once.Do(func() { close(o.met) })
	}
	return o.arms.sample(prompt, seed)
}

func (o *overlapping) Update(ctx context.Context, b learner.Batch) (learner.Metrics, error) {
	o.mu.Lock()
	o.updating = true
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.updating = false
	}()
	select {
	case <-o.met:
	case <-time.After(20 * time.Second):
		return nil, errors.New("nobody samples during the update")
	}
	return o.arms.Update(ctx, b)
}

// Agents work while the policy is updated, on groups that the next step may take.
func TestAsyncOverlaps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	policy := &overlapping{arms: b.policy, met: make(chan struct{})}
	b.work.policy = policy
	b.work.slow = func(ctx context.Context, r agl.AttemptedRollout) { // of the groups beyond those of the first step
		if m := groupNumber(t, r); m >= 4 {
			select {
			case <-b.work.hurry:
			case <-ctx.Done():
			}
		}
	}
	b.work.hurry = make(chan struct{})
	c := config(b, t.TempDir())
	c.Learner = &hurrying{policy, b.work.hurry}
	c.Async = pg.Async{Groups: 8}
	b.work.start(t)
	var steps []pg.Step
	c.OnStep = func(s pg.Step) { steps = append(steps, s) }
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	if got := right(b.policy); got < 0.8 {
		t.Errorf("probability of the right token = %.3f after training, want more than 0.8", got)
	}
	if s := steps[1].Metrics; s["training/async/n_prev_carry_over_rollouts"] != 0 || s["training/async/n_completed_rollouts"] != 32 ||
		s["training/async/n_new_carry_over_rollouts"] != 32 {
		t.Errorf("first step: %v, want 4 groups of 8 trained on and 4 carried over", s)
	}
	for _, s := range steps[2:12] {
		if got := s.Metrics["training/async/n_prev_carry_over_rollouts"]; got != 32 {
			t.Errorf("step %d: %v carried rollouts, want 32", s.Number, got)
		}
	}
	if calls := b.work.calls.Load(); calls != 12*32+4*2 {
		t.Errorf("%d rollouts, want those of 12 steps and 4 validations and no more", calls)
	}
}

// hurrying lets slow agents go on as soon as an update begins.
type hurrying struct {
	*overlapping
	hurry chan struct{}
}

func (h *hurrying) Update(ctx context.Context, b learner.Batch) (learner.Metrics, error) {
	select {
	case <-h.hurry:
	default:
		close(h.hurry)
	}
	return h.overlapping.Update(ctx, b)
}

func groupNumber(t *testing.T, r agl.AttemptedRollout) int {
	t.Helper()
	text := strings.Trim(string(r.MetadataValue(semconv.MetadataGroup)), `"`)
	n := 0
	for _, d := range text {
		n = 10*n + int(d-'0')
	}
	return n
}

// A group that is not done in time is given up, and its rollouts are cancelled.
func TestAsyncStaleness(t *testing.T) {
	t.Parallel()
	b := setup(t)
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	b.work.slow = func(ctx context.Context, r agl.AttemptedRollout) {
		if string(r.MetadataValue(semconv.MetadataStep)) == "1" && groupNumber(t, r) == 0 && string(r.MetadataValue(semconv.MetadataMember)) == "0" {
			select {
			case <-never:
			case <-ctx.Done():
			}
		}
	}
	b.work.start(t)
	c := config(b, t.TempDir())
	c.Steps, c.ValidateEvery = 5, 0
	c.Async = pg.Async{Groups: 6, MaxStaleness: 2}
	var steps []pg.Step
	c.OnStep = func(s pg.Step) { steps = append(steps, s) }
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	stale := 0.0
	for _, s := range steps[1:] {
		stale += s.Metrics["groups_stale"]
		if age := s.Metrics["staleness_max"]; age > 2 {
			t.Errorf("step %d was trained on a group that is %v updates old, the limit is 2", s.Number, age)
		}
	}
	if stale == 0 {
		t.Error("no group was given up, although one has a rollout that never ends")
	}
	cancelled, err := b.store.QueryRollouts(t.Context(), store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutCancelled}})
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	for _, r := range cancelled.Items {
		ended = ended || string(r.MetadataValue(semconv.MetadataStep)) == "1" && groupNumber(t, r) == 0 && string(r.MetadataValue(semconv.MetadataMember)) == "0"
	}
	if !ended {
		t.Errorf("cancelled rollouts = %+v, want the one among them that never ends", cancelled.Items)
	}
	open, err := b.store.QueryRollouts(t.Context(), store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutQueuing, agl.RolloutRunning}})
	if err != nil || len(open.Items) != 0 {
		t.Errorf("open rollouts after the run = %+v, %v, want none", open.Items, err)
	}
}

// A run that is interrupted in the middle of a step goes on with the groups that
// were carried over.
func TestAsyncResumes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.start(t)
	dir := t.TempDir()
	c := config(b, dir)
	c.Async = pg.Async{Groups: 7}
	ctx, cancel := context.WithCancel(t.Context())
	c.OnStep = func(s pg.Step) {
		if s.Number == 6 {
			cancel()
		}
	}
	a, err := pg.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(ctx, b.env); !errors.Is(err, context.Canceled) {
		t.Fatalf("Run = %v, want context.Canceled", err)
	}
	runs, err := b.store.Runs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	b.env.RunID, c.OnStep = runs[0].RunID, nil
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	trained := map[string]bool{}
	for _, batch := range b.policy.batches {
		for _, row := range batch.Rows {
			if trained[row.Rollout] {
				t.Errorf("rollout %s was trained on twice", row.Rollout)
			}
			trained[row.Rollout] = true
		}
	}
	if calls := b.work.calls.Load(); calls != 12*32+4*2 {
		t.Errorf("%d rollouts, want those of 12 steps and 4 validations and no more", calls)
	}
}
