package pg

import (
	"fmt"

	"agentlightning/rl"
)

// Names of presets.
const (
	GRPO                = "grpo"
	DrGRPO              = "dr-grpo"
	RLOO                = "rloo"
	ReinforcePP         = "reinforce++"
	ReinforcePPBaseline = "reinforce++-baseline"
	PPO                 = "ppo"
	GSPO                = "gspo"
	GMPO                = "gmpo"
	DAPO                = "dapo"
	CISPO               = "cispo"
	DPPO                = "dppo"
	GPG                 = "gpg"
	ReMax               = "remax"
	OPO                 = "opo"
	PassK               = "pass@k"
	GDPO                = "gdpo"
)

// Presets lists the names of all presets.
func Presets() []string {
	return []string{GRPO, DrGRPO, RLOO, ReinforcePP, ReinforcePPBaseline, PPO, GSPO, GMPO, DAPO, CISPO, DPPO, GPG, ReMax, OPO, PassK, GDPO}
}

// constantNorm divides Dr. GRPO's sums; with an optimiser that scales gradients
// its size matters little. Set it to the tokens that an answer may have.
const constantNorm = 512

// Preset returns a method by its name. Those that compare the rollouts of a group
// (all but reinforce++, remax and ppo) leave out groups whose rewards are all equal, and
// none has a KL term, as most trainers do today; add one with Loss.KL or RewardKL.
//
//	grpo                  (r - mean)/std; clip 0.2; mean over rows           arXiv:2402.03300
//	dr-grpo               r - mean; clip 0.2; sums by a constant             arXiv:2503.20783
//	rloo                  r - mean of the others; clip 0.2; mean over tokens arXiv:2402.14740
//	reinforce++           r whitened over the batch; clip 0.2                arXiv:2501.03262
//	reinforce++-baseline  r - mean, whitened over the batch; clip 0.2        arXiv:2501.03262
//	ppo                   critic with GAE; clip 0.2; mean over tokens        arXiv:1707.06347
//	gspo                  grpo with the ratio of the sequence                arXiv:2507.18071
//	gmpo                  grpo with the geometric mean of ratios             arXiv:2507.20673
//	dapo                  clip 0.2 and 0.28, mean over tokens, resampling    arXiv:2503.14476
//	cispo                 grpo with clipped weights in place of a clip       arXiv:2506.13585
//	dppo                  r - mean; mask by total variation                  arXiv:2602.04879
//	gpg                   group-centred REINFORCE without a ratio            arXiv:2504.02546
//	remax                 r - reward of a greedy rollout; clip 0.2           arXiv:2310.10505
//	opo                   r - mean by length; clip 0.2; mean over tokens     arXiv:2505.23585
//	pass@k                best - second best for the best; clip 0.2          arXiv:2503.19595
//	gdpo                  grpo of every part of the reward, summed, whitened arXiv:2601.05242
//
// For remax each task gets one more rollout, in the mode of a validation: agents
// must sample greedily when they are not trained.
func Preset(name string) (Method, error) {
	clip := rl.Loss{Surrogate: rl.PPO}.Resolved().Clip
	switch name {
	case GRPO:
		return Method{Loss: rl.Loss{Surrogate: rl.PPO, Clip: clip, Aggregation: rl.SequenceMean}}, nil
	case DrGRPO:
		return Method{
			Advantages: rl.AdvantageConfig{WithoutStd: true},
			Loss:       rl.Loss{Surrogate: rl.PPO, Clip: clip, Aggregation: rl.ConstantNorm, Norm: constantNorm},
		}, nil
	case RLOO:
		return Method{Advantages: rl.AdvantageConfig{Estimator: rl.RLOO}, Loss: rl.Loss{Surrogate: rl.PPO, Clip: clip}}, nil
	case ReinforcePP:
		return Method{Advantages: rl.AdvantageConfig{Estimator: rl.ReinforcePP}, Loss: rl.Loss{Surrogate: rl.PPO, Clip: clip}}, nil
	case ReinforcePPBaseline:
		return Method{Advantages: rl.AdvantageConfig{Estimator: rl.ReinforcePPBaseline}, Loss: rl.Loss{Surrogate: rl.PPO, Clip: clip}}, nil
	case PPO:
		return Method{
			Critic: &Critic{LearningRate: 0.01, Gamma: 1, Lambda: 0.95, Clip: 0.2},
			Loss:   rl.Loss{Surrogate: rl.PPO, Clip: clip},
		}, nil
	case GSPO:
		return Method{Loss: rl.Loss{Surrogate: rl.GSPO, Clip: rl.GSPO.Clip(), Aggregation: rl.SequenceMean}}, nil
	case GMPO:
		return Method{Loss: rl.Loss{Surrogate: rl.GMPO, Clip: rl.GMPO.Clip(), Aggregation: rl.SequenceMean}}, nil
	case DAPO:
		return Method{
			Loss:     rl.Loss{Surrogate: rl.PPO, Clip: rl.Clip{Low: 0.2, High: 0.28}, Aggregation: rl.TokenMean},
			Resample: 3,
		}, nil
	case CISPO:
		return Method{Loss: rl.Loss{Surrogate: rl.CISPO, Clip: rl.CISPO.Clip(), Aggregation: rl.TokenMean}}, nil
	case DPPO:
		return Method{
			Advantages: rl.AdvantageConfig{WithoutStd: true},
			Loss:       rl.Loss{Surrogate: rl.DPPO, Clip: rl.DPPO.Clip(), Aggregation: rl.TokenMean},
		}, nil
	case GPG:
		return Method{Advantages: rl.AdvantageConfig{Estimator: rl.GPG}, Loss: rl.Loss{Surrogate: rl.Reinforce, Aggregation: rl.TokenMean}}, nil
	}
	for preset, estimator := range map[string]rl.Estimator{ReMax: rl.ReMax, OPO: rl.OPO, PassK: rl.PassK, GDPO: rl.GDPO} {
		if name == preset {
			return Method{Advantages: rl.AdvantageConfig{Estimator: estimator}, Loss: rl.Loss{Surrogate: rl.PPO, Clip: clip}}, nil
		}
	}
	return Method{}, fmt.Errorf("pg: preset %q: must be one of %v", name, Presets())
}
