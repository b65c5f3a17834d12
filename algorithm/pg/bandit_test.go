package pg_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/learner"
	"agentlightning/rl"
	"agentlightning/semconv"
	"agentlightning/store"
)

// arms is a policy over two tokens for each of two prompts, updated by the
// exact gradient of the clipped loss: the smallest thing that GRPO can teach.
type arms struct {
	mu      sync.Mutex
	logits  [2][2]float64
	version int64
	batches []learner.Batch
}

func (a *arms) logprob(prompt, token int32) float64 {
	l := a.logits[prompt]
	return l[token] - math.Log(math.Exp(l[0])+math.Exp(l[1]))
}

// greedy is the seed of those who take what is most likely.
const greedy = -1

func (a *arms) sample(prompt int32, seed int64) (int32, float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	token := int32(0)
	if seed == greedy {
		if a.logits[prompt][1] > a.logits[prompt][0] {
			token = 1
		}
		return token, a.logprob(prompt, token)
	}
	if rand.New(rand.NewPCG(uint64(seed), 1)).Float64() > math.Exp(a.logprob(prompt, 0)) {
		token = 1
	}
	return token, a.logprob(prompt, token)
}

func (a *arms) Update(_ context.Context, b learner.Batch) (learner.Metrics, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.batches = append(a.batches, b)
	loss := b.Options.Loss.Resolved()
	var gradient [2][2]float64
	for _, row := range b.Rows {
		for i := 1; i < len(row.IDs); i++ {
			if row.Mask[i] == 0 {
				continue
			}
			prompt, token := row.IDs[i-1], row.IDs[i]
			var out [1]rl.TokenLoss
			loss.Sequence([]rl.Token{{
				Logprob: a.logprob(prompt, token), Old: float64(row.Logprobs[i]), Advantage: float64(row.Advantages[i]), Correction: 1,
			}}, out[:])
			g := out[0].Gradient
			for t := range int32(2) {
				d := -math.Exp(a.logprob(prompt, t))
				if t == token {
					d++
				}
				gradient[prompt][t] += g * d
			}
		}
	}
	for prompt := range gradient {
		for t, g := range gradient[prompt] {
			a.logits[prompt][t] -= b.Options.LearningRate * g
		}
	}
	return learner.Metrics{"loss": 0}, nil
}

func (a *arms) Version() int64 { a.mu.Lock(); defer a.mu.Unlock(); return a.version }
func (a *arms) Close() error   { return nil }

func (a *arms) Save(_ context.Context, dir string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	text, err := json.Marshal(a.logits)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "logits.json"), text, 0o644)
}

func (a *arms) Load(_ context.Context, dir string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	text, err := os.ReadFile(filepath.Join(dir, "logits.json"))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &a.logits)
}

// workers stand in for agents behind the proxy: they write the span of the
// model call and the reward, 1 when the token is the task's number.
type workers struct {
	store  store.Store
	policy interface {
		sample(prompt int32, seed int64) (int32, float64)
	}
	// fails tells which rollouts crash; nil means none.
	fails func(member int) bool
	// failsGreedy tells in which steps the rollouts that others are compared with
	// crash.
	failsGreedy func(step int) bool
	// failsLate are those that crash after they were rewarded.
	failsLate func(member int) bool
	// slow is called before an agent works on a rollout; nil means not at all.
	slow func(ctx context.Context, r agl.AttemptedRollout)
	// hurry is for what slow waits for.
	hurry chan struct{}
	// decode reads the task of a rollout; nil means a number.
	decode func(input json.RawMessage) (int32, error)
	// talk writes what an attempt records in place of one call and its reward; nil
	// means these.
	talk func(task, token int32, logprob float64) []agl.SpanCore
	// beside are spans that every attempt records beside its own.
	beside []agl.SpanCore
	// besideAt is their sequence id; the call has 1, which 0 means, the reward 3.
	besideAt int64
	calls    atomic.Int64
}

// start runs some workers until the test ends.
func (w *workers) start(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				claimed, err := w.store.DequeueRollouts(ctx, store.DequeueRequest{Limit: 4, Wait: time.Second})
				if err != nil && ctx.Err() == nil {
					t.Errorf("dequeue: %v", err)
					return
				}
				for _, r := range claimed {
					if w.slow != nil {
						w.slow(ctx, r)
					}
					if err := w.work(ctx, r); err != nil && ctx.Err() == nil {
						t.Errorf("work on %s: %v", r.RolloutID, err)
					}
				}
			}
		})
	}
	t.Cleanup(func() { stop(); wg.Wait() })
}

func (w *workers) work(ctx context.Context, r agl.AttemptedRollout) error {
	w.calls.Add(1)
	var meta struct {
		Step     int   `json:"agl.step"`
		Member   int   `json:"agl.member"`
		Seed     int64 `json:"agl.seed"`
		Baseline bool  `json:"agl.baseline"`
	}
	if err := json.Unmarshal(r.Metadata, &meta); err != nil {
		return err
	}
	done := store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}
	if w.fails != nil && r.Mode == agl.ModeTrain && w.fails(meta.Member) || w.failsGreedy != nil && meta.Baseline && w.failsGreedy(meta.Step) {
		done = store.AttemptUpdate{
			Status:   store.To(agl.AttemptFailed),
			Metadata: store.To(json.RawMessage(`{"error":"the agent crashed"}`)),
		}
	} else {
		var task int32
		err := r.DecodeInput(&task)
		if w.decode != nil {
			task, err = w.decode(r.Input)
		}
		if err != nil {
			return err
		}
		seed := meta.Seed
		if meta.Baseline {
			seed = greedy
		}
		token, logprob := w.policy.sample(task, seed)
		reward := 0.0
		if token%2 == task {
			reward = 1
		}
		call := agl.SpanCore{Name: semconv.SpanModelCall, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{
			{Key: semconv.PromptTokenIDs, Value: []int64{int64(task)}},
			{Key: semconv.ResponseTokenIDs, Value: []int64{int64(token)}},
			{Key: semconv.ResponseLogprobs, Value: []float64{logprob}},
		}}
		final := agl.SpanCore{Name: semconv.SpanAnnotation, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{
			{Key: semconv.RewardName(0), Value: semconv.PrimaryReward}, {Key: semconv.RewardValue(0), Value: reward},
		}}
		now := agl.Seconds(time.Now())
		id := r.Attempt.AttemptID
		spans := []agl.Span{call.Span(r.RolloutID, id, 1, now), final.Span(r.RolloutID, id, 3, now)}
		if w.talk != nil {
			spans = nil
			for i, core := range w.talk(task, token, logprob) {
				spans = append(spans, core.Span(r.RolloutID, id, int64(i+1), now))
			}
		}
		for i := range w.beside {
			spans = append(spans, w.beside[i].Span(r.RolloutID, id, max(1, w.besideAt), now))
		}
		if _, err := w.store.AddSpans(ctx, spans); err != nil {
			return err
		}
		if w.failsLate != nil && r.Mode == agl.ModeTrain && w.failsLate(meta.Member) {
			done = store.AttemptUpdate{Status: store.To(agl.AttemptFailed)}
		}
	}
	_, err := w.store.UpdateAttempt(ctx, r.RolloutID, r.Attempt.AttemptID, done)
	return err
}

// picky is a learner that says what it cannot do.
type picky struct{ *arms }

func (p *picky) Check(o learner.Options) error {
	if o.Loss.Entropy != 0 {
		return fmt.Errorf("%w: cannot do entropy", learner.ErrInvalid)
	}
	return nil
}
