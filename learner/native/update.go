package native

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"agentlightning/learner"
	"agentlightning/learner/native/internal/kernel"
	"agentlightning/rl"
)

// trainer holds what updates change, and the buffers they use. It is guarded by
// Model.mu.
type trainer struct {
	weights, first, second []float32 // parameters and AdamW's moments
	steps                  int64     // optimiser steps since the moments were zero
	backup                 [3][]float32
	critic, criticBackup   critic

	forward  *forwardPack
	backward *backwardPack
	shards   []*pass
	sums     []lossSums
}

func newTrainer(lay *layout, level kernel.Level) trainer {
	t := trainer{
		weights: make([]float32, lay.size), first: make([]float32, lay.size), second: make([]float32, lay.size),
		forward: newForwardPack(lay), backward: newBackwardPack(lay), sums: make([]lossSums, lay.cfg.Shards),
		critic: newCritic(lay.cfg.Dim),
	}
	for range lay.cfg.Shards {
		t.shards = append(t.shards, newPass(level, lay))
	}
	return t
}

func (t *trainer) save() {
	for i, v := range [3][]float32{t.weights, t.first, t.second} {
		t.backup[i] = append(t.backup[i][:0], v...)
	}
	t.criticBackup = t.critic.clone()
}

func (t *trainer) restore() {
	for i, v := range [3][]float32{t.weights, t.first, t.second} {
		copy(v, t.backup[i])
	}
	t.critic = t.criticBackup.clone()
}

// ResetOptimizer forgets AdamW's moments, as is wanted between warm-up and
// reinforcement learning, and what the critic has learnt.
func (m *Model) ResetOptimizer() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.train.first)
	clear(m.train.second)
	m.train.steps = 0
	m.train.critic = newCritic(m.cfg.Dim)
}

// Update implements [learner.Learner]. Rows that are longer than the context or
// hold ids that do not exist are refused with [learner.ErrInvalid]; a batch
// without a masked token changes nothing. Every optimiser step takes Minibatch
// rows and joins the losses of their masked tokens, each weighted by its mask,
// as the loss says. It honours every field of [learner.Options]. Apart from "seconds" the result is the same for the same batch, seed
// and weights.
func (m *Model) Update(ctx context.Context, b learner.Batch) (learner.Metrics, error) {
	start := time.Now()
	if err := b.Validate(); err != nil {
		return nil, err
	}
	rows, err := m.trainRows(b)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	tally := newTally(b.Options)
	if len(rows) == 0 {
		return tally.metrics(time.Since(start)), ctx.Err()
	}
	trained := reported(b, rows)
	m.train.save()
	steps := m.train.steps
	if err := m.steps(ctx, rows, b.Options, tally); err != nil {
		m.train.restore()
		m.train.steps = steps
		return nil, fmt.Errorf("update after version %d: %w", m.version, err)
	}
	m.version++
	m.publish()
	for i, logprobs := range trained {
		b.Trained(rows[i].index, logprobs)
	}
	return tally.metrics(time.Since(start)), nil
}

// reported gives the rows of a batch a place for the log-probabilities that are
// asked for, and returns the places.
func reported(b learner.Batch, rows []trainRow) [][]float32 {
	if b.Trained == nil {
		return nil
	}
	out := make([][]float32, len(rows))
	for i := range rows {
		out[i] = make([]float32, len(rows[i].ids))
		rows[i].trained = out[i]
	}
	return out
}

// trainRows checks the rows and keeps those with something to learn.
func (m *Model) trainRows(b learner.Batch) ([]trainRow, error) {
	rows := make([]trainRow, 0, len(b.Rows))
	var sizes []rl.Size
	for i, r := range b.Rows {
		if err := m.lay.check(i, r); err != nil {
			return nil, err
		}
		row := trainRow{index: i, ids: r.IDs, targets: targetsOf(r), size: rl.Size{Rollout: r.Rollout}}
		if len(row.targets) == 0 {
			if b.Options.Objective == learner.Preference {
				return nil, fmt.Errorf("%w: row %d: no masked token, so there is nothing to prefer", learner.ErrInvalid, i)
			}
			continue
		}
		row.tokens = make([]rl.Token, len(row.targets))
		for j := range row.targets {
			g := &row.targets[j]
			row.size.Tokens += g.weight
			switch b.Options.Objective {
			case learner.PolicyGradient:
				row.tokens[j] = token(r, g.pos)
			case learner.Preference:
				row.tokens[j] = rl.Token{Correction: 1}
				row.reference += g.weight * float64(r.Reference[g.pos])
			case learner.Imitation:
			}
			if b.Options.Critic.LearningRate > 0 {
				g.ret, g.value = float64(r.Returns[g.pos]), float64(r.Values[g.pos])
			}
		}
		rows, sizes = append(rows, row), append(sizes, row.size)
	}
	for i, share := range b.Options.Loss.Shares(sizes) {
		rows[i].share = share
		for j := range rows[i].targets {
			rows[i].targets[j].weight *= share
		}
	}
	return rows, nil
}

// token is what the batch knows of a sampled token.
func token(r learner.Row, t int) rl.Token {
	out := rl.Token{Old: float64(r.Logprobs[t]), Advantage: float64(r.Advantages[t]), Correction: 1}
	if r.Correction != nil {
		out.Correction = float64(r.Correction[t])
	}
	if r.Reference != nil {
		out.Reference = float64(r.Reference[t])
	}
	return out
}

// steps walks over the rows epoch by epoch.
func (m *Model) steps(ctx context.Context, rows []trainRow, o learner.Options, tally *tally) error {
	size := cmp.Or(o.Minibatch, len(rows))
	order := make([]trainRow, len(rows))
	together := 1 // rows that stay side by side
	if o.Objective == learner.Preference {
		together = 2
	}
	for epoch := range max(o.Epochs, 1) {
		r := rand.New(rand.NewPCG(uint64(o.Seed), uint64(epoch)))
		for to, from := range r.Perm(len(rows) / together) {
			copy(order[to*together:(to+1)*together], rows[from*together:])
		}
		for from := 0; from < len(order); from += size {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			batch := order[from:min(from+size, len(order))]
			sums, norm, err := m.step(batch, o)
			if err != nil {
				return err
			}
			tally.add(sums, norm, batch)
		}
		for i := range rows {
			rows[i].trained = nil // only the first pass is told of
		}
	}
	return nil
}

// step applies one optimiser step and returns its sums and gradient norm.
func (m *Model) step(batch []trainRow, o learner.Options) (lossSums, float64, error) {
	t := &m.train
	t.forward.fill(m.lay, t.weights)
	t.backward.fill(m.lay, t.weights)
	obj := newObjective(o)
	obj.norm = divisor(o.Loss, batch)
	var pairs pairSums
	if o.Objective == learner.Preference {
		obj.norm = float64(len(batch)) / 2
		pairs = m.prefer(batch, o.Beta)
	}
	parts := split(batch, len(t.shards))
	m.parallel(len(parts), func(i int) { t.sums[i] = t.shards[i].run(parts[i], t, obj) })
	var sums lossSums
	for _, s := range t.sums[:len(parts)] {
		sums.add(s)
	}
	sums.pairs = pairs
	norm, err := m.apply(o, len(parts))
	if err == nil && o.Critic.LearningRate > 0 {
		t.critic.step(t.shards[:len(parts)], o.Critic)
	}
	return sums, norm, err
}

// divisor is what the losses of an optimiser step are divided by.
func divisor(loss rl.Loss, batch []trainRow) float64 {
	sizes, shares := make([]rl.Size, len(batch)), make([]float64, len(batch))
	for i, r := range batch {
		sizes[i], shares[i] = r.size, r.share
	}
	return loss.Divisor(sizes, shares)
}

// chunkTokens bounds the rows that are run at once, so that what the backward
// pass needs of the forward pass stays in the cache.
const chunkTokens = 256

// run accumulates the gradient of rows, chunk by chunk.
func (p *pass) run(rows []trainRow, t *trainer, o *objective) lossSums {
	p.grads = grow(p.grads, p.lay.size)
	clear(p.grads)
	clear(p.criticGrads)
	var sums lossSums
	for len(rows) > 0 {
		n, tokens := 1, len(rows[0].ids)
		for n < len(rows) && tokens+len(rows[n].ids) <= chunkTokens {
			tokens += len(rows[n].ids)
			n++
		}
		p.reset(rows[:n])
		p.forward(t.weights, t.forward)
		sums.add(p.gradient(o))
		p.report(rows[:n])
		if o.critic.LearningRate > 0 {
			sums.value += p.criticGradient(&t.critic, o)
		}
		p.backward(t.weights, t.backward)
		rows = rows[n:]
	}
	return sums
}

// report notes the log-probabilities of the rows of the pass, where they are
// wanted.
func (p *pass) report(rows []trainRow) {
	i := 0
	for _, r := range rows {
		for _, t := range r.targets {
			if r.trained != nil {
				r.trained[t.pos] = float32(p.sampled[i].Logprob)
			}
			i++
		}
	}
}

// split cuts rows into at most n runs of about equally many tokens, none empty.
func split(rows []trainRow, n int) [][]trainRow {
	left := 0
	for _, r := range rows {
		left += len(r.ids)
	}
	var parts [][]trainRow
	for len(rows) > 0 {
		want := left / (n - len(parts))
		k, tokens := 1, len(rows[0].ids)
		for k < len(rows) && (tokens+len(rows[k].ids)/2 <= want || len(parts) == n-1) {
			tokens += len(rows[k].ids)
			k++
		}
		parts = append(parts, rows[:k])
		rows, left = rows[k:], left-tokens
	}
	return parts
}

// block is how many parameters are summed and stepped at a time. The gradient
// norm is summed by blocks, so that it does not depend on the workers.
const block = 8192

// apply sums the gradients of the shards, clips them and steps the weights.
func (m *Model) apply(o learner.Options, shards int) (float64, error) {
	t := &m.train
	size := m.lay.size
	blocks := (size + block - 1) / block
	squares := make([]float64, blocks)
	total := t.shards[0].grads
	m.parallel(blocks, func(i int) {
		from, to := i*block, min((i+1)*block, size)
		for _, s := range t.shards[1:shards] {
			m.level.Axpy(total[from:to], 1, s.grads[from:to])
		}
		squares[i] = float64(m.level.Dot(total[from:to], total[from:to]))
	})
	var sum float64
	for _, s := range squares {
		sum += s
	}
	norm := math.Sqrt(sum)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return norm, fmt.Errorf("gradient norm is %v; try a smaller learning rate", norm)
	}
	limit := cmp.Or(o.MaxGradNorm, 1)
	t.steps++
	c1 := 1 - math.Pow(m.cfg.Beta1, float64(t.steps))
	c2 := math.Sqrt(1 - math.Pow(m.cfg.Beta2, float64(t.steps)))
	adam := kernel.Adam{
		GradScale: float32(min(1, limit/(norm+1e-6))),
		Beta1:     float32(m.cfg.Beta1), Beta2: float32(m.cfg.Beta2),
		Rate: float32(o.LearningRate * c2 / c1), Epsilon: float32(adamEpsilon * c2), Keep: 1,
	}
	m.parallel(blocks, func(i int) {
		from, to := i*block, min((i+1)*block, size)
		decayed := max(min(to, m.lay.decay), from)
		c := adam
		c.Keep = float32(1 - o.LearningRate*m.cfg.WeightDecay)
		m.level.Step(t.weights[from:decayed], total[from:decayed], t.first[from:], t.second[from:], &c)
		m.level.Step(t.weights[decayed:to], total[decayed:to], t.first[decayed:], t.second[decayed:], &adam)
	})
	return norm, nil
}

const adamEpsilon = 1e-8

// parallel calls work for 0 to n-1 on the workers of the model and waits.
func (m *Model) parallel(n int, work func(i int)) {
	workers := min(m.cfg.Workers, n)
	var wg sync.WaitGroup
	for w := 1; w < workers; w++ {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				work(i)
			}
		})
	}
	for i := 0; i < n; i += workers {
		work(i)
	}
	wg.Wait()
}

// tally collects the metrics of an update.
type tally struct {
	options      learner.Options
	sums         lossSums
	norm         float64 // gradient norms weighted by masked tokens
	tokens, rows int
}

func newTally(o learner.Options) *tally { return &tally{options: o} }

func (t *tally) add(s lossSums, norm float64, batch []trainRow) {
	t.sums.add(s)
	t.norm += norm * s.weight
	t.rows += len(batch)
	for _, r := range batch {
		t.tokens += len(r.targets)
	}
}

func (t *tally) metrics(elapsed time.Duration) learner.Metrics {
	out := learner.Metrics{"tokens": float64(t.tokens), "rows": float64(t.rows), "seconds": elapsed.Seconds()}
	w := t.sums.weight
	if w == 0 {
		return out
	}
	out["loss"] = t.sums.loss / w
	out["entropy"] = t.sums.entropy / w
	out["grad_norm"] = t.norm / w
	if p := t.sums.pairs; t.options.Objective == learner.Preference {
		out["loss"], out["margin"], out["preferred"] = p.loss/p.n, p.margin/p.n, p.preferred/p.n
	}
	if t.options.Objective != learner.PolicyGradient {
		return out
	}
	out["clip_fraction"] = t.sums.clipped / w
	out["approx_kl"] = t.sums.kl / w
	out["ratio_mean"] = t.sums.ratio / w
	if t.options.Loss.Clip.Dual != 0 {
		out["dual_clip_fraction"] = t.sums.dual / w
	}
	if t.options.Loss.KL.Coefficient != 0 {
		out["reference_kl"] = t.sums.reference / w
	}
	if t.options.Critic.LearningRate > 0 {
		out["value_loss"] = t.sums.value / w
	}
	return out
}
