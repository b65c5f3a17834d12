package rl_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/rl"
)

// losses are one of each kind, with every term that can be added.
func losses() []rl.Loss {
	var out []rl.Loss
	for _, s := range rl.Surrogates() {
		for _, clip := range []rl.Clip{{}, {Low: .1, High: .4}} {
			for _, kl := range []rl.KL{{}, {Coefficient: .3}, {Estimator: rl.K1, Coefficient: .2}, {Estimator: rl.K2, Coefficient: .1}} {
				if s == rl.Reinforce {
					clip = rl.Clip{}
				}
				l := rl.Loss{Surrogate: s, Clip: clip, KL: kl}
				out = append(out, l)
				if s == rl.PPO {
					l.Clip.Dual = 1.5
					out = append(out, l)
				}
			}
		}
	}
	return out
}

// batch makes rows of a policy that has moved away from the one that sampled.
// Advantages are equal within a row, as sequence-level losses want them.
func batch(random *rand.Rand, spread float64) rl.Batch {
	var b rl.Batch
	for _, n := range []int{5, 3, 1, 4} {
		row := func(f func() float64) []float32 {
			out := make([]float32, n)
			for i := range out {
				out[i] = float32(f())
			}
			return out
		}
		b.Old = append(b.Old, row(func() float64 { return -.1 - 2*random.Float64() }))
		logprobs := append([]float32(nil), b.Old[len(b.Old)-1]...)
		for i := range logprobs {
			logprobs[i] = min(logprobs[i]+float32(spread*random.NormFloat64()), -1e-3)
		}
		b.Logprobs = append(b.Logprobs, logprobs)
		b.Reference = append(b.Reference, row(func() float64 { return -.1 - 2*random.Float64() }))
		a := random.NormFloat64()
		b.Advantages = append(b.Advantages, row(func() float64 { return a }))
		b.Mask = append(b.Mask, row(func() float64 {
			if random.Float64() < .25 {
				return 0
			}
			return 1
		}))
		b.Correction = append(b.Correction, row(func() float64 { return 1.25 }))
		b.Entropy = append(b.Entropy, row(func() float64 { return random.Float64() }))
	}
	b.Rollouts = []string{"a", "a", "b", "c"}
	return b
}

// The gradient of every loss under every aggregation agrees with central
// differences. CISPO's is that of its formula with the ratio held, which its
// value does not show, so it is compared by itself below.
func TestGradients(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	const h = 1.0 / 1024
	checked := 0
	for _, l := range losses() {
		if l.Surrogate == rl.CISPO {
			continue
		}
		for _, a := range rl.Aggregations() {
			l.Aggregation, l.Norm = a, 0
			if a == rl.ConstantNorm {
				l.Norm = 7
			}
			b := batch(random, .15)
			got := evaluate(t, l, b)
			for i := range b.Logprobs {
				for j := range b.Logprobs[i] {
					x := b.Logprobs[i][j]
					at := func(v float32) rl.Evaluation {
						b.Logprobs[i][j] = v
						e := evaluate(t, l, b)
						b.Logprobs[i][j] = x
						return e
					}
					below, above := at(x-h), at(x+h)
					if below.ClipFraction != above.ClipFraction || below.DualClipFraction != above.DualClipFraction {
						continue // a corner: there is no derivative
					}
					want := (above.Value - below.Value) / (float64(x+h) - float64(x-h))
					if g := float64(got.Gradient[i][j]); math.Abs(g-want) > 1e-4*max(1, math.Abs(want)) {
						t.Errorf("%+v: gradient[%d][%d] = %v, want %v", l, i, j, g, want)
					}
					checked++
				}
			}
		}
	}
	if checked < 1000 {
		t.Errorf("%d derivatives were compared, want at least 1000", checked)
	}
}

func evaluate(t *testing.T, l rl.Loss, b rl.Batch) rl.Evaluation {
	t.Helper()
	e, err := l.Evaluate(b)
	if err != nil {
		t.Fatalf("%+v: %v", l, err)
	}
	return e
}

// one evaluates the loss of a single token.
func one(l rl.Loss, token rl.Token) rl.TokenLoss {
	l = l.Resolved()
	token.Correction = 1
	var out [1]rl.TokenLoss
	l.Sequence([]rl.Token{token}, out[:])
	return out[0]
}

// CISPO's gradient is that of -w·A·logprob with the weight w held.
func TestCISPOGradient(t *testing.T) {
	t.Parallel()
	l := rl.Loss{Surrogate: rl.CISPO, Clip: rl.Clip{Low: .2, High: .3}}
	for ratio, weight := range map[float64]float64{.5: .8, .9: .9, 1: 1, 1.2: 1.2, 3: 1.3} {
		for _, a := range []float64{-2, .5} {
			got := one(l, rl.Token{Logprob: -1 + math.Log(ratio), Old: -1, Advantage: a})
			if want := -weight * a; math.Abs(got.Gradient-want) > 1e-12 || got.Clipped != (ratio != weight && math.Abs(ratio-weight) > 1e-9) {
				t.Errorf("ratio %v, advantage %v: gradient %v, clipped %v, want %v", ratio, a, got.Gradient, got.Clipped, want)
			}
		}
	}
}

func TestClipHigher(t *testing.T) {
	t.Parallel()
	l := rl.Loss{Clip: rl.Clip{Low: .2, High: .3}}
	tests := []struct {
		ratio, advantage float64
		loss             float64
		clipped          bool
	}{
		{1.25, 1, -1.25, false},
		{1.35, 1, -1.3, true},
		{.7, 1, -.7, false},
		{.7, -1, .8, true},
		{.85, -1, .85, false},
		{1.35, -1, 1.35, false},
	}
	for _, tt := range tests {
		got := one(l, rl.Token{Logprob: math.Log(tt.ratio), Advantage: tt.advantage})
		if math.Abs(got.Loss-tt.loss) > 1e-12 || got.Clipped != tt.clipped {
			t.Errorf("ratio %v, advantage %v: %v, clipped %v, want %v, %v", tt.ratio, tt.advantage, got.Loss, got.Clipped, tt.loss, tt.clipped)
		}
	}
}

// The mask of DPPO looks at probabilities: a likely token that moves by 0.3 is
// out, a rare one that becomes a hundred times as likely stays.
func TestDPPOMask(t *testing.T) {
	t.Parallel()
	l := rl.Loss{Surrogate: rl.DPPO}
	tests := []struct {
		now, old, advantage float64
		masked              bool
	}{
		{.9, .6, 1, true},
		{.9, .6, -1, false}, // moves back
		{.3, .6, -1, true},
		{.3, .6, 1, false},
		{.1, .001, 1, false},
		{.79, .6, 1, false},
	}
	for _, tt := range tests {
		got := one(l, rl.Token{Logprob: math.Log(tt.now), Old: math.Log(tt.old), Advantage: tt.advantage})
		want := -tt.advantage * tt.now / tt.old
		if tt.masked {
			want = 0
		}
		if got.Clipped != tt.masked || math.Abs(got.Loss-want) > 1e-9 || math.Abs(got.Gradient-want) > 1e-9 {
			t.Errorf("%v from %v, advantage %v: %+v, want masked %v and loss %v", tt.now, tt.old, tt.advantage, got, tt.masked, want)
		}
	}
}

// GSPO by hand: ratios 2 and 1/2 cancel in the sequence, so nothing is clipped.
func TestGSPOLooksAtTheSequence(t *testing.T) {
	t.Parallel()
	l := rl.Loss{Surrogate: rl.GSPO}.Resolved()
	tokens := []rl.Token{
		{Logprob: math.Log(.4), Old: math.Log(.2), Advantage: 1, Correction: 1},
		{Logprob: math.Log(.2), Old: math.Log(.4), Advantage: 3, Correction: 1},
	}
	out := make([]rl.TokenLoss, 2)
	l.Sequence(tokens, out)
	for i, o := range out {
		if math.Abs(o.Ratio-1) > 1e-12 || o.Clipped || math.Abs(o.Gradient+tokens[i].Advantage) > 1e-12 {
			t.Errorf("token %d: %+v, want ratio 1 and its own advantage as gradient", i, o)
		}
	}
	tokens[1].Logprob = math.Log(.4) // the sequence is sqrt(2) as likely
	l.Sequence(tokens, out)
	for i, o := range out {
		if math.Abs(o.Ratio-math.Sqrt2) > 1e-12 || !o.Clipped || o.Gradient != 0 {
			t.Errorf("token %d: %+v, want ratio sqrt(2), clipped", i, o)
		}
	}
}

// GMPO by hand: with bounds of 0.4 and a positive advantage log-ratios 1 and
// -0.5 count as 0.4 and -0.5, the mean of which is -0.05.
func TestGMPO(t *testing.T) {
	t.Parallel()
	l := rl.Loss{Surrogate: rl.GMPO}.Resolved()
	out := make([]rl.TokenLoss, 2)
	l.Sequence([]rl.Token{{Logprob: -1, Old: -2, Advantage: 2, Correction: 1}, {Logprob: -2, Old: -1.5, Advantage: 2, Correction: 1}}, out)
	want := math.Exp(-.05)
	if math.Abs(out[0].Loss+2*want) > 1e-12 || !out[0].Clipped || out[0].Gradient != 0 {
		t.Errorf("first token: %+v, want loss %v, clipped", out[0], -2*want)
	}
	if out[1].Clipped || math.Abs(out[1].Gradient+2*want) > 1e-12 {
		t.Errorf("second token: %+v, want gradient %v", out[1], -2*want)
	}
}

// A policy that ran away gives large numbers, never an infinity or NaN.
func TestFarAway(t *testing.T) {
	t.Parallel()
	for _, l := range losses() {
		for _, d := range []float64{-1e30, -800, -30, 30, 800, 1e30} {
			for _, a := range []float64{-1, 0, 1} {
				got := one(l, rl.Token{Logprob: d, Advantage: a, Reference: d})
				for _, v := range []float64{got.Loss, got.Gradient, got.Ratio} {
					if math.IsNaN(v) || math.IsInf(v, 0) {
						t.Errorf("%+v at log-ratio %v, advantage %v: %+v", l, d, a, got)
					}
				}
			}
		}
	}
	if got := one(rl.Loss{}, rl.Token{Logprob: 800, Advantage: -1}); got.Loss != math.Exp(20) || got.Gradient != 0 {
		t.Errorf("log-ratio 800: %v with gradient %v, want %v and 0", got.Loss, got.Gradient, math.Exp(20))
	}
}

func TestKL(t *testing.T) {
	t.Parallel()
	for e, f := range map[rl.KLEstimator]func(d float64) float64{
		rl.K1: func(d float64) float64 { return d },
		rl.K2: func(d float64) float64 { return d * d / 2 },
		rl.K3: func(d float64) float64 { return math.Exp(-d) - 1 + d },
	} {
		for _, logprob := range []float64{-4, -1.5, -1, -.2} {
			v, g := e.Token(logprob, -1)
			if want := f(logprob + 1); math.Abs(v-want) > 1e-12 {
				t.Errorf("%s.Token(%v, -1) = %v, want %v", e, logprob, v, want)
			}
			const h = 1e-6
			above, _ := e.Token(logprob+h, -1)
			below, _ := e.Token(logprob-h, -1)
			if want := (above - below) / (2 * h); math.Abs(g-want) > 1e-6 {
				t.Errorf("%s.Token(%v, -1): gradient %v, want %v", e, logprob, g, want)
			}
		}
	}
	if v, _ := rl.K3.Token(0, 1e6); math.IsInf(v, 0) {
		t.Errorf("K3.Token(0, 1e6) = %v, want a finite value", v)
	}
	// Averaged over what the policy samples, k1 and k3 are the divergence.
	p, q := []float64{.7, .2, .1}, []float64{.2, .3, .5}
	for _, e := range []rl.KLEstimator{rl.K1, rl.K3} {
		want, got := 0.0, 0.0
		for i := range p {
			v, _ := e.Token(math.Log(p[i]), math.Log(q[i]))
			got += p[i] * v
			want += p[i] * math.Log(p[i]/q[i])
		}
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: mean %v, want the divergence %v", e, got, want)
		}
	}
	penalty, err := rl.KL{Estimator: rl.K1, Coefficient: .5}.Penalty([]float32{0, -1, -2}, []float32{0, -1.5, -1}, []float32{0, 1, 1})
	if err != nil || math.Abs(penalty-.5*(.5-1)) > 1e-7 {
		t.Errorf("Penalty = %v, %v, want -0.25", penalty, err)
	}
}

func TestEntropy(t *testing.T) {
	t.Parallel()
	logits := []float64{.3, -1.2, 2.5, 700}
	for _, logits := range [][]float64{logits[:3], logits, {5}} {
		gradient := make([]float64, len(logits))
		rl.Entropy(logits, gradient)
		for i := range logits {
			const h = 1e-5
			at := func(d float64) float64 {
				moved := append([]float64(nil), logits...)
				moved[i] += d
				return rl.Entropy(moved, make([]float64, len(moved)))
			}
			if want := (at(h) - at(-h)) / (2 * h); math.Abs(gradient[i]-want) > 1e-6 {
				t.Errorf("Entropy(%v): gradient[%d] = %v, want %v", logits, i, gradient[i], want)
			}
		}
	}
	if got := rl.Entropy([]float64{1, 1, 1, 1}, make([]float64, 4)); math.Abs(got-math.Log(4)) > 1e-12 {
		t.Errorf("entropy of four equal logits = %v, want ln 4", got)
	}
}

func TestAggregation(t *testing.T) {
	t.Parallel()
	// Three tokens and one of rollout a, two of rollout b, nothing of c.
	masks := [][]float32{{0, 1, 1, 1}, {0, 1}, {1, 1}, {0, 0}}
	rollouts := []string{"a", "a", "b", "c"}
	tests := []struct {
		loss rl.Loss
		want []float64 // weight of a token in each row
	}{
		{rl.Loss{}, []float64{1.0 / 6, 1.0 / 6, 1.0 / 6}},
		{rl.Loss{Aggregation: rl.SequenceMean}, []float64{1.0 / 9, 1.0 / 3, 1.0 / 6}},
		{rl.Loss{Aggregation: rl.SequenceSum}, []float64{1.0 / 3, 1.0 / 3, 1.0 / 3}},
		{rl.Loss{Aggregation: rl.ConstantNorm, Norm: 5}, []float64{1.0 / 15, 1.0 / 15, 1.0 / 15}},
		{rl.Loss{Aggregation: rl.RolloutMean}, []float64{1.0 / 8, 1.0 / 8, 1.0 / 4}},
		{rl.Loss{Aggregation: rl.TokenSum}, []float64{1, 1, 1}},
	}
	for _, tt := range tests {
		ones := make([][]float32, len(masks))
		for i := range masks {
			ones[i] = make([]float32, len(masks[i]))
			for j := range ones[i] {
				ones[i][j] = 1
			}
		}
		got := evaluate(t, tt.loss, rl.Batch{Logprobs: ones, Old: ones, Advantages: ones, Mask: masks, Rollouts: rollouts})
		for i, want := range tt.want {
			for j, m := range masks[i] {
				if m != 0 && math.Abs(float64(got.Gradient[i][j])+want) > 1e-6 {
					t.Errorf("%s: token %d of row %d weighs %v, want %v", tt.loss.Aggregation, j, i, -got.Gradient[i][j], want)
				}
			}
		}
	}
}

// Rollouts weigh the same whatever the minibatches are that their rows fall in.
func TestRolloutMeanOverMinibatches(t *testing.T) {
	t.Parallel()
	l := rl.Loss{Aggregation: rl.RolloutMean}
	sizes := []rl.Size{{Tokens: 3, Rollout: "a"}, {Tokens: 1, Rollout: "b"}, {Tokens: 5, Rollout: "a"}, {Tokens: 1, Rollout: "c"}}
	shares := l.Shares(sizes)
	if a, b := 3*shares[0]+5*shares[2], shares[1]; math.Abs(a-1) > 1e-12 || b != 1 {
		t.Errorf("shares of the rollouts: %v and %v, want 1 and 1", a, b)
	}
	if got := l.Divisor(sizes[:2], shares[:2]); math.Abs(got-(3.0/8+1)) > 1e-12 {
		t.Errorf("divisor of the first two rows = %v, want 1.375", got)
	}
}

// What is off the mask is never read, not even NaN; a batch of nothing is 0.
func TestMaskedOut(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	for _, l := range losses() {
		got := evaluate(t, l, rl.Batch{
			Logprobs: [][]float32{{nan, -1}}, Old: [][]float32{{nan, -1}}, Advantages: [][]float32{{nan, 2}},
			Mask: [][]float32{{0, 1}}, Reference: [][]float32{{nan, -1}}, Correction: [][]float32{{nan, 1}},
		})
		if math.IsNaN(got.Value) || got.Gradient[0][0] != 0 {
			t.Errorf("%+v: %v with gradient %v, want a number and 0", l, got.Value, got.Gradient)
		}
		empty := evaluate(t, l, rl.Batch{Logprobs: [][]float32{{nan}}, Old: [][]float32{{nan}}, Advantages: [][]float32{{nan}}, Mask: [][]float32{{0}}, Reference: [][]float32{{nan}}})
		if empty.Value != 0 || empty.RatioMean != 0 {
			t.Errorf("%+v of no token = %+v, want 0", l, empty)
		}
	}
}

func TestLossRefuses(t *testing.T) {
	t.Parallel()
	ones := [][]float32{{1}}
	good := rl.Batch{Logprobs: ones, Old: ones, Advantages: ones, Mask: ones}
	short := good
	short.Advantages = [][]float32{{}}
	tests := []struct {
		want string
		loss rl.Loss
		in   rl.Batch
	}{
		{"0 advantages for 1", rl.Loss{}, short},
		{"0 rows of log-probabilities", rl.Loss{}, rl.Batch{Mask: ones}},
		{"clip low 1", rl.Loss{Clip: rl.Clip{Low: 1}}, good},
		{"clip low NaN", rl.Loss{Clip: rl.Clip{Low: math.NaN()}}, good},
		{"clip high -0.1", rl.Loss{Clip: rl.Clip{High: -.1}}, good},
		{"dual clip 1", rl.Loss{Clip: rl.Clip{Dual: 1}}, good},
		{"gspo has none", rl.Loss{Surrogate: rl.GSPO, Clip: rl.Clip{Dual: 3}}, good},
		{"no ratio to clip", rl.Loss{Surrogate: rl.Reinforce, Clip: rl.Clip{Low: .2}}, good},
		{`surrogate "ppo2"`, rl.Loss{Surrogate: "ppo2"}, good},
		{"at most 1", rl.Loss{Surrogate: rl.CISPO, Clip: rl.Clip{Low: 2}}, good},
		{"entropy coefficient", rl.Loss{Entropy: math.Inf(1)}, good},
		{"entropies", rl.Loss{Entropy: .1}, good},
		{"KL coefficient -1", rl.Loss{KL: rl.KL{Coefficient: -1}}, good},
		{"without a coefficient", rl.Loss{KL: rl.KL{Estimator: rl.K2}}, good},
		{`KL estimator "k4"`, rl.Loss{KL: rl.KL{Estimator: "k4", Coefficient: 1}}, good},
		{"reference log-probabilities", rl.Loss{KL: rl.KL{Coefficient: 1}}, good},
		{`aggregation "median"`, rl.Loss{Aggregation: "median"}, good},
		{"norm 0", rl.Loss{Aggregation: rl.ConstantNorm}, good},
		{"has no norm", rl.Loss{Norm: 3}, good},
		{"0 rollouts for 1", rl.Loss{Aggregation: rl.RolloutMean}, good},
	}
	for _, tt := range tests {
		if _, err := tt.loss.Evaluate(tt.in); !errors.Is(err, rl.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want ErrInvalid that says %q", tt.loss, err, tt.want)
		}
	}
}

func TestCorrectionRefuses(t *testing.T) {
	t.Parallel()
	ones := [][]float32{{1}}
	for want, c := range map[string]rl.Correction{
		`weights "row"`:    {Weights: "row"},
		"cap -1":           {Weights: rl.PerToken, Cap: -1},
		"floor 3":          {Weights: rl.PerToken, Floor: 3},
		"need weights":     {Cap: 2},
		"not over what":    {Reject: rl.Rejection{High: 2}},
		`over "row"`:       {Reject: rl.Rejection{Over: "row", Estimator: rl.K1, High: 2}},
		`estimator ""`:     {Reject: rl.Rejection{Over: rl.OverToken, High: 2}},
		"high 0":           {Reject: rl.Rejection{Over: rl.OverToken, Estimator: rl.K2}},
		"no lower bound":   {Reject: rl.Rejection{Over: rl.OverToken, Estimator: rl.K2, Low: 1, High: 2}},
		"low 2: must be":   {Reject: rl.Rejection{Over: rl.OverToken, Estimator: rl.K1, Low: 2, High: 2}},
		"rejection low -1": {Reject: rl.Rejection{Over: rl.OverSum, Estimator: rl.K1, Low: -1, High: 2}},
	} {
		if _, err := c.Apply(ones, ones, ones); !errors.Is(err, rl.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want ErrInvalid that says %q", c, err, want)
		}
	}
	nan := [][]float32{{float32(math.NaN())}}
	if _, err := (rl.Correction{Weights: rl.PerToken}).Apply(ones, nan, ones); !errors.Is(err, rl.ErrInvalid) {
		t.Errorf("captured NaN: error %v, want ErrInvalid", err)
	}
	got, err := rl.Correction{Weights: rl.PerSequence, Normalize: true}.Apply(nan, nan, [][]float32{{0}})
	if err != nil || got.Weights[0][0] != 0 || got.Mean != 0 || got.Min != 0 {
		t.Errorf("a batch without a token: %+v, %v, want zeros", got, err)
	}
	// A sequence that ran away is capped, not infinite; rejected rows are counted.
	far := [][]float32{{900, 900}, {0, 0}}
	both := [][]float32{{1, 1}, {1, 1}}
	zero := [][]float32{{0, 0}, {0, 0}}
	got, err = rl.Correction{Weights: rl.PerSequence, Reject: rl.Rejection{Over: rl.OverSum, Estimator: rl.K1, High: 2}}.Apply(far, zero, both)
	if err != nil || got.Weights[0][0] != 2 || got.Mask[0][1] != 0 || got.RejectedRows != 1 || got.RejectedTokens != 2 {
		t.Errorf("far away: %+v, %v, want weight 2 and one row of two tokens rejected", got, err)
	}
}

// The bounds of k1 are those of captured over current probability, the inverse of
// a weight: they are not the same when they are not symmetric.
func TestRejectionByK1(t *testing.T) {
	t.Parallel()
	old := [][]float32{{float32(math.Log(3)), float32(math.Log(0.4)), 0}} // weights 3 and 0.4
	zero, mask := [][]float32{{0, 0, 0}}, [][]float32{{1, 1, 1}}
	for _, tt := range []struct {
		low, high float64
		want      []float32
	}{
		{0.3, 1.5, []float32{1, 0, 1}}, // 1/3 is inside, 2.5 is not
		{0.5, 3, []float32{0, 1, 1}},
		{0, 4, []float32{1, 1, 1}}, // from 1/4
	} {
		got, err := rl.Correction{Reject: rl.Rejection{Over: rl.OverToken, Estimator: rl.K1, Low: tt.low, High: tt.high}}.Apply(old, zero, mask)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got.Mask[0]); diff != "" {
			t.Errorf("mask within %v to %v (-want +got):\n%s", tt.low, tt.high, diff)
		}
	}
}

// GAE by hand, with an answer of a tool between two sampled tokens: gamma 0.5,
// lambda 0.5, rewards 0 and 1, values 0.2 and 0.6.
func TestGAE(t *testing.T) {
	t.Parallel()
	advantages, returns, err := rl.GAE([]float64{0, 9, 1}, []float64{.2, 9, .6}, []float64{1, 0, 1}, .5, .5)
	if err != nil {
		t.Fatal(err)
	}
	// Last: 1 - 0.6 = 0.4. First: 0.5·0.6 - 0.2 + 0.25·0.4 = 0.2.
	for i, want := range []float64{.2, 0, .4} {
		if math.Abs(advantages[i]-want) > 1e-12 {
			t.Errorf("advantages = %v, want [0.2 0 0.4]", advantages)
			break
		}
	}
	if math.Abs(returns[0]-.4) > 1e-12 || math.Abs(returns[2]-1) > 1e-12 {
		t.Errorf("returns = %v, want 0.4 and 1", returns)
	}
	// With gamma and lambda 1 an advantage is the whole reward less the value.
	advantages, _, err = rl.GAE([]float64{0, 0, 1}, []float64{.2, .5, .6}, []float64{1, 1, 1}, 1, 1)
	if err != nil || math.Abs(advantages[0]-.8) > 1e-12 || math.Abs(advantages[1]-.5) > 1e-12 {
		t.Errorf("gamma and lambda 1: %v, %v, want 0.8 and 0.5 first", advantages, err)
	}
	for _, bad := range [][2]float64{{2, 1}, {1, -1}, {math.NaN(), 1}} {
		if _, _, err := rl.GAE(nil, nil, nil, bad[0], bad[1]); !errors.Is(err, rl.ErrInvalid) {
			t.Errorf("gamma %v, lambda %v: %v, want ErrInvalid", bad[0], bad[1], err)
		}
	}
	if _, _, err := rl.GAE([]float64{1}, nil, []float64{1}, 1, 1); !errors.Is(err, rl.ErrInvalid) {
		t.Errorf("no values: %v, want ErrInvalid", err)
	}
}

// A discounted return stops at what was not sampled.
func TestReturns(t *testing.T) {
	t.Parallel()
	got, err := rl.Returns([][]float64{{0, 0, 1, 0, 1}}, [][]float64{{1, 1, 1, 0, 1}}, .5)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{.25, .5, 1, .5, 1} {
		if got[0][i] != want {
			t.Fatalf("Returns = %v, want [0.25 0.5 1 0.5 1]", got[0])
		}
	}
	if _, err := rl.Returns([][]float64{{1}}, [][]float64{{1, 1}}, 1); !errors.Is(err, rl.ErrInvalid) {
		t.Errorf("ragged rows: %v, want ErrInvalid", err)
	}
	short := [][]float64{{3}}
	if err := rl.Whiten(short, [][]float64{{1}}); err != nil || short[0][0] != 3 {
		t.Errorf("Whiten of one token = %v, %v, want it unchanged", short, err)
	}
}

func TestValueLoss(t *testing.T) {
	t.Parallel()
	for _, clip := range []float64{0, .2} {
		for _, value := range []float64{-1, .05, .3, .45, 2} {
			for _, target := range []float64{-.5, .35, 1} {
				const h = 1e-6
				above, _ := rl.ValueLoss(value+h, .3, target, clip)
				below, _ := rl.ValueLoss(value-h, .3, target, clip)
				_, got := rl.ValueLoss(value, .3, target, clip)
				if want := (above - below) / (2 * h); math.Abs(got-want) > 1e-5 {
					t.Errorf("ValueLoss(%v, 0.3, %v, %v): gradient %v, want %v", value, target, clip, got, want)
				}
			}
		}
	}
	if got, _ := rl.ValueLoss(1, .3, 1, .2); math.Abs(got-.125) > 1e-12 {
		t.Errorf("ValueLoss(1, 0.3, 1, 0.2) = %v, want 0.5·0.5² of the held value", got)
	}
}

func TestSoftOverlong(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]float64{0: 0, 80: 0, 85: -.25, 100: -1, 101: -1, 500: -1} {
		if got := rl.SoftOverlong(length, 100, 20); got != want {
			t.Errorf("SoftOverlong(%d, 100, 20) = %v, want %v", length, got, want)
		}
	}
}

// DPO by hand and by differences; far away it stays finite.
func TestDPO(t *testing.T) {
	t.Parallel()
	even := rl.DPO(rl.Pair{Chosen: -3, Rejected: -5, ReferenceChosen: -3, ReferenceRejected: -5}, .1)
	if math.Abs(even.Loss-math.Ln2) > 1e-12 || even.Margin != 0 || math.Abs(even.Chosen+.05) > 1e-12 || math.Abs(even.Rejected-.05) > 1e-12 {
		t.Errorf("at the reference: %+v, want loss ln 2 and slopes of half of beta", even)
	}
	for _, p := range []rl.Pair{{-3, -5, -4, -4.5}, {-9, -2, -4, -4}, {-1, -60, -2, -3}, {-900, -1, -1, -900}} {
		const h, beta = 1e-5, .3
		got := rl.DPO(p, beta)
		at := func(c, r float64) float64 {
			q := p
			q.Chosen, q.Rejected = q.Chosen+c, q.Rejected+r
			return rl.DPO(q, beta).Loss
		}
		if want := (at(h, 0) - at(-h, 0)) / (2 * h); math.Abs(got.Chosen-want) > 1e-6 {
			t.Errorf("%+v: slope of the chosen %v, want %v", p, got.Chosen, want)
		}
		if want := (at(0, h) - at(0, -h)) / (2 * h); math.Abs(got.Rejected-want) > 1e-6 {
			t.Errorf("%+v: slope of the rejected %v, want %v", p, got.Rejected, want)
		}
	}
	if far := rl.DPO(rl.Pair{Chosen: -1e6, Rejected: 0}, 10); math.IsInf(far.Loss, 0) || math.IsNaN(far.Chosen) || far.Loss != 1e7 {
		t.Errorf("far away: %+v, want a loss of 1e7", far)
	}
}
