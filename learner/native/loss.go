package native

import (
	"math"

	"agentlightning/learner"
	"agentlightning/learner/native/internal/kernel"
	"agentlightning/rl"
)

// target is one token whose probability an update moves.
type target struct {
	pos    int // of the token, in its row; the token before predicts it
	id     int32
	weight float64 // in the loss, before the division by objective.norm
	// ret is what the critic should say before the token, value what it said.
	ret, value float64
}

// trainRow is a row as the passes read it.
type trainRow struct {
	index   int // in the batch
	ids     []int32
	targets []target
	tokens  []rl.Token // of each target, as far as the batch knows them
	size    rl.Size
	// reference is the log-probability of the targets under the reference policy,
	// weighted like theirs; for preferences.
	reference float64
	share     float64 // of a token; see rl.Loss.Shares
	// trained takes the log-probabilities of the targets; nil when nobody asks.
	trained []float32
}

// lossSums are the sums over targets that the metrics are made of.
type lossSums struct {
	weight, loss, entropy, clipped, dual, kl, ratio, reference, value float64

	pairs pairSums
}

func (s *lossSums) add(o lossSums) {
	s.weight += o.weight
	s.loss += o.loss
	s.entropy += o.entropy
	s.clipped += o.clipped
	s.dual += o.dual
	s.kl += o.kl
	s.ratio += o.ratio
	s.reference += o.reference
	s.value += o.value
	s.pairs.add(o.pairs)
}

// objective holds what the loss of a target needs besides the target.
type objective struct {
	kind   learner.Objective
	loss   rl.Loss // resolved
	critic learner.CriticOptions
	norm   float64 // what the losses of the optimiser step are divided by
}

func newObjective(o learner.Options) *objective {
	obj := &objective{kind: o.Objective, loss: o.Loss.Resolved(), critic: o.Critic}
	if o.Objective == learner.Preference { // the slopes of pairs stand as advantages
		obj.loss.Surrogate = rl.Reinforce
	}
	return obj
}

// gradient replaces the logits of the pass by their gradients.
func (p *pass) gradient(o *objective) lossSums {
	v, ld := p.lay.vocab, padded(p.lay.vocabPad)
	for i, t := range p.targets {
		row := p.logits[i*ld : i*ld+p.lay.vocabPad]
		logprob, entropy := logSoftmax(p.level, row[:v], p.scratch[:v], t.id)
		p.sampled[i].Logprob, p.sampled[i].Entropy = float64(logprob), entropy
	}
	p.price(o)
	var sums lossSums
	for i, t := range p.targets {
		row := p.logits[i*ld : i*ld+p.lay.vocabPad]
		sums.add(o.sums(t, &p.sampled[i], &p.losses[i]))
		// The gradient of the loss by logits is gradient·(onehot - probabilities).
		scale := float32(p.losses[i].Gradient * t.weight / o.norm)
		bonus := float32(o.loss.Entropy * t.weight / o.norm)
		switch {
		case bonus != 0:
			lessEntropy(row[:v], scale, bonus, float32(p.sampled[i].Entropy))
		case scale == 0:
			clear(row)
			continue
		default:
			p.level.Scale(row[:v], -scale)
		}
		row[t.id] += scale
		clear(row[v:])
	}
	return sums
}

// price fills p.losses, row by row.
func (p *pass) price(o *objective) {
	if cap(p.losses) < len(p.sampled) {
		p.losses = make([]rl.TokenLoss, len(p.sampled)+len(p.sampled)/4)
	}
	p.losses = p.losses[:len(p.sampled)]
	if o.kind == learner.Imitation {
		for i, t := range p.sampled {
			p.losses[i] = rl.TokenLoss{Loss: -t.Logprob, Gradient: -1}
		}
		return
	}
	from := 0
	for _, n := range p.counts {
		o.loss.Sequence(p.sampled[from:from+n], p.losses[from:from+n])
		from += n
	}
}

// lessEntropy turns probabilities into the gradient of the loss by logits, when
// the entropy counts bonus times: that of the entropy is -p·(log p + entropy).
func lessEntropy(probs []float32, scale, bonus, entropy float32) {
	for j, p := range probs {
		g := -scale * p
		if p > 0 {
			g += bonus * p * (float32(math.Log(float64(p))) + entropy)
		}
		probs[j] = g
	}
}

// logSoftmax turns logits into probabilities and returns the log-probability of
// id and the entropy. scratch holds as many numbers as row.
func logSoftmax(l kernel.Level, row, scratch []float32, id int32) (logprob float32, entropy float64) {
	copy(scratch, row)
	shift := l.Max(row)
	sum := l.ExpSum(row, row, shift)
	l.Scale(row, 1/sum)
	logZ := math.Log(float64(sum)) + float64(shift)
	return float32(float64(scratch[id]) - logZ), logZ - float64(l.Dot(row, scratch))
}

// sums returns a target's share of the sums.
func (o *objective) sums(t target, token *rl.Token, l *rl.TokenLoss) lossSums {
	w := t.weight
	s := lossSums{weight: w, loss: l.Loss * w, entropy: token.Entropy * w}
	if o.kind != learner.PolicyGradient {
		return s
	}
	k3, _ := rl.K3.Token(token.Old, token.Logprob) // tokens come from the old policy
	s.kl, s.ratio, s.reference = k3*w, l.Ratio*w, l.KL*w
	if l.Clipped {
		s.clipped = w
	}
	if l.ClippedDual {
		s.dual = w
	}
	return s
}
