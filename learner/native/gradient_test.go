package native

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"agentlightning/learner"
	"agentlightning/learner/native/internal/kernel"
	"agentlightning/rl"
)

// smallModel is a model whose gradients are cheap to check.
func smallModel(t *testing.T, cfg Config) *Model {
	t.Helper()
	if cfg.Dim == 0 {
		cfg.Dim, cfg.Heads, cfg.Hidden, cfg.Context = 32, 2, 48, 24
	}
	m, err := New(cfg, NewTokenizer([]string{" one", " two"}))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return m
}

// randomRows are rows of random tokens with some of them masked. Logprobs are
// near those of a uniform policy, so that a part of the ratios is clipped.
func randomRows(r *rand.Rand, m *Model, lengths ...int) []learner.Row {
	rows := make([]learner.Row, len(lengths))
	for i, n := range lengths {
		row := learner.Row{
			IDs: make([]int32, n), Mask: make([]float32, n), Logprobs: make([]float32, n), Advantages: make([]float32, n),
		}
		for t := range n {
			row.IDs[t] = r.Int32N(int32(m.lay.vocab))
			if r.Float64() < 0.6 {
				row.Mask[t] = float32(1 + r.IntN(2))
			}
			row.Logprobs[t] = float32(-math.Log(float64(m.lay.vocab)) + 0.3*r.NormFloat64())
			row.Advantages[t] = float32(r.NormFloat64())
		}
		rows[i] = row
	}
	return rows
}

// lossAt is the loss of the rows at weights w, without gradients.
func lossAt(m *Model, w []float32, rows []trainRow, o *objective) float64 {
	pk := newForwardPack(m.lay)
	pk.fill(m.lay, w)
	p := newPass(m.level, m.lay)
	p.reset(rows)
	p.forward(w, pk)
	return p.gradient(o).loss / o.norm
}

// checked are the objectives whose gradients are checked: every loss that has a
// derivative of its value, with all that can be added to it. CISPO's weight is a
// constant to its gradient, which a difference of values cannot see.
func checked() map[string]learner.Options {
	out := map[string]learner.Options{"imitation": {Objective: learner.Imitation}}
	for name, l := range map[string]rl.Loss{
		"ppo":            {Clip: rl.Clip{Low: 0.2, High: 0.3}},
		"ppo, all terms": {Clip: rl.Clip{Low: 0.2, High: 0.3, Dual: 1.2}, KL: rl.KL{Coefficient: 0.2}, Entropy: 0.3, Aggregation: rl.SequenceMean},
		"gspo":           {Surrogate: rl.GSPO, Clip: rl.Clip{Low: 0.2, High: 0.3}, Aggregation: rl.SequenceMean},
		"gmpo":           {Surrogate: rl.GMPO, Aggregation: rl.RolloutMean},
		"dppo":           {Surrogate: rl.DPPO, Clip: rl.Clip{Low: 0.001, High: 0.001}, Aggregation: rl.SequenceSum},
		"reinforce":      {Surrogate: rl.Reinforce, KL: rl.KL{Estimator: rl.K2, Coefficient: 0.1}, Aggregation: rl.ConstantNorm, Norm: 24},
	} {
		out[name] = learner.Options{Objective: learner.PolicyGradient, Loss: l}
	}
	return out
}

// Every tensor's analytic gradient is compared with central differences of the
// loss along random directions within the tensor. The loss is a float32
// calculation, so differences carry an error of about 1e-7/step of it; the
// tolerance of 1 % leaves room for that and for the kinks of clipping.
func TestGradientsMatchFiniteDifferences(t *testing.T) {
	t.Parallel()
	for name, options := range checked() {
		for _, tied := range []bool{false, true} {
			for _, portable := range []bool{false, true} {
				if name != "imitation" && name != "ppo" && (tied || portable) {
					continue // the losses differ in what goes into the same backward pass
				}
				t.Run(fmt.Sprintf("%s/tied=%t/portable=%t", name, tied, portable), func(t *testing.T) {
					t.Parallel()
					m := smallModel(t, Config{
						Dim: 32, Heads: 2, Hidden: 48, Context: 24, Tied: tied, Portable: portable, Seed: 3,
					})
					checkGradients(t, m, options)
				})
			}
		}
	}
}

func checkGradients(t *testing.T, m *Model, options learner.Options) {
	t.Helper()
	r := rand.New(rand.NewPCG(11, 12))
	// Larger weights than the first ones make every path matter.
	for i := range m.train.weights {
		m.train.weights[i] += float32(0.15 * r.NormFloat64())
	}
	batch := learner.Batch{Rows: randomRows(r, m, 3, 24, 9, 17, 2), Options: options}
	batch.Options.LearningRate = 1
	for i := range batch.Rows {
		row := &batch.Rows[i]
		row.Rollout = string(rune('a' + i/2))
		row.Reference, row.Correction = make([]float32, len(row.IDs)), make([]float32, len(row.IDs))
		for t := range row.IDs {
			row.Reference[t] = row.Logprobs[t] + float32(0.2*r.NormFloat64())
			row.Correction[t] = 1.5
			if s := options.Loss.Surrogate; s == rl.GSPO || s == rl.GMPO { // a loss of the sequence
				row.Advantages[t], row.Mask[t] = row.Advantages[0], min(row.Mask[t], 1)
			}
		}
	}
	if err := batch.Validate(); err != nil {
		t.Fatal(err)
	}
	rows, err := m.trainRows(batch)
	if err != nil {
		t.Fatalf("trainRows: %v", err)
	}
	o := newObjective(batch.Options)
	o.norm = divisor(batch.Options.Loss, rows)
	m.train.forward.fill(m.lay, m.train.weights)
	m.train.backward.fill(m.lay, m.train.weights)
	p := newPass(m.level, m.lay)
	p.run(rows, &m.train, o)

	w := m.train.weights
	for _, tt := range m.lay.tensors {
		g := p.grads[tt.off : tt.off+tt.size()]
		for trial := range 3 {
			// Half of the direction follows the gradient, so that the difference
			// is not lost in rounding.
			dir := make([]float32, len(g))
			gn := math.Sqrt(float64(kernel.Portable.Dot(g, g))) + 1e-12
			var slope, norm float64
			for i := range dir {
				dir[i] = float32(r.NormFloat64()/math.Sqrt(float64(len(dir))) + float64(g[i])/gn)
				slope += float64(dir[i]) * float64(g[i])
				norm += float64(dir[i]) * float64(dir[i])
			}
			step := 4e-3 / math.Sqrt(norm)
			up, down := append([]float32(nil), w...), append([]float32(nil), w...)
			for i := range dir {
				up[tt.off+i] += float32(step * float64(dir[i]))
				down[tt.off+i] -= float32(step * float64(dir[i]))
			}
			got := (lossAt(m, up, rows, o) - lossAt(m, down, rows, o)) / (2 * step)
			if math.Abs(got-slope) > 0.01*math.Abs(slope)+1e-4 {
				t.Errorf("%s, direction %d: slope by differences %v, by gradient %v", tt.name, trial, got, slope)
			}
			if slope == 0 {
				t.Errorf("%s has no gradient", tt.name)
			}
		}
	}
}
