package native

import (
	"math"
	"math/rand/v2"
	"testing"

	"agentlightning/learner"
	"agentlightning/rl"
)

// pairs are rows of which the first of two ends as it should.
func pairs(t *testing.T, m *Model) []learner.Row {
	t.Helper()
	var rows []learner.Row
	for i := range 4 {
		for _, answer := range []int32{'y', 'n'} {
			rows = append(rows, learner.Row{
				IDs: []int32{UserToken, int32('a' + i), AssistantToken, answer, answer + 1, EndToken}, Mask: []float32{0, 0, 0, 1, 1, 1},
			})
		}
	}
	reference, err := m.Freeze().Score(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		rows[i].Reference = reference[i]
	}
	return rows
}

func TestPreferences(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 5})
	rows := pairs(t, m)
	options := learner.Options{Objective: learner.Preference, LearningRate: 1e-3, Beta: 0.1, Minibatch: 4}
	first := update(t, m, learner.Batch{Rows: rows, Options: options})
	if math.Abs(first["loss"]-math.Ln2) > 0.1 {
		t.Errorf("first loss = %v, want about ln 2", first["loss"])
	}
	var last learner.Metrics
	for range 40 {
		last = update(t, m, learner.Batch{Rows: rows, Options: options})
	}
	if last["loss"] > 0.4 || last["preferred"] != 1 || last["margin"] < 0.5 {
		t.Errorf("metrics after 41 updates = %v, want every pair preferred", last)
	}
	now, err := m.Score(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(rows); i += 2 {
		if now[i][3]-rows[i].Reference[3] <= now[i+1][3]-rows[i+1].Reference[3] {
			t.Errorf("pair %d: chosen moved by %v, rejected by %v", i/2, now[i][3]-rows[i].Reference[3], now[i+1][3]-rows[i+1].Reference[3])
		}
	}
	rows[1].Mask = make([]float32, 6)
	if _, err := m.Update(t.Context(), learner.Batch{Rows: rows, Options: options}); err == nil {
		t.Error("a pair with nothing to prefer was accepted")
	}
}

// The gradient of pairs agrees with differences of their loss.
func TestPreferenceGradient(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 3})
	r := rand.New(rand.NewPCG(11, 12))
	rows := pairs(t, m)
	for i := range m.train.weights {
		m.train.weights[i] += float32(0.1 * r.NormFloat64())
	}
	options := learner.Options{Objective: learner.Preference, LearningRate: 1, Beta: 0.3}
	batch, err := m.trainRows(learner.Batch{Rows: rows, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	loss := func(w []float32) float64 {
		pk := newForwardPack(m.lay)
		pk.fill(m.lay, w)
		p := newPass(m.level, m.lay)
		sum, n := 0.0, 0.0
		for i := 0; i < len(batch); i += 2 {
			var logprobs [2]float64
			for j := range logprobs {
				p.reset(batch[i+j : i+j+1])
				p.forward(w, pk)
				logprobs[j] = p.logprob()
			}
			sum += rl.DPO(rl.Pair{
				Chosen: logprobs[0], Rejected: logprobs[1], ReferenceChosen: batch[i].reference, ReferenceRejected: batch[i+1].reference,
			}, options.Beta).Loss
			n++
		}
		return sum / n
	}
	m.train.forward.fill(m.lay, m.train.weights)
	m.train.backward.fill(m.lay, m.train.weights)
	sums := m.prefer(batch, options.Beta)
	if got, want := sums.loss/sums.n, loss(m.train.weights); math.Abs(got-want) > 1e-5 {
		t.Errorf("loss of the pairs = %v, want %v", got, want)
	}
	o := newObjective(options)
	o.norm = sums.n
	p := newPass(m.level, m.lay)
	p.run(batch, &m.train, o)
	norm := 0.0
	for _, g := range p.grads {
		norm += float64(g) * float64(g)
	}
	norm = math.Sqrt(norm)
	const step = 2e-3
	up, down := append([]float32(nil), m.train.weights...), append([]float32(nil), m.train.weights...)
	for i, g := range p.grads {
		up[i] += float32(step * float64(g) / norm)
		down[i] -= float32(step * float64(g) / norm)
	}
	if got := (loss(up) - loss(down)) / (2 * step); math.Abs(got-norm) > 0.01*norm {
		t.Errorf("slope along the gradient by differences %v, by the gradient %v", got, norm)
	}
}
