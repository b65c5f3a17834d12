package native

import (
	"math"

	"agentlightning/learner/native/internal/kernel"
)

// backward adds the gradients of the chunk to p.grads. p.logits holds the
// gradients of the logits.
func (p *pass) backward(w []float32, pk *backwardPack) {
	l, lay, g := p.level, p.lay, p.grads
	d, f, n, m := lay.cfg.Dim, lay.cfg.Hidden, p.tokens, len(p.targets)
	v, ldv, ldf, ldq := lay.vocabPad, padded(lay.vocabPad), padded(f), padded(3*d)

	l.MatMul(g[lay.head:], d, kernel.Transposed(p.logits, ldv), kernel.Plain(p.headN, d), v, d, m, true)
	l.MatMul(p.dn, d, kernel.Rows(p.logits, ldv), kernel.Packed(pk.head, v), m, d, v, false)
	clear(p.dx)
	for i, t := range p.targets {
		normBackRow(p.dx[(t.pos-1)*d:t.pos*d], g[lay.final:lay.final+d], p.dn[i*d:(i+1)*d],
			p.headX[i*d:(i+1)*d], w[lay.final:lay.final+d], p.final[i])
	}
	for i := len(p.layers) - 1; i >= 0; i-- {
		s, o, k := &p.layers[i], &lay.layers[i], &pk.layers[i]
		l.MatMul(g[o.down:], d, kernel.Transposed(s.act, ldf), kernel.Plain(p.dx, d), f, d, n, true)
		l.MatMul(p.dhid, ldf, kernel.Rows(p.dx, d), kernel.Packed(k.down, d), n, f, d, false)
		for t := range n {
			l.SquaredReLUBack(p.dhid[t*ldf:][:f], s.up[t*ldf:][:f])
		}
		l.MatMul(g[o.up:], f, kernel.Transposed(s.n2, d), kernel.Plain(p.dhid, ldf), d, f, n, true)
		l.MatMul(p.dn, d, kernel.Rows(p.dhid, ldf), kernel.Packed(k.up, f), n, d, f, false)
		p.normBack(g[o.mlpNorm:], w[o.mlpNorm:], s.x2, s.r2)

		l.MatMul(g[o.out:], d, kernel.Transposed(s.attn, d), kernel.Plain(p.dx, d), d, d, n, true)
		l.MatMul(p.dattn, d, kernel.Rows(p.dx, d), kernel.Packed(k.out, d), n, d, d, false)
		for ri := range p.rows {
			p.attendBack(s, ri)
		}
		l.MatMul(g[o.qkv:], 3*d, kernel.Transposed(s.n1, d), kernel.Plain(p.dqkv, ldq), d, 3*d, n, true)
		l.MatMul(p.dn, d, kernel.Rows(p.dqkv, ldq), kernel.Packed(k.qkv, 3*d), n, d, 3*d, false)
		p.normBack(g[o.attnNorm:], w[o.attnNorm:], s.x1, s.r1)
	}
	for _, r := range p.rows {
		ids := p.ids[r.off : r.off+r.n]
		for t, id := range ids {
			dx := p.dx[(r.off+t)*d : (r.off+t+1)*d]
			l.Axpy(g[lay.tok+int(id)*d:], 1, dx)
			l.Axpy(g[lay.pos+t*d:], 1, dx)
			if t >= 1 {
				l.Axpy(g[lay.prev1+int(ids[t-1])*d:], 1, dx)
			}
			if t >= 2 {
				l.Axpy(g[lay.prev2+int(ids[t-2])*d:], 1, dx)
			}
		}
	}
}

// normBack takes p.dn back through a norm and adds it to p.dx.
func (p *pass) normBack(dg, gain, x, r []float32) {
	d := p.lay.cfg.Dim
	dg, gain = dg[:d], gain[:d]
	for t := range p.tokens {
		normBackRow(p.dx[t*d:(t+1)*d], dg, p.dn[t*d:(t+1)*d], x[t*d:(t+1)*d], gain, r[t])
	}
}

// attendBack turns p.dattn of one row into p.dqkv.
func (p *pass) attendBack(s *layerState, ri int) {
	l, cfg, r := p.level, &p.lay.cfg, p.rows[ri]
	d, ld := cfg.Dim, padded(3*cfg.Dim)
	hd, pad := d/cfg.Heads, kernel.RoundUp(r.n)
	scale := float32(1 / math.Sqrt(float64(hd)))
	for h := range cfg.Heads {
		q := s.qkv[r.off*ld+h*hd:]
		k := s.qkv[r.off*ld+d+h*hd:]
		v := s.qkv[r.off*ld+2*d+h*hd:]
		dq := p.dqkv[r.off*ld+h*hd:]
		dk := p.dqkv[r.off*ld+d+h*hd:]
		dv := p.dqkv[r.off*ld+2*d+h*hd:]
		dout := p.dattn[r.off*d+h*hd:]
		probs := s.probs[s.probOff[ri]+h*r.n*pad:][:r.n*pad]
		ds := p.dscore
		transpose(p.valsT, v, r.n, hd, ld, pad, 1)
		for i0 := 0; i0 < r.n; i0 += queryRows {
			rows := min(queryRows, r.n-i0)
			seen := i0 + rows
			width := kernel.RoundUp(seen)
			band := ds[i0*pad:]
			l.MatMul(band, pad, kernel.Rows(dout[i0*d:], d), kernel.Plain(p.valsT, pad), rows, width, hd, false)
			for i := range rows {
				n := i0 + i + 1
				softmaxBackRow(l, band[i*pad:i*pad+n], probs[(i0+i)*pad:], scale)
				clear(band[i*pad+n : i*pad+width])
			}
			l.MatMul(dq[i0*ld:], ld, kernel.Rows(band, pad), kernel.Plain(k, ld), rows, hd, seen, false)
		}
		// Keys of a band are seen by the queries from the band's first on.
		for j0 := 0; j0 < r.n; j0 += queryRows {
			rows, left := min(queryRows, r.n-j0), r.n-j0
			l.MatMul(dk[j0*ld:], ld, kernel.Transposed(ds[j0*pad+j0:], pad), kernel.Plain(q[j0*ld:], ld), rows, hd, left, false)
			l.MatMul(dv[j0*ld:], ld, kernel.Transposed(probs[j0*pad+j0:], pad), kernel.Plain(dout[j0*d:], d), rows, hd, left, false)
		}
	}
}

// softmaxBackRow turns the gradient of probabilities into that of scores.
func softmaxBackRow(l kernel.Level, dp, probs []float32, scale float32) {
	probs = probs[:len(dp)]
	mean := l.Dot(dp, probs)
	for i, v := range probs {
		dp[i] = float32(v*(dp[i]-mean)) * scale
	}
}
