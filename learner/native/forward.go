package native

import (
	"math"

	"agentlightning/learner/native/internal/kernel"
	"agentlightning/rl"
)

// A pass runs a chunk of whole rows forward and backward. All rows lie behind
// one another in one token matrix, so that no product is spent on padding; only
// attention looks at them one by one. Its buffers are reused.
type pass struct {
	level kernel.Level
	lay   *layout
	grads []float32

	rows   []span  // of the chunk
	ids    []int32 // of all rows
	layers []layerState
	x      []float32 // residual stream, tokens × Dim
	final  []float32 // 1/rms of the last norm, one a target

	targets []target
	counts  []int          // of targets, row by row
	sampled []rl.Token     // one a target
	losses  []rl.TokenLoss // one a target
	headX   []float32      // residual stream before the last norm, one row a target
	headN   []float32      // the same after it
	logits  []float32      // then probabilities, then their gradients

	dx, dn, dhid, dqkv, dattn []float32
	keysT, valsT              []float32 // one head, transposed
	dscore, scratch           []float32
	tokens                    int

	criticGrads []float64
}

// span is one row within the token matrix of a chunk.
type span struct{ off, n int }

// layerState is what the backward pass of one block needs from its forward pass.
type layerState struct {
	x1, n1, qkv, attn []float32
	x2, n2, up, act   []float32
	r1, r2            []float32
	probs             []float32 // rows × heads × n × RoundUp(n)
	probOff           []int     // where a row's begin
}

func newPass(level kernel.Level, lay *layout) *pass {
	return &pass{
		level: level, lay: lay, layers: make([]layerState, lay.cfg.Layers), criticGrads: make([]float64, lay.cfg.Dim+1),
	}
}

// reset prepares the buffers for the rows of a chunk.
func (p *pass) reset(rows []trainRow) {
	p.rows, p.ids, p.targets = p.rows[:0], p.ids[:0], p.targets[:0]
	p.counts, p.sampled = p.counts[:0], p.sampled[:0]
	for _, r := range rows {
		off := len(p.ids)
		p.rows = append(p.rows, span{off, len(r.ids)})
		p.ids = append(p.ids, r.ids...)
		p.counts = append(p.counts, len(r.targets))
		p.sampled = append(p.sampled, r.tokens...)
		for _, t := range r.targets {
			t.pos += off
			p.targets = append(p.targets, t)
		}
	}
	cfg := &p.lay.cfg
	n, d, f := len(p.ids), cfg.Dim, cfg.Hidden
	p.tokens = n
	p.x = grow(p.x, n*d)
	p.dx = grow(p.dx, n*d)
	p.dn = grow(p.dn, n*d)
	p.dattn = grow(p.dattn, n*d)
	p.dhid = grow(p.dhid, n*padded(f))
	p.dqkv = grow(p.dqkv, n*padded(3*d))
	longest := 0
	for _, r := range p.rows {
		longest = max(longest, r.n)
	}
	pad := kernel.RoundUp(longest)
	p.keysT = grow(p.keysT, d/cfg.Heads*pad)
	p.valsT = grow(p.valsT, d/cfg.Heads*pad)
	p.dscore = grow(p.dscore, longest*pad)
	for i := range p.layers {
		s := &p.layers[i]
		s.x1, s.n1, s.attn = grow(s.x1, n*d), grow(s.n1, n*d), grow(s.attn, n*d)
		s.x2, s.n2 = grow(s.x2, n*d), grow(s.n2, n*d)
		s.qkv = grow(s.qkv, n*padded(3*d))
		s.up, s.act = grow(s.up, n*padded(f)), grow(s.act, n*padded(f))
		s.r1, s.r2 = grow(s.r1, n), grow(s.r2, n)
		s.probOff = s.probOff[:0]
		size := 0
		for _, r := range p.rows {
			s.probOff = append(s.probOff, size)
			size += cfg.Heads * r.n * kernel.RoundUp(r.n)
		}
		s.probs = grow(s.probs, size)
	}
	m := len(p.targets)
	p.scratch = grow(p.scratch, p.lay.vocabPad)
	p.headX, p.headN, p.final = grow(p.headX, m*d), grow(p.headN, m*d), grow(p.final, m)
	p.logits = grow(p.logits, m*padded(p.lay.vocabPad))
}

// forward leaves the logits of the targets in p.logits, rows padded apart.
func (p *pass) forward(w []float32, pk *forwardPack) {
	l, lay := p.level, p.lay
	d, f, n := lay.cfg.Dim, lay.cfg.Hidden, p.tokens
	for _, r := range p.rows {
		for t := range r.n {
			embed(l, lay, w, p.x[(r.off+t)*d:(r.off+t+1)*d], p.ids[r.off:r.off+r.n], t)
		}
	}
	for i := range p.layers {
		s, o, k := &p.layers[i], &lay.layers[i], &pk.layers[i]
		copy(s.x1, p.x[:n*d])
		gain := w[o.attnNorm : o.attnNorm+d]
		for t := range n {
			s.r1[t] = normRow(l, s.n1[t*d:(t+1)*d], s.x1[t*d:(t+1)*d], gain)
		}
		l.MatMul(s.qkv, padded(3*d), kernel.Rows(s.n1, d), kernel.Packed(k.qkv, d), n, 3*d, d, false)
		for ri := range p.rows {
			p.attend(s, ri)
		}
		l.MatMul(p.x, d, kernel.Rows(s.attn, d), kernel.Packed(k.out, d), n, d, d, true)

		copy(s.x2, p.x[:n*d])
		gain = w[o.mlpNorm : o.mlpNorm+d]
		for t := range n {
			s.r2[t] = normRow(l, s.n2[t*d:(t+1)*d], s.x2[t*d:(t+1)*d], gain)
		}
		l.MatMul(s.up, padded(f), kernel.Rows(s.n2, d), kernel.Packed(k.up, d), n, f, d, false)
		for t := range n {
			l.SquaredReLU(s.act[t*padded(f):][:f], s.up[t*padded(f):][:f])
		}
		l.MatMul(p.x, d, kernel.Rows(s.act, padded(f)), kernel.Packed(k.down, f), n, d, f, true)
	}
	gain := w[lay.final : lay.final+d]
	for i, t := range p.targets {
		x := p.headX[i*d : (i+1)*d]
		copy(x, p.x[(t.pos-1)*d:t.pos*d])
		p.final[i] = normRow(l, p.headN[i*d:(i+1)*d], x, gain)
	}
	l.MatMul(p.logits, padded(lay.vocabPad), kernel.Rows(p.headN, d), kernel.Packed(pk.head, d), len(p.targets), lay.vocabPad, d, false)
}

// embed stores the input of position t of a row in x: the tables of the token
// itself, of the two before it, and of the position.
func embed(l kernel.Level, lay *layout, w, x []float32, ids []int32, t int) {
	d := len(x)
	copy(x, w[lay.tok+int(ids[t])*d:][:d])
	l.Axpy(x, 1, w[lay.pos+t*d:][:d])
	if t >= 1 {
		l.Axpy(x, 1, w[lay.prev1+int(ids[t-1])*d:][:d])
	}
	if t >= 2 {
		l.Axpy(x, 1, w[lay.prev2+int(ids[t-2])*d:][:d])
	}
}

// queryRows is the height of the bands in which attention works, so that little
// of the masked upper triangle is calculated.
const queryRows = 8

// attend runs causal attention for one row of the chunk.
func (p *pass) attend(s *layerState, ri int) {
	l, cfg, r := p.level, &p.lay.cfg, p.rows[ri]
	d, ld := cfg.Dim, padded(3*cfg.Dim)
	hd, pad := d/cfg.Heads, kernel.RoundUp(r.n)
	scale := float32(1 / math.Sqrt(float64(hd)))
	for h := range cfg.Heads {
		q := s.qkv[r.off*ld+h*hd:]
		k := s.qkv[r.off*ld+d+h*hd:]
		v := s.qkv[r.off*ld+2*d+h*hd:]
		probs := s.probs[s.probOff[ri]+h*r.n*pad:][:r.n*pad]
		transpose(p.keysT, k, r.n, hd, ld, pad, scale)
		for i0 := 0; i0 < r.n; i0 += queryRows {
			rows := min(queryRows, r.n-i0)
			seen := i0 + rows
			width := kernel.RoundUp(seen)
			band := probs[i0*pad:]
			l.MatMul(band, pad, kernel.Rows(q[i0*ld:], ld), kernel.Plain(p.keysT, pad), rows, width, hd, false)
			for i := range rows {
				softmaxRow(l, band[i*pad:i*pad+i0+i+1])
				clear(band[i*pad+i0+i+1 : i*pad+width])
			}
			l.MatMul(s.attn[(r.off+i0)*d+h*hd:], d, kernel.Rows(band, pad), kernel.Plain(v, ld), rows, hd, seen, false)
		}
	}
}

// transpose writes scale times n rows of m numbers as m rows of pad.
func transpose(dst, src []float32, n, m, stride, pad int, scale float32) {
	for j := range n {
		row := src[j*stride : j*stride+m]
		to := dst[j:]
		for i, v := range row {
			to[i*pad] = v * scale
		}
	}
	if n < pad {
		for i := range m {
			clear(dst[i*pad+n : (i+1)*pad])
		}
	}
}

func softmaxRow(l kernel.Level, x []float32) {
	l.Scale(x, 1/l.ExpSum(x, x, l.Max(x)))
}
