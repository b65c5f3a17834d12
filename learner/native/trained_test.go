package native

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"testing"

	"agentlightning/learner"
)

// reports makes an update and returns what it said of each row.
func reports(t *testing.T, m *Model, b learner.Batch) map[int][]float32 {
	t.Helper()
	out := map[int][]float32{}
	b.Trained = func(row int, logprobs []float32) {
		if out[row] != nil {
			t.Errorf("row %d is told of twice", row)
		}
		out[row] = append([]float32{}, logprobs...)
	}
	update(t, m, b)
	return out
}

// furthest is the largest difference of two lists.
func furthest(a, b []float32) float64 {
	far := 0.0
	for i := range a {
		far = max(far, math.Abs(float64(a[i]-b[i])))
	}
	return far
}

// With one optimiser step an update tells what the weights before it thought of
// the tokens: what generation, which computes token by token, said of them when
// they were sampled, also when the row is passed again in later epochs.
func TestTrainedIsThePolicyBeforeTheUpdate(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 3})
	nothing := learner.Row{IDs: []int32{1, 2}, Mask: make([]float32, 2), Logprobs: make([]float32, 2), Advantages: make([]float32, 2)}
	rows := []learner.Row{sampleRow(t, m, 1), nothing, sampleRow(t, m, 2)}
	rows[2].Mask[4] = 0 // left out of training
	sampled := append([]float32{}, rows[2].Logprobs...)
	sampled[4] = 0
	got := reports(t, m, learner.Batch{Rows: rows, Options: learner.Options{Objective: learner.PolicyGradient, LearningRate: 1e-2, Epochs: 3}})
	for row, want := range map[int][]float32{0: rows[0].Logprobs, 2: sampled} {
		if len(got[row]) != len(want) {
			t.Fatalf("row %d: %d log-probabilities for %d tokens", row, len(got[row]), len(want))
		}
		if far := furthest(got[row], want); far > 1e-4 {
			t.Errorf("row %d: %v, want %v, as sampled: differs by %v", row, got[row], want, far)
		}
	}
	if got[1] != nil {
		t.Errorf("a row without a masked token is told of: %v", got[1])
	}
	// The policy has moved since, so that the moment matters.
	after, err := m.Score(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	if far := furthest(after[0], rows[0].Logprobs); far < 0.05 {
		t.Errorf("the update moved log-probabilities by %v only", far)
	}
}

// With several optimiser steps each row is told of under the weights that the
// steps before it have made.
func TestTrainedFollowsTheOptimiserSteps(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 3})
	rows := []learner.Row{sampleRow(t, m, 1), sampleRow(t, m, 2)}
	dir := filepath.Join(t.TempDir(), "before")
	if err := m.Save(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	options := learner.Options{Objective: learner.PolicyGradient, LearningRate: 3e-2, Minibatch: 1}
	got := reports(t, m, learner.Batch{Rows: rows, Options: options})
	first := 0
	if furthest(got[0], rows[0].Logprobs) > furthest(got[1], rows[1].Logprobs) {
		first = 1
	}
	if far := furthest(got[first], rows[first].Logprobs); far > 1e-4 {
		t.Errorf("the first row differs from what was sampled by %v", far)
	}
	// The same from the same weights: the first row alone, then a score.
	if err := m.Load(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	update(t, m, learner.Batch{Rows: rows[first : first+1], Options: options})
	want, err := m.Score(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	second := 1 - first
	if far := furthest(got[second], want[second]); far > 1e-4 {
		t.Errorf("the second row differs from the score after the first step by %v", far)
	}
	if far := furthest(want[second], rows[second].Logprobs); far < 0.05 {
		t.Errorf("the first step moved the second row by %v only", far)
	}
}

func TestTrainedIsSilentWhenTheUpdateFails(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 3})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.Update(ctx, learner.Batch{
		Rows:    []learner.Row{sampleRow(t, m, 1)},
		Options: learner.Options{Objective: learner.PolicyGradient, LearningRate: 1e-2},
		Trained: func(int, []float32) { t.Error("an update that failed told of a row") },
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Update = %v, want %v", err, context.Canceled)
	}
}
