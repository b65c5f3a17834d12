package learner_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"agentlightning/learner"
	"agentlightning/rl"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	row := func(n int) learner.Row {
		return learner.Row{IDs: make([]int32, n), Mask: make([]float32, n), Logprobs: make([]float32, n), Advantages: make([]float32, n)}
	}
	short := row(3)
	short.Mask = short.Mask[1:]
	broken := row(2)
	broken.Mask[1], broken.Advantages[1] = 1, float32(math.NaN())
	bare := learner.Row{IDs: make([]int32, 2), Mask: make([]float32, 2)}
	ok := learner.Options{Objective: learner.Imitation, LearningRate: 1e-3}
	policy := learner.Options{Objective: learner.PolicyGradient, LearningRate: 1e-3}
	for _, tt := range []struct {
		name string
		b    learner.Batch
		want string // "" means valid
	}{
		{"empty", learner.Batch{Options: ok}, ""},
		{"imitation needs no logprobs", learner.Batch{Rows: []learner.Row{bare}, Options: ok}, ""},
		{"policy gradient", learner.Batch{Rows: []learner.Row{row(4)}, Options: policy}, ""},
		{"no rate", learner.Batch{Options: learner.Options{Objective: learner.Imitation}}, "learning rate 0"},
		{"rate is no number", learner.Batch{Options: learner.Options{Objective: learner.Imitation, LearningRate: math.NaN()}}, "learning rate NaN"},
		{"unknown objective", learner.Batch{Options: learner.Options{Objective: "dpo", LearningRate: 1}}, `objective "dpo"`},
		{"negative epochs", learner.Batch{Options: learner.Options{Objective: learner.Imitation, LearningRate: 1, Epochs: -1}}, "epochs -1"},
		{"negative minibatch", learner.Batch{Options: learner.Options{Objective: learner.Imitation, LearningRate: 1, Minibatch: -1}}, "minibatch -1"},
		{"clip", learner.Batch{Options: learner.Options{Objective: learner.PolicyGradient, LearningRate: 1, Loss: rl.Loss{Clip: rl.Clip{Low: 1.5}}}}, "clip low 1.5"},
		{"loss of imitation", learner.Batch{Options: learner.Options{Objective: learner.Imitation, LearningRate: 1, Loss: rl.Loss{Entropy: 1}}}, "imitation has none"},
		{"critic of imitation", learner.Batch{Options: learner.Options{Objective: learner.Imitation, LearningRate: 1, Critic: learner.CriticOptions{LearningRate: 1}}}, "no returns to learn from"},
		{"critic's rate", learner.Batch{Options: learner.Options{Objective: learner.PolicyGradient, LearningRate: 1, Critic: learner.CriticOptions{LearningRate: -1}}}, "critic's learning rate -1"},
		{"clip without a critic", learner.Batch{Options: learner.Options{Objective: learner.PolicyGradient, LearningRate: 1, Critic: learner.CriticOptions{Clip: 1}}}, "no critic"},
		{"no reference", learner.Batch{Rows: []learner.Row{row(2)}, Options: learner.Options{Objective: learner.PolicyGradient, LearningRate: 1, Loss: rl.Loss{KL: rl.KL{Coefficient: 1}}}}, "row 0: 0 reference logprobs for 2"},
		{"no rollout", learner.Batch{Rows: []learner.Row{row(2)}, Options: learner.Options{Objective: learner.PolicyGradient, LearningRate: 1, Loss: rl.Loss{Aggregation: rl.RolloutMean}}}, "row 0: no rollout"},
		{"no returns", learner.Batch{Rows: []learner.Row{row(2)}, Options: learner.Options{Objective: learner.PolicyGradient, LearningRate: 1, Critic: learner.CriticOptions{LearningRate: 1}}}, "row 0: 0 returns for 2"},
		{"odd number of preferences", learner.Batch{Rows: []learner.Row{row(2)}, Options: learner.Options{Objective: learner.Preference, LearningRate: 1, Beta: 0.1}}, "1 rows: preferences come in pairs"},
		{"odd minibatch", learner.Batch{Options: learner.Options{Objective: learner.Preference, LearningRate: 1, Beta: 0.1, Minibatch: 3}}, "minibatch 3: must be even"},
		{"no beta", learner.Batch{Options: learner.Options{Objective: learner.Preference, LearningRate: 1}}, "beta 0"},
		{"beta of others", learner.Batch{Options: learner.Options{Objective: learner.Imitation, LearningRate: 1, Beta: 1}}, "only preferences"},
		{"pair without reference", learner.Batch{Rows: []learner.Row{row(2), row(2)}, Options: learner.Options{Objective: learner.Preference, LearningRate: 1, Beta: 0.1}}, "row 0: 0 reference logprobs"},
		{"not finite", learner.Batch{Rows: []learner.Row{broken}, Options: policy}, "row 0: token 1: advantages are NaN"},
		{"norm", learner.Batch{Options: learner.Options{Objective: learner.Imitation, LearningRate: 1, MaxGradNorm: -2}}, "gradient norm -2"},
		{"short mask", learner.Batch{Rows: []learner.Row{row(1), short}, Options: ok}, "row 1: 2 mask entries for 3 tokens"},
		{"no logprobs", learner.Batch{Rows: []learner.Row{bare}, Options: policy}, "row 0: 0 logprobs for 2 tokens"},
	} {
		err := tt.b.Validate()
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: Validate = %v, want nil", tt.name, err)
			}
			continue
		}
		if !errors.Is(err, learner.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Validate = %v, want it to say %q", tt.name, err, tt.want)
		}
	}
}
