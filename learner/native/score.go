package native

import (
	"context"
	"fmt"
	"sync"

	"agentlightning/learner"
	"agentlightning/learner/native/internal/kernel"
)

var (
	_ learner.Scorer = (*Model)(nil)
	_ learner.Scorer = (*Frozen)(nil)
	_ learner.Critic = (*Model)(nil)
)

// Frozen is a policy that no longer changes: the weights that a model had when
// [Model.Freeze] was called. It is the reference of a KL term. Its methods are
// safe for concurrent use, also after the model was closed.
type Frozen struct {
	reader
}

// Freeze returns the policy as it is now.
func (m *Model) Freeze() *Frozen { return &Frozen{m.reader()} }

// Score implements [learner.Scorer].
func (f *Frozen) Score(ctx context.Context, rows []learner.Row) ([][]float32, error) {
	return f.score(ctx, rows)
}

// Score implements [learner.Scorer] with the weights of the latest update.
func (m *Model) Score(ctx context.Context, rows []learner.Row) ([][]float32, error) {
	r := m.reader()
	return r.score(ctx, rows)
}

// Values implements [learner.Critic]: a linear function of what the last layer
// of the policy makes of the text before a token. It is trained by updates with
// [learner.CriticOptions] and does not reach back into the policy. Before the
// first of them it is 0.
func (m *Model) Values(ctx context.Context, rows []learner.Row) ([][]float32, error) {
	m.mu.Lock()
	critic := m.train.critic.clone()
	r := m.reader()
	m.mu.Unlock()
	return r.read(ctx, rows, func(p *pass, i int) float32 {
		d := p.lay.cfg.Dim
		return float32(critic.value(p.headN[i*d : (i+1)*d]))
	})
}

// reader runs rows forward through one snapshot.
type reader struct {
	lay     *layout
	level   kernel.Level
	workers int
	*snapshot
}

func (m *Model) reader() reader {
	return reader{m.lay, m.level, m.cfg.Workers, m.current.Load()}
}

func (r *reader) score(ctx context.Context, rows []learner.Row) ([][]float32, error) {
	return r.read(ctx, rows, func(p *pass, i int) float32 {
		v, ld := r.lay.vocab, padded(r.lay.vocabPad)
		logprob, _ := logSoftmax(r.level, p.logits[i*ld:i*ld+v], p.scratch[:v], p.targets[i].id)
		return logprob
	})
}

// read calls of for every target of each row, once it has been run forward, and
// returns what it says, one entry a token.
func (r *reader) read(ctx context.Context, rows []learner.Row, of func(p *pass, i int) float32) ([][]float32, error) {
	train := make([]trainRow, len(rows))
	out := make([][]float32, len(rows))
	for i, row := range rows {
		if len(row.Mask) != len(row.IDs) {
			return nil, fmt.Errorf("%w: row %d: %d mask entries for %d tokens", learner.ErrInvalid, i, len(row.Mask), len(row.IDs))
		}
		if err := r.lay.check(i, row); err != nil {
			return nil, err
		}
		train[i] = trainRow{ids: row.IDs, targets: targetsOf(row)}
		out[i] = make([]float32, len(row.IDs))
	}
	var wg sync.WaitGroup
	for w := range min(r.workers, len(rows)) {
		wg.Go(func() {
			p := newPass(r.level, r.lay)
			for i := w; i < len(rows) && ctx.Err() == nil; i += r.workers {
				if len(train[i].targets) == 0 {
					continue
				}
				p.reset(train[i : i+1])
				p.forward(r.weights, r.pack)
				for j, t := range p.targets {
					out[i][t.pos] = of(p, j)
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return out, nil
}

// targetsOf are the masked tokens of a row, but for the first, which nothing
// predicts.
func targetsOf(row learner.Row) []target {
	var out []target
	for t := 1; t < len(row.IDs); t++ {
		if row.Mask[t] != 0 {
			out = append(out, target{pos: t, id: row.IDs[t], weight: float64(row.Mask[t])})
		}
	}
	return out
}

// check returns an error for a row that the model cannot read.
func (l *layout) check(i int, row learner.Row) error {
	if len(row.IDs) > l.cfg.Context {
		return fmt.Errorf("%w: row %d: %d tokens do not fit into the context of %d", learner.ErrInvalid, i, len(row.IDs), l.cfg.Context)
	}
	for t, id := range row.IDs {
		if id < 0 || int(id) >= l.vocab {
			return fmt.Errorf("%w: row %d: token %d is %d: the vocabulary has %d", learner.ErrInvalid, i, t, id, l.vocab)
		}
	}
	return nil
}
