package native

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"agentlightning/learner"
	"agentlightning/rl"
)

// parityDoc is testdata/pytorch/parity.json, which parity.py writes.
type parityDoc struct {
	Shape     parityShape     `json:"shape"`
	Words     []string        `json:"words"`
	Optimizer parityOptimizer `json:"optimizer"`
	Steps     int             `json:"steps"`
	Every     int             `json:"every"`
	Cases     []parityCase    `json:"cases"`
}

type parityShape struct {
	Dim     int `json:"dim"`
	Layers  int `json:"layers"`
	Heads   int `json:"heads"`
	Hidden  int `json:"hidden"`
	Context int `json:"context"`
}

type parityOptimizer struct {
	LearningRate float64 `json:"learning_rate"`
	Beta1        float64 `json:"beta1"`
	Beta2        float64 `json:"beta2"`
	WeightDecay  float64 `json:"weight_decay"`
	ClipLow      float64 `json:"clip_low"`
	ClipHigh     float64 `json:"clip_high"`
	MaxGradNorm  float64 `json:"max_grad_norm"`
}

type parityCase struct {
	Objective learner.Objective `json:"objective"`
	Tied      bool              `json:"tied"`
	Rows      []parityRow       `json:"rows"`
	Logits    digest            `json:"logits"`
	Loss      float64           `json:"loss"`
	Grads     map[string]digest `json:"grads"`
	After     map[string]digest `json:"after"`
	GradNorms []float64         `json:"grad_norms"`
}

type parityRow struct {
	IDs        []int32   `json:"ids"`
	Mask       []float32 `json:"mask"`
	Logprobs   []float32 `json:"logprobs"`
	Advantages []float32 `json:"advantages"`
}

// digest is every so many numbers of a tensor and the norm of all.
type digest struct {
	Norm   float64   `json:"norm"`
	Values []float64 `json:"values"`
}

// formula repeats the weights of parity.py.
type formula struct{ state uint64 }

func (f *formula) number() float32 {
	f.state = f.state*6364136223846793005 + 1442695040888963407
	return (float32(f.state>>33%2048) - 1024) / 1024
}

// Logits, loss, gradients and three AdamW steps agree with PyTorch's for the
// same weights. Both calculate in float32 and add up in different orders:
// values are compared to 2e-4 of the largest recorded one of their tensor. New
// weights are compared to 2 % of the way that three steps can take: AdamW
// divides by the size of the gradient, so that for the few gradients near zero
// rounding makes a difference. All weights but one agree ten times better.
func TestPyTorchParity(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("testdata", "pytorch", "parity.json"))
	if err != nil {
		t.Fatalf("ReadFile: %v", err)
	}
	var doc parityDoc
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatalf("Unmarshal: %v", err)
	}
	for _, c := range doc.Cases {
		for _, portable := range []bool{false, true} {
			checkParity(t, &doc, &c, portable)
		}
	}
}

func checkParity(t *testing.T, doc *parityDoc, c *parityCase, portable bool) {
	t.Helper()
	s, o := doc.Shape, doc.Optimizer
	m, err := New(Config{
		Dim: s.Dim, Layers: s.Layers, Heads: s.Heads, Hidden: s.Hidden, Context: s.Context, Tied: c.Tied,
		Beta1: o.Beta1, Beta2: o.Beta2, WeightDecay: o.WeightDecay, Portable: portable,
	}, NewTokenizer(doc.Words))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	defer func() { _ = m.Close() }()
	f := formula{state: 1}
	for _, tt := range m.named("", m.train.weights) {
		for i := range tt.data {
			if len(tt.shape) == 1 {
				tt.data[i] = 1 + f.number()/8
			} else {
				tt.data[i] = f.number() * 0.375
			}
		}
	}
	batch := learner.Batch{Options: learner.Options{
		Objective: c.Objective, LearningRate: o.LearningRate, MaxGradNorm: o.MaxGradNorm,
	}}
	if c.Objective == learner.PolicyGradient {
		batch.Options.Loss.Clip = rl.Clip{Low: o.ClipLow, High: o.ClipHigh}
	}
	for _, r := range c.Rows {
		batch.Rows = append(batch.Rows, learner.Row{IDs: r.IDs, Mask: r.Mask, Logprobs: r.Logprobs, Advantages: r.Advantages})
	}
	check := func(name string, got []float32, want digest, tolerance float64) {
		t.Helper()
		var norm float64
		for _, v := range got {
			norm += float64(v) * float64(v)
		}
		if norm = math.Sqrt(norm); math.Abs(norm-want.Norm) > tolerance*math.Sqrt(float64(len(got))) {
			t.Errorf("%s tied=%t portable=%t: norm of %s = %v, want %v", c.Objective, c.Tied, portable, name, norm, want.Norm)
		}
		worst := 0.0
		for i, w := range want.Values {
			worst = max(worst, math.Abs(float64(got[i*doc.Every])-w))
		}
		if worst > tolerance {
			t.Errorf("%s tied=%t portable=%t: %s differs by %v, more than %v", c.Objective, c.Tied, portable, name, worst, tolerance)
		}
	}
	scaled := func(d digest) float64 {
		largest := 0.0
		for _, v := range d.Values {
			largest = max(largest, math.Abs(v))
		}
		return 2e-4 * largest
	}

	check("logits of the first row", allLogits(t, m, batch.Rows[0].IDs), c.Logits, scaled(c.Logits))
	for step := range doc.Steps {
		metrics, err := m.Update(t.Context(), batch)
		if err != nil {
			t.Fatalf("Update: %v", err)
		}
		if want := c.GradNorms[step]; math.Abs(metrics["grad_norm"]-want) > 2e-4*want {
			t.Errorf("%s tied=%t: gradient norm of step %d = %v, want %v", c.Objective, c.Tied, step, metrics["grad_norm"], want)
		}
		if step > 0 {
			continue
		}
		if math.Abs(metrics["loss"]-c.Loss) > 1e-4*math.Abs(c.Loss) {
			t.Errorf("%s tied=%t: loss = %v, want %v", c.Objective, c.Tied, metrics["loss"], c.Loss)
		}
		for _, g := range m.named("", m.train.shards[0].grads) {
			check("gradient of "+g.name, g.data, c.Grads[g.name], scaled(c.Grads[g.name]))
		}
	}
	for _, w := range m.named("", m.train.weights) {
		check("new "+w.name, w.data, c.After[w.name], 0.02*float64(doc.Steps)*o.LearningRate)
	}
}

// allLogits are those after every token of a row.
func allLogits(t *testing.T, m *Model, ids []int32) []float32 {
	t.Helper()
	p := newPass(m.level, m.lay)
	row := trainRow{ids: ids}
	for i := range ids {
		row.targets = append(row.targets, target{pos: i + 1}) // read from the token before
	}
	p.reset([]trainRow{row})
	pk := newForwardPack(m.lay)
	pk.fill(m.lay, m.train.weights)
	p.forward(m.train.weights, pk)
	var out []float32
	for i := range ids {
		out = append(out, p.logits[i*padded(m.lay.vocabPad):][:m.lay.vocab]...)
	}
	return out
}
