package pg_test

import (
	"context"
	"maps"
	"sync"
	"testing"

	"agentlightning/algorithm/pg"
	"agentlightning/learner"
	"agentlightning/learner/native"
	"agentlightning/rl"
)

// transformer is the built-in model as the policy of the bandit: a token is
// right when it is even or odd as the task is.
type transformer struct {
	*native.Model
	t *testing.T

	mu     sync.Mutex
	failed bool
}

func (p *transformer) sample(prompt int32, seed int64) (int32, float64) {
	res, err := p.Generate(context.Background(), native.Request{Prompt: []int32{prompt}, Temperature: 1, Seed: seed + 1, MaxTokens: 1})
	if err != nil || len(res.IDs()) != 1 {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.failed {
			p.failed = true
			p.t.Errorf("Generate = %v, %v", res, err)
		}
		return 0, 0
	}
	return res.IDs()[0], float64(res.Logprobs()[0])
}

// The built-in model honours what methods ask of a learner: a critic, scores of
// its own for a correction, a frozen reference, sequence-level losses, entropy.
func TestBuiltInModelTakesEveryPart(t *testing.T) {
	t.Parallel()
	preset := func(name string) pg.Method {
		m, err := pg.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	everything := pg.Method{
		Correction: rl.Correction{Weights: rl.PerToken, Reject: rl.Rejection{Over: rl.OverMean, Estimator: rl.K1, High: 2}},
		RewardKL:   rl.KL{Estimator: rl.K1, Coefficient: 0.01},
		Loss: rl.Loss{
			KL: rl.KL{Coefficient: 0.01}, Entropy: 0.001, Clip: rl.Clip{Low: 0.2, High: 0.28, Dual: 3}, Aggregation: rl.RolloutMean,
		},
	}
	for name, method := range map[string]pg.Method{"ppo": preset(pg.PPO), "gspo": preset(pg.GSPO), "cispo": preset(pg.CISPO), "everything": everything} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model, err := native.New(native.Config{Dim: 32, Layers: 1, Heads: 2, Hidden: 32, Context: 4, Seed: 2}, native.NewTokenizer(nil))
			if err != nil {
				t.Fatal(err)
			}
			b := setup(t)
			t.Cleanup(func() { // after the workers ended
				if err := model.Close(); err != nil {
					t.Error(err)
				}
			})
			b.work.policy = &transformer{Model: model, t: t}
			b.work.start(t)
			c := config(b, t.TempDir())
			c.Learner, c.Method, c.Steps, c.Epochs, c.LearningRate = model, method, 20, 4, learner.Schedule{Peak: 1e-2}
			if method.RewardKL.Coefficient != 0 {
				c.Reference = model.Freeze()
			}
			var first, last float64
			metrics := map[string]float64{} // of any step: the last ones may have nothing left to learn
			c.OnStep = func(s pg.Step) {
				if s.Number == 1 {
					first = *s.Reward
				}
				if s.Reward != nil {
					last = *s.Reward
					maps.Copy(metrics, s.Metrics)
				}
			}
			if err := train(t, c, b.env); err != nil {
				t.Fatal(err)
			}
			if last < first+0.2 || last < 0.7 {
				t.Errorf("mean reward went from %.2f to %.2f, want it to rise to 0.7", first, last)
			}
			wanted := []string{"loss", "entropy", "approx_kl", "perf/throughput", "timing_per_token_ms/gen", "timing_per_token_ms/update_actor", "response_length/clip_ratio"}
			switch name {
			case "ppo":
				wanted = append(wanted, "value_loss")
			case "everything":
				wanted = append(wanted, "reference_kl", "reward_kl", "correction_mean", "dual_clip_fraction")
			}
			for _, m := range wanted {
				if _, ok := metrics[m]; !ok {
					t.Errorf("metric %s is missing: %v", m, metrics)
				}
			}
		})
	}
}
