package native

import "agentlightning/rl"

// pairSums are the sums over pairs that the metrics of preferences are made of.
type pairSums struct{ n, loss, margin, preferred float64 }

func (s *pairSums) add(o pairSums) {
	s.n += o.n
	s.loss += o.loss
	s.margin += o.margin
	s.preferred += o.preferred
}

// prefer runs the pairs of an optimiser step forward and puts the slope of
// their loss on each token, so that the backward pass needs to know of no pairs:
// the loss of a pair moves with the sum of the log-probabilities of a row, and
// -advantage is the derivative by each of them.
func (m *Model) prefer(batch []trainRow, beta float64) pairSums {
	t := &m.train
	logprobs := make([]float64, len(batch))
	m.parallel(len(t.shards), func(shard int) {
		p := t.shards[shard]
		for i := shard; i < len(batch); i += len(t.shards) {
			p.reset(batch[i : i+1])
			p.forward(t.weights, t.forward)
			logprobs[i] = p.logprob()
		}
	})
	var sums pairSums
	for i := 0; i < len(batch); i += 2 {
		chosen, rejected := &batch[i], &batch[i+1]
		l := rl.DPO(rl.Pair{
			Chosen: logprobs[i], Rejected: logprobs[i+1], ReferenceChosen: chosen.reference, ReferenceRejected: rejected.reference,
		}, beta)
		one := pairSums{n: 1, loss: l.Loss, margin: l.Margin}
		if l.Margin > 0 {
			one.preferred = 1
		}
		sums.add(one)
		for j := range chosen.tokens {
			chosen.tokens[j].Advantage = -l.Chosen
		}
		for j := range rejected.tokens {
			rejected.tokens[j].Advantage = -l.Rejected
		}
	}
	return sums
}

// logprob is the weighted log-probability of the targets of a pass that was run
// forward.
func (p *pass) logprob() float64 {
	v, ld := p.lay.vocab, padded(p.lay.vocabPad)
	sum := 0.0
	for i, t := range p.targets {
		logprob, _ := logSoftmax(p.level, p.logits[i*ld:i*ld+v], p.scratch[:v], t.id)
		sum += t.weight * float64(logprob)
	}
	return sum
}
