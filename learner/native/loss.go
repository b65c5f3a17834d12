package native

import (
	"math"

	"agentlightning/learner"
	"agentlightning/learner/native/internal/kernel"
)

// target is one token whose probability an update moves.
type target struct {
	pos       int // of the token, in its row; the token before predicts it
	id        int32
	weight    float32
	logprob   float32
	advantage float32
}

// trainRow is a row as the passes read it.
type trainRow struct {
	ids     []int32
	targets []target
}

// lossSums are the sums over targets that the metrics are made of.
type lossSums struct {
	weight, loss, entropy, clipped, kl, ratio float64
}

func (s *lossSums) add(o lossSums) {
	s.weight += o.weight
	s.loss += o.loss
	s.entropy += o.entropy
	s.clipped += o.clipped
	s.kl += o.kl
	s.ratio += o.ratio
}

// objective holds what the loss of a target needs besides the target.
type objective struct {
	kind              learner.Objective
	clipLow, clipHigh float64
	norm              float64 // weight of all targets of the optimiser step
}

// maxLogRatio bounds the logarithm of importance ratios, so that a token that
// became absurdly likely gives a large number and not an infinity.
const maxLogRatio = 20

// gradient replaces the logits of the pass by their gradients.
func (p *pass) gradient(o *objective) lossSums {
	var sums lossSums
	v, ld := p.lay.vocab, padded(p.lay.vocabPad)
	for i, t := range p.targets {
		row := p.logits[i*ld : i*ld+p.lay.vocabPad]
		logprob, entropy := logSoftmax(p.level, row[:v], p.scratch[:v], t.id)
		coef, one := o.token(t, float64(logprob))
		one.entropy = entropy * float64(t.weight)
		sums.add(one)
		// The gradient of the loss by logits is coef·(onehot - probabilities).
		scale := float32(coef * float64(t.weight) / o.norm)
		if scale == 0 {
			clear(row)
			continue
		}
		p.level.Scale(row[:v], -scale)
		row[t.id] += scale
		clear(row[v:])
	}
	return sums
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

// token returns the derivative of a target's loss by its log-probability, and
// its share of the sums.
func (o *objective) token(t target, logprob float64) (float64, lossSums) {
	w := float64(t.weight)
	if o.kind != learner.PolicyGradient {
		return -1, lossSums{weight: w, loss: -logprob * w}
	}
	delta := min(max(logprob-float64(t.logprob), -maxLogRatio), maxLogRatio)
	ratio, adv := math.Exp(delta), float64(t.advantage)
	s := lossSums{weight: w, ratio: ratio * w, kl: (ratio - 1 - delta) * w}
	plain := ratio * adv
	held := min(max(ratio, 1-o.clipLow), 1+o.clipHigh) * adv
	if held < plain {
		s.clipped, s.loss = w, -held*w
		return 0, s
	}
	s.loss = -plain * w
	return -plain, s
}
