package kernel

// ExpSum stores e^(src[i]-shift) in dst and returns their sum. dst and src may
// be the same slice.
func (l Level) ExpSum(dst, src []float32, shift float32) float32 {
	if len(src) == 0 {
		return 0
	}
	_ = dst[len(src)-1]
	return l.expSum(dst, src, shift)
}

// Max returns the largest element, or minus infinity for none.
func (l Level) Max(x []float32) float32 { return l.max(x) }

// Dot returns the scalar product of x and the first len(x) elements of y.
func (l Level) Dot(x, y []float32) float32 {
	if len(x) == 0 {
		return 0
	}
	_ = y[len(x)-1]
	return l.dot(x, y)
}

// Axpy adds a·x to the first len(x) elements of y.
func (l Level) Axpy(y []float32, a float32, x []float32) {
	if len(x) == 0 {
		return
	}
	_ = y[len(x)-1]
	l.axpy(y, a, x)
}

// Mix stores the sum of rows weighed by w in dst. Rows are stride apart and as
// long as dst, a multiple of [PanelWidth]. It is a product with one row, but adds
// in an order of its own: faster for few columns, and different in the last bits.
func (l Level) Mix(dst, w, rows []float32, stride int) {
	if len(dst) == 0 || len(w) == 0 {
		clear(dst)
		return
	}
	checkMatMul(dst, len(dst), Rows(w, len(w)), Plain(rows, stride), 1, len(dst), len(w))
	l.mix(dst, w, rows, stride)
}

// Scale multiplies every element of x by a.
func (l Level) Scale(x []float32, a float32) {
	if len(x) > 0 {
		l.scale(x, a)
	}
}

// SquaredReLU stores max(x, 0)² in the first len(x) elements of y, which may be
// x itself.
func (l Level) SquaredReLU(y, x []float32) {
	if len(x) == 0 {
		return
	}
	_ = y[len(x)-1]
	l.squaredReLU(y, x)
}

// SquaredReLUBack multiplies the first len(x) elements of dy by the derivative
// of [Level.SquaredReLU] at x.
func (l Level) SquaredReLUBack(dy, x []float32) {
	if len(x) == 0 {
		return
	}
	_ = dy[len(x)-1]
	l.squaredReLUBack(dy, x)
}

// Adam holds the numbers of one optimiser step. With bias corrections c1 and c2
// folded in, Rate is lr·sqrt(c2)/c1 and Epsilon is eps·sqrt(c2).
type Adam struct {
	GradScale float32 // factor on every gradient (clipping)
	Beta1     float32 // decay of the first moment
	Beta2     float32 // decay of the second moment
	Rate      float32 // step size with bias corrections
	Epsilon   float32 // added to the root of the second moment
	Keep      float32 // what decoupled weight decay leaves of a weight
}

// Step applies one AdamW step to weights w with gradients g and moments m, v.
func (l Level) Step(w, g, m, v []float32, c *Adam) {
	if len(w) == 0 {
		return
	}
	_, _, _ = g[len(w)-1], m[len(w)-1], v[len(w)-1]
	l.adam(w, g[:len(w)], m, v, c)
}
