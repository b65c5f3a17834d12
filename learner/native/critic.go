package native

import (
	"math"
	"slices"

	"agentlightning/learner"
	"agentlightning/rl"
)

// critic is a linear function of the normalised output of the last layer: Dim
// weights and a constant, with Adam's moments.
type critic struct {
	weights, first, second []float64
	steps                  int64
}

func newCritic(dim int) critic {
	return critic{make([]float64, dim+1), make([]float64, dim+1), make([]float64, dim+1), 0}
}

func (c *critic) clone() critic {
	return critic{slices.Clone(c.weights), slices.Clone(c.first), slices.Clone(c.second), c.steps}
}

func (c *critic) value(features []float32) float64 {
	n := len(features)
	sum := c.weights[n]
	for i, f := range features {
		sum += c.weights[i] * float64(f)
	}
	return sum
}

// criticGradient adds the gradient of the value loss of the pass's targets to
// p.criticGrads and returns the loss, each weighted like the policy's.
func (p *pass) criticGradient(c *critic, o *objective) float64 {
	d := p.lay.cfg.Dim
	sum := 0.0
	for i, t := range p.targets {
		features := p.headN[i*d : (i+1)*d]
		loss, gradient := rl.ValueLoss(c.value(features), t.value, t.ret, o.critic.Clip)
		sum += t.weight * loss
		scale := t.weight / o.norm * gradient
		for j, f := range features {
			p.criticGrads[j] += scale * float64(f)
		}
		p.criticGrads[d] += scale
	}
	return sum
}

// step applies Adam to the sum of the gradients of the shards.
func (c *critic) step(shards []*pass, o learner.CriticOptions) {
	const beta1, beta2 = 0.9, 0.999
	c.steps++
	c1, c2 := 1-math.Pow(beta1, float64(c.steps)), 1-math.Pow(beta2, float64(c.steps))
	for i := range c.weights {
		g := 0.0
		for _, p := range shards {
			g += p.criticGrads[i]
		}
		c.first[i] = beta1*c.first[i] + (1-beta1)*g
		c.second[i] = beta2*c.second[i] + (1-beta2)*g*g
		c.weights[i] -= o.LearningRate * (c.first[i] / c1) / (math.Sqrt(c.second[i]/c2) + adamEpsilon)
	}
}

// tensors are the numbers of a critic as a checkpoint keeps them.
func (c *critic) tensors() []namedTensor {
	out := make([]namedTensor, 0, 3)
	for _, t := range []struct {
		name string
		data []float64
	}{{"critic", c.weights}, {"first.critic", c.first}, {"second.critic", c.second}} {
		data := make([]float32, len(t.data))
		for i, v := range t.data {
			data[i] = float32(v)
		}
		out = append(out, namedTensor{t.name, []int{len(data)}, data})
	}
	return out
}
