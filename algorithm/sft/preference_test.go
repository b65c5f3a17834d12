package sft_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"agentlightning/algorithm/sft"
	"agentlightning/learner"
	"agentlightning/learner/native"
)

// answers are pairs of rows: after a question y is preferred to n.
func answers(_ int, r *rand.Rand) []learner.Row {
	var rows []learner.Row
	for range 4 {
		question := 'a' + r.Int32N(4)
		for _, answer := range []int32{'y', 'n'} {
			rows = append(rows, learner.Row{
				IDs: []int32{native.UserToken, question, native.AssistantToken, answer, native.EndToken}, Mask: []float32{0, 0, 0, 1, 1},
			})
		}
	}
	return rows
}

func TestPreferences(t *testing.T) {
	t.Parallel()
	model, err := native.New(native.Config{Dim: 32, Layers: 1, Heads: 2, Hidden: 64, Context: 8, Seed: 1}, native.NewTokenizer(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := model.Close(); err != nil {
			t.Error(err)
		}
	}()
	var last sft.Step
	c := sft.Config{
		Learner: model, Rows: answers, Steps: 40, LearningRate: learner.Schedule{Peak: 2e-3}, Seed: 3,
		Preference: &sft.Preference{Beta: 0.1, Reference: model.Freeze()},
		OnStep:     func(s sft.Step) { last = s },
	}
	env := newEnv(t)
	if err := run(t.Context(), t, c, env); err != nil {
		t.Fatal(err)
	}
	if last.Metrics["preferred"] != 1 || last.Metrics["loss"] > 0.5 {
		t.Errorf("metrics of the last step = %v, want every pair preferred", last.Metrics)
	}
	runs, err := env.Store.Runs(t.Context(), 1)
	if err != nil || runs[0].Algorithm != sft.NamePreference || !strings.Contains(string(runs[0].Config), `"beta":0.1`) {
		t.Errorf("run = %+v, %v, want one of dpo with its beta", runs, err)
	}
}

func TestPreferencesRefuse(t *testing.T) {
	t.Parallel()
	c := config(&sum{}, "")
	c.Preference = &sft.Preference{Beta: 0.1}
	if _, err := sft.New(c); err == nil || !strings.Contains(err.Error(), "Preference.Reference") {
		t.Errorf("New without a reference = %v", err)
	}
	c.Preference = &sft.Preference{Reference: (*native.Frozen)(nil)}
	if _, err := sft.New(c); err == nil || !strings.Contains(err.Error(), "Preference.Beta") {
		t.Errorf("New without a beta = %v", err)
	}
}
