package native

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"agentlightning/learner"
	"agentlightning/rl"
)

// sampleRow samples an answer and returns it as a row, with what the engine said.
func sampleRow(t *testing.T, m *Model, seed int64) learner.Row {
	t.Helper()
	prompt := []int32{UserToken, 'x', AssistantToken}
	res, err := m.Generate(t.Context(), Request{Prompt: prompt, Temperature: 1, Seed: seed, MaxTokens: 10})
	if err != nil {
		t.Fatalf("Generate: %v", err)
	}
	row := learner.Row{IDs: append(prompt, res.IDs()...), Logprobs: append(make([]float32, 3), res.Logprobs()...)}
	n := len(row.IDs)
	row.Mask, row.Advantages = make([]float32, n), make([]float32, n)
	for i := 3; i < n; i++ {
		row.Mask[i], row.Advantages[i] = 1, 1
	}
	return row
}

// What the model says of its own samples is what it said when it sampled; a
// frozen policy goes on saying it after an update.
func TestScore(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 3})
	rows := []learner.Row{sampleRow(t, m, 1), sampleRow(t, m, 2), {IDs: []int32{1, 2}, Mask: []float32{1, 0}}}
	frozen := m.Freeze()
	for range 3 {
		update(t, m, learner.Batch{Rows: rows[:2], Options: learner.Options{Objective: learner.PolicyGradient, LearningRate: 1e-2}})
	}
	now, err := m.Score(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	then, err := frozen.Score(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows[:2] {
		moved := 0.0
		for j := range row.IDs {
			if row.Mask[j] == 0 && (then[i][j] != 0 || now[i][j] != 0) {
				t.Errorf("row %d, token %d: %v and %v off the mask, want 0", i, j, then[i][j], now[i][j])
			}
			if math.Abs(float64(then[i][j]-row.Logprobs[j])) > 1e-4 {
				t.Errorf("row %d, token %d: frozen %v, sampled with %v", i, j, then[i][j], row.Logprobs[j])
			}
			moved += math.Abs(float64(now[i][j] - then[i][j]))
		}
		if moved < 0.1 {
			t.Errorf("row %d: the update moved log-probabilities by %v", i, moved)
		}
	}
	if !slices.Equal(then[2], []float32{0, 0}) {
		t.Errorf("a row without a target = %v, want zeros", then[2])
	}
	for name, row := range map[string]learner.Row{
		"too long": {IDs: make([]int32, 25), Mask: make([]float32, 25)}, "no mask": {IDs: []int32{1}}, "no such id": {IDs: []int32{-1}, Mask: []float32{1}},
	} {
		if _, err := m.Score(t.Context(), []learner.Row{row}); !errors.Is(err, learner.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Score(ctx, rows); !errors.Is(err, context.Canceled) {
		t.Errorf("Score after the end of its context = %v", err)
	}
}

// A critic learns that one prompt is worth 1 and another -1, keeps it in a
// checkpoint, and leaves the policy as it would be without it.
func TestCritic(t *testing.T) {
	t.Parallel()
	m, without := smallModel(t, Config{Seed: 3}), smallModel(t, Config{Seed: 3})
	var rows []learner.Row
	for i := range 2 {
		row := learner.Row{IDs: []int32{UserToken, int32('a' + i), AssistantToken, 'k', 'k'}, Mask: []float32{0, 0, 0, 1, 1}}
		row.Logprobs, row.Advantages = []float32{0, 0, 0, -5, -5}, []float32{0, 0, 0, 0, 0}
		worth := float32(1 - 2*i)
		row.Returns = []float32{0, 0, 0, worth, worth}
		rows = append(rows, row)
	}
	var metrics learner.Metrics
	for range 150 {
		values, err := m.Values(t.Context(), rows)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			rows[i].Values = values[i]
		}
		options := learner.Options{Objective: learner.PolicyGradient, LearningRate: 1e-6, Loss: rl.Loss{Entropy: 0.01}}
		update(t, without, learner.Batch{Rows: rows, Options: options})
		options.Critic = learner.CriticOptions{LearningRate: 0.02, Clip: 0.5}
		metrics = update(t, m, learner.Batch{Rows: rows, Options: options})
	}
	if metrics["value_loss"] > 0.05 {
		t.Errorf("value loss = %v after 150 updates, want below 0.05", metrics["value_loss"])
	}
	if !slices.Equal(m.train.weights, without.train.weights) {
		t.Error("the critic moved the policy")
	}
	want, err := m.Values(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if math.Abs(float64(want[i][3]-rows[i].Returns[3])) > 0.3 || want[i][0] != 0 {
			t.Errorf("values of row %d = %v, want about %v on sampled tokens", i, want[i], rows[i].Returns[3])
		}
	}
	dir := filepath.Join(t.TempDir(), "c")
	if err := m.Save(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}()
	got, err := again.Values(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		for j := range want[i] {
			if math.Abs(float64(got[i][j]-want[i][j])) > 1e-6 {
				t.Fatalf("values after a checkpoint = %v, want %v", got, want)
			}
		}
	}
	if again.train.critic.steps != 150 {
		t.Errorf("critic after a checkpoint has %d steps, want 150", again.train.critic.steps)
	}
	m.ResetOptimizer()
	if reset, err := m.Values(t.Context(), rows); err != nil || reset[0][3] != 0 {
		t.Errorf("values after ResetOptimizer = %v, %v, want 0", reset, err)
	}
}

// The entropy term spreads a policy, the KL term holds it at its reference.
func TestTermsOfTheLoss(t *testing.T) {
	t.Parallel()
	spread := func(loss rl.Loss) (entropy, kl float64) {
		m := smallModel(t, Config{Seed: 3})
		rows := []learner.Row{sampleRow(t, m, 1)}
		reference, err := m.Freeze().Score(t.Context(), rows)
		if err != nil {
			t.Fatal(err)
		}
		rows[0].Reference = reference[0]
		var metrics learner.Metrics
		for range 40 {
			metrics = update(t, m, learner.Batch{Rows: rows, Options: learner.Options{
				Objective: learner.PolicyGradient, LearningRate: 3e-3, Loss: loss,
			}})
		}
		now, err := m.Score(t.Context(), rows)
		if err != nil {
			t.Fatal(err)
		}
		for j := range now[0] {
			k3, _ := rl.K3.Token(float64(now[0][j]), float64(reference[0][j]))
			kl += k3
		}
		return metrics["entropy"], kl
	}
	plain, far := spread(rl.Loss{Surrogate: rl.Reinforce})
	wide, _ := spread(rl.Loss{Surrogate: rl.Reinforce, Entropy: 2})
	_, near := spread(rl.Loss{Surrogate: rl.Reinforce, KL: rl.KL{Estimator: rl.K2, Coefficient: 5}})
	if wide < plain+0.5 {
		t.Errorf("entropy %v with a bonus, %v without", wide, plain)
	}
	if near > far/2 {
		t.Errorf("divergence from the reference %v with a penalty, %v without", near, far)
	}
}
