package native

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"agentlightning/learner"
	"agentlightning/rl"
)

// A run of updates and samples repeats to the last bit, whatever the workers.
func TestRunsRepeat(t *testing.T) {
	t.Parallel()
	run := func(workers int) ([]float32, []int32) {
		m := smallModel(t, Config{Seed: 7, Workers: workers})
		var ids []int32
		for i := range 4 {
			b := imitationBatch(m, uint64(i))
			b.Options.Objective = []learner.Objective{learner.Imitation, learner.PolicyGradient}[i%2]
			update(t, m, b)
			res, err := m.Generate(t.Context(), Request{Prompt: []int32{UserToken}, Temperature: 1})
			if err != nil {
				t.Fatalf("Generate: %v", err)
			}
			ids = append(ids, res.IDs()...)
		}
		return m.train.weights, ids
	}
	weights, ids := run(1)
	for _, workers := range []int{1, 2, 3, 8} {
		w, i := run(workers)
		if !slices.Equal(w, weights) || !slices.Equal(i, ids) {
			t.Errorf("%d workers: weights or samples differ from those of one worker", workers)
		}
	}
}

// cancelAfter is a context that ends when its error was asked for n times.
type cancelAfter struct {
	context.Context
	n int
}

func (c *cancelAfter) Err() error {
	if c.n--; c.n < 0 {
		return context.Canceled
	}
	return nil
}

func TestUpdateRollsBack(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 2})
	update(t, m, imitationBatch(m, 1))
	w, first, second := slices.Clone(m.train.weights), slices.Clone(m.train.first), slices.Clone(m.train.second)
	steps, version := m.train.steps, m.Version()
	check := func(name string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: Update succeeded", name)
		}
		if !slices.Equal(w, m.train.weights) || !slices.Equal(first, m.train.first) || !slices.Equal(second, m.train.second) ||
			m.train.steps != steps || m.Version() != version {
			t.Errorf("%s: the update was not taken back", name)
		}
	}
	_, err := m.Update(&cancelAfter{t.Context(), 3}, imitationBatch(m, 2))
	check("cancelled in the middle", err)

	b := imitationBatch(m, 2)
	b.Options.Objective = learner.PolicyGradient
	last := b.Rows[len(b.Rows)-1]
	for i := range last.Advantages {
		last.Advantages[i], last.Mask[i] = float32(math.NaN()), 1
	}
	_, err = m.Update(t.Context(), b)
	check("advantage that is no number", err)

	for name, spoil := range map[string]func(*learner.Batch){
		"id out of range": func(b *learner.Batch) { b.Rows[1].IDs[2] = int32(m.tok.Size()) },
		"negative id":     func(b *learner.Batch) { b.Rows[1].IDs[2] = -1 },
		"too long": func(b *learner.Batch) {
			b.Rows[0] = learner.Row{IDs: make([]int32, 25), Mask: make([]float32, 25)}
		},
		"no learning rate": func(b *learner.Batch) { b.Options.LearningRate = 0 },
		"mask too short":   func(b *learner.Batch) { b.Rows[0].Mask = b.Rows[0].Mask[1:] },
	} {
		b := imitationBatch(m, 3)
		spoil(&b)
		_, err := m.Update(t.Context(), b)
		check(name, err)
		if !errors.Is(err, learner.ErrInvalid) {
			t.Errorf("%s: error = %v, want ErrInvalid", name, err)
		}
	}
}

func TestEmptyBatchIsNoOp(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{})
	w := slices.Clone(m.train.weights)
	for name, rows := range map[string][]learner.Row{
		"no rows": nil, "no tokens": {{}}, "nothing masked": {{IDs: []int32{1, 2}, Mask: []float32{1, 0}}},
	} {
		metrics := update(t, m, learner.Batch{Rows: rows, Options: learner.Options{Objective: learner.Imitation, LearningRate: 1}})
		if metrics["tokens"] != 0 || m.Version() != 0 || !slices.Equal(w, m.train.weights) {
			t.Errorf("%s: metrics %v, version %d", name, metrics, m.Version())
		}
	}
}

// With the log-probabilities of the policy itself the first step is on policy.
func TestMetricsOnPolicy(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 3})
	var rows []learner.Row
	for seed := range int64(8) {
		prompt := []int32{UserToken, 'x', AssistantToken}
		res, err := m.Generate(t.Context(), Request{Prompt: prompt, Temperature: 1, Seed: seed + 1, MaxTokens: 10})
		if err != nil {
			t.Fatalf("Generate: %v", err)
		}
		row := learner.Row{IDs: append(prompt, res.IDs()...), Logprobs: append(make([]float32, 3), res.Logprobs()...)}
		row.Mask, row.Advantages = make([]float32, len(row.IDs)), make([]float32, len(row.IDs))
		for i := 3; i < len(row.IDs); i++ {
			row.Mask[i], row.Advantages[i] = 1, float32(seed)-3.5
		}
		rows = append(rows, row)
	}
	got := update(t, m, learner.Batch{Rows: rows, Options: learner.Options{Objective: learner.PolicyGradient, LearningRate: 1e-9}})
	if math.Abs(got["ratio_mean"]-1) > 1e-4 || math.Abs(got["approx_kl"]) > 1e-6 || got["clip_fraction"] != 0 {
		t.Errorf("metrics on policy = %v, want ratio 1, kl 0, nothing clipped", got)
	}
	if want := math.Log(float64(m.lay.vocab)); math.Abs(got["entropy"]-want) > 0.1 {
		t.Errorf("entropy of an untrained model = %v, want about %v", got["entropy"], want)
	}
	for _, name := range []string{"loss", "grad_norm", "tokens", "rows", "seconds"} {
		if _, ok := got[name]; !ok {
			t.Errorf("metric %s is missing", name)
		}
	}
}

// Reversing three letters is learnt by imitation; a reward for one of two equal
// habits is then learnt from samples.
func TestLearning(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 1})
	r := rand.New(rand.NewPCG(1, 2))
	problem := func() (prompt, answer []int32) {
		a, b, c := 'a'+r.Int32N(4), 'a'+r.Int32N(4), 'a'+r.Int32N(4)
		return []int32{UserToken, a, b, c, AssistantToken}, []int32{c, b, a, EndToken}
	}
	for range 200 {
		var rows []learner.Row
		for range 32 {
			p, a := problem()
			row := learner.Row{IDs: slices.Concat(p, a), Mask: make([]float32, len(p)+len(a))}
			if r.IntN(2) == 0 { // the other habit: shout
				row.IDs[len(p)] -= 'a' - 'A'
			}
			for i := range a {
				row.Mask[len(p)+i] = 1
			}
			rows = append(rows, row)
		}
		update(t, m, learner.Batch{Rows: rows, Options: learner.Options{Objective: learner.Imitation, LearningRate: 5e-3}})
	}
	m.ResetOptimizer()
	var reward float64
	const samples = 64
	for step := range 25 {
		reward = 0
		var rows []learner.Row
		for i := range samples {
			p, a := problem()
			res, err := m.Generate(t.Context(), Request{Prompt: p, Temperature: 1, MaxTokens: 6, Seed: int64(step*samples + i + 1)})
			if err != nil {
				t.Fatalf("Generate: %v", err)
			}
			ids := res.IDs()
			right := float64(0)
			if slices.Equal(ids, a) {
				right = 1
			}
			reward += right / samples
			row := learner.Row{IDs: slices.Concat(p, ids), Logprobs: append(make([]float32, len(p)), res.Logprobs()...)}
			row.Mask, row.Advantages = make([]float32, len(row.IDs)), make([]float32, len(row.IDs))
			for j := len(p); j < len(row.IDs); j++ {
				row.Mask[j], row.Advantages[j] = 1, float32(right-0.5)
			}
			rows = append(rows, row)
		}
		if step == 0 && (reward < 0.2 || reward > 0.8) {
			t.Errorf("reward before = %v, want both habits alive", reward)
		}
		update(t, m, learner.Batch{Rows: rows, Options: learner.Options{
			Objective: learner.PolicyGradient, LearningRate: 1e-3, Epochs: 2, Minibatch: 32, Loss: rl.Loss{Clip: rl.Clip{Low: 0.2, High: 0.3}},
		}})
	}
	if reward < 0.9 {
		t.Errorf("reward after = %v, want at least 0.9", reward)
	}
}

// Updates, samples, saves and versions at once are safe; run with -race.
func TestUpdateWhileSampling(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 1, Slots: 4})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	for range 6 {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				res, err := m.Generate(ctx, Request{Prompt: []int32{UserToken, 'a', AssistantToken}, Temperature: 1})
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("Generate: %v", err)
					}
					return
				}
				for _, l := range res.Logprobs() {
					if !(l <= 0) {
						t.Errorf("logprob %v", l)
					}
				}
			}
		}()
	}
	for i := range 10 {
		update(t, m, imitationBatch(m, uint64(i)))
	}
	if m.Version() != 10 {
		t.Errorf("Version = %d, want 10", m.Version())
	}
	cancel()
	for range 6 {
		<-done
	}
}
