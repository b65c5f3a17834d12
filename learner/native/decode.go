package native

import (
	"math"

	"agentlightning/learner/native/internal/kernel"
)

// decoder runs sequences forward from their caches and samples. One worker uses
// it at a time; its buffers are reused.
type decoder struct {
	level kernel.Level
	lay   *layout

	x, n, qkv, attn, hid []float32
	score                []float32
	last, logits         []float32
	sampler              sampler
}

func newDecoder(level kernel.Level, lay *layout) *decoder {
	return &decoder{level: level, lay: lay, score: make([]float32, kernel.RoundUp(lay.cfg.Context))}
}

// decodeTokens bounds what is run at once.
const decodeTokens = 512

// advance samples one token for each sequence.
func (d *decoder) advance(snap *snapshot, seqs []*sequence) {
	for len(seqs) > 0 {
		k, tokens := 1, seqs[0].pending()
		for k < len(seqs) && tokens+seqs[k].pending() <= decodeTokens {
			tokens += seqs[k].pending()
			k++
		}
		d.forward(snap, seqs[:k], tokens)
		ld := padded(d.lay.vocabPad)
		for i, s := range seqs[:k] {
			d.sample(s, d.logits[i*ld:i*ld+d.lay.vocab], snap.version)
		}
		seqs = seqs[k:]
	}
}

// forward runs the pending tokens of the sequences and leaves the logits after
// the last token of each in d.logits.
func (d *decoder) forward(snap *snapshot, seqs []*sequence, tokens int) {
	l, lay, w := d.level, d.lay, snap.weights
	dim, f := lay.cfg.Dim, lay.cfg.Hidden
	ldq, ldf, ldv := padded(3*dim), padded(f), padded(lay.vocabPad)
	d.x, d.n, d.attn = grow(d.x, tokens*dim), grow(d.n, tokens*dim), grow(d.attn, tokens*dim)
	d.qkv, d.hid = grow(d.qkv, tokens*ldq), grow(d.hid, tokens*ldf)
	d.last, d.logits = grow(d.last, len(seqs)*dim), grow(d.logits, len(seqs)*ldv)
	row := 0
	for _, s := range seqs {
		for t := s.slot.filled; t < len(s.ids); t++ {
			embed(l, lay, w, d.x[row*dim:(row+1)*dim], s.ids, t)
			row++
		}
	}
	for i := range lay.layers {
		o, k := &lay.layers[i], &snap.pack.layers[i]
		d.norms(tokens, w[o.attnNorm:o.attnNorm+dim])
		l.MatMul(d.qkv, ldq, kernel.Rows(d.n, dim), kernel.Packed(k.qkv, dim), tokens, 3*dim, dim, false)
		row = 0
		for _, s := range seqs {
			for t := s.slot.filled; t < len(s.ids); t++ {
				d.attend(&s.slot.layers[i], t, d.qkv[row*ldq:], d.attn[row*dim:])
				row++
			}
		}
		l.MatMul(d.x, dim, kernel.Rows(d.attn, dim), kernel.Packed(k.out, dim), tokens, dim, dim, true)
		d.norms(tokens, w[o.mlpNorm:o.mlpNorm+dim])
		l.MatMul(d.hid, ldf, kernel.Rows(d.n, dim), kernel.Packed(k.up, dim), tokens, f, dim, false)
		for t := range tokens {
			h := d.hid[t*ldf:][:f]
			l.SquaredReLU(h, h)
		}
		l.MatMul(d.x, dim, kernel.Rows(d.hid, ldf), kernel.Packed(k.down, f), tokens, dim, f, true)
	}
	row = 0
	for i, s := range seqs {
		row += s.pending()
		normRow(l, d.last[i*dim:(i+1)*dim], d.x[(row-1)*dim:row*dim], w[lay.final:lay.final+dim])
		s.slot.ids = append(s.slot.ids, s.ids[s.slot.filled:]...)
		s.slot.filled = len(s.ids)
		if s.slot.serial != snap.serial {
			s.slot.serial = 0
		}
	}
	l.MatMul(d.logits, ldv, kernel.Rows(d.last, dim), kernel.Packed(snap.pack.head, dim), len(seqs), lay.vocabPad, dim, false)
}

func (d *decoder) norms(tokens int, gain []float32) {
	dim := d.lay.cfg.Dim
	for t := range tokens {
		normRow(d.level, d.n[t*dim:(t+1)*dim], d.x[t*dim:(t+1)*dim], gain)
	}
}

// attend adds position t to the cache of a block and attends from it.
func (d *decoder) attend(c *slotLayer, t int, qkv, out []float32) {
	l, cfg := d.level, &d.lay.cfg
	dim, pad := cfg.Dim, kernel.RoundUp(cfg.Context)
	hd := dim / cfg.Heads
	scale := float32(1 / math.Sqrt(float64(hd)))
	for j, v := range qkv[dim : 2*dim] {
		c.keys[j*pad+t] = v * scale
	}
	copy(c.vals[t*dim:(t+1)*dim], qkv[2*dim:3*dim])
	width := kernel.RoundUp(t + 1)
	for h := range cfg.Heads {
		l.MatMul(d.score, pad, kernel.Rows(qkv[h*hd:], hd), kernel.Plain(c.keys[h*hd*pad:], pad), 1, width, hd, false)
		softmaxRow(l, d.score[:t+1])
		l.Mix(out[h*hd:(h+1)*hd], d.score[:t+1], c.vals[h*hd:], dim)
	}
}
