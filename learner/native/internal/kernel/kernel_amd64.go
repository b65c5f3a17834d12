package kernel

import "golang.org/x/sys/cpu"

// Detect returns the best level of this machine.
func Detect() Level {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA:
		return Portable
	case x.HasAVX512F && x.HasAVX512DQ && x.HasAVX512BW && x.HasAVX512VL:
		return AVX512
	}
	return AVX2
}

// Strides and offsets of the assembly are in bytes.
const f32 = 4

//go:noescape
func tile8x32(c *float32, cRow int, a *float32, aRow, aCol int, b *float32, bPanel, bRow, k, add int)

//go:noescape
func tile8x16(c *float32, cRow int, a *float32, aRow, aCol int, b *float32, bRow, k, add int)

//go:noescape
func tile4x16(c *float32, cRow int, a *float32, aRow, aCol int, b *float32, bRow, k, add int)

//go:noescape
func row64(c *float32, a *float32, aCol int, b *float32, bPanel, bRow, k, add int)

//go:noescape
func row16(c *float32, a *float32, aCol int, b *float32, bRow, k, add int)

//go:noescape
func expSumAVX2(dst, src *float32, n int, shift float32) float32

//go:noescape
func maxAVX2(x *float32, n int) float32

//go:noescape
func dotAVX2(x, y *float32, n int) float32

//go:noescape
func axpyAVX2(y *float32, a float32, x *float32, n int)

//go:noescape
func mixAVX2(dst, w, rows *float32, stride, k int)

//go:noescape
func scaleAVX2(x *float32, n int, a float32)

//go:noescape
func squaredReLUAVX2(y, x *float32, n int)

//go:noescape
func squaredReLUBackAVX2(dy, x *float32, n int)

//go:noescape
func adamAVX2(w, grad, m, v *float32, n int, c *Adam)

func (l Level) matMul(c []float32, stride int, a Matrix, b Right, m, n, k int, add bool) {
	if l == Portable {
		matMulPortable(c, stride, a, b, m, n, k, add)
		return
	}
	tall := 4
	if l == AVX512 {
		tall = 8
	}
	acc := 0
	if add {
		acc = 1
	}
	if m < tall {
		rows(c, stride, a, b, 0, m, n, k, acc)
		return
	}
	aRow, aCol, bRow := a.Row*f32, a.Col*f32, b.Row*f32
	full := m / tall * tall
	for j := 0; j < n; {
		bp := &b.Data[j/PanelWidth*b.Panel]
		if l == AVX512 && j+2*PanelWidth <= n {
			for i := 0; i < full; i += tall {
				tile8x32(&c[i*stride+j], stride*f32, &a.Data[i*a.Row], aRow, aCol, bp, b.Panel*f32, bRow, k, acc)
			}
			if full < m && !add {
				i := m - tall
				tile8x32(&c[i*stride+j], stride*f32, &a.Data[i*a.Row], aRow, aCol, bp, b.Panel*f32, bRow, k, acc)
			}
			j += 2 * PanelWidth
			continue
		}
		tile := tile4x16
		if l == AVX512 {
			tile = tile8x16
		}
		for i := 0; i < full; i += tall {
			tile(&c[i*stride+j], stride*f32, &a.Data[i*a.Row], aRow, aCol, bp, bRow, k, acc)
		}
		if full < m && !add {
			i := m - tall
			tile(&c[i*stride+j], stride*f32, &a.Data[i*a.Row], aRow, aCol, bp, bRow, k, acc)
		}
		j += PanelWidth
	}
	// Without accumulation a last tile may overlap its neighbour: the same
	// numbers are stored twice. With it the rest is done row by row.
	if full < m && add {
		rows(c, stride, a, b, full, m, n, k, acc)
	}
}

// rows computes rows from to to one at a time.
func rows(c []float32, stride int, a Matrix, b Right, from, to, n, k, acc int) {
	aCol, bRow := a.Col*f32, b.Row*f32
	for i := from; i < to; i++ {
		ap := &a.Data[i*a.Row]
		j := 0
		for ; j+4*PanelWidth <= n; j += 4 * PanelWidth {
			row64(&c[i*stride+j], ap, aCol, &b.Data[j/PanelWidth*b.Panel], b.Panel*f32, bRow, k, acc)
		}
		for ; j < n; j += PanelWidth {
			row16(&c[i*stride+j], ap, aCol, &b.Data[j/PanelWidth*b.Panel], bRow, k, acc)
		}
	}
}

func (l Level) expSum(dst, src []float32, shift float32) float32 {
	if l == Portable {
		return expSumPortable(dst, src, shift)
	}
	return expSumAVX2(&dst[0], &src[0], len(src), shift)
}

func (l Level) max(x []float32) float32 {
	if l == Portable || len(x) < 8 {
		return maxPortable(x)
	}
	return max(maxAVX2(&x[0], len(x)&^7), maxPortable(x[len(x)&^7:]))
}

func (l Level) dot(x, y []float32) float32 {
	n := len(x) &^ 7
	if l == Portable || n == 0 {
		return dotPortable(x, y)
	}
	return dotAVX2(&x[0], &y[0], n) + dotPortable(x[n:], y[n:])
}

func (l Level) axpy(y []float32, a float32, x []float32) {
	n := len(x) &^ 7
	if l == Portable || n == 0 {
		axpyPortable(y, a, x)
		return
	}
	axpyAVX2(&y[0], a, &x[0], n)
	axpyPortable(y[n:], a, x[n:])
}

func (l Level) mix(dst, w, rows []float32, stride int) {
	if l == Portable {
		mixPortable(dst, w, rows, stride)
		return
	}
	for j := 0; j < len(dst); j += PanelWidth {
		mixAVX2(&dst[j], &w[0], &rows[j], stride*f32, len(w))
	}
}

func (l Level) scale(x []float32, a float32) {
	n := len(x) &^ 7
	if l == Portable || n == 0 {
		scalePortable(x, a)
		return
	}
	scaleAVX2(&x[0], n, a)
	scalePortable(x[n:], a)
}

func (l Level) squaredReLU(y, x []float32) {
	n := len(x) &^ 7
	if l == Portable || n == 0 {
		squaredReLUPortable(y, x)
		return
	}
	squaredReLUAVX2(&y[0], &x[0], n)
	squaredReLUPortable(y[n:], x[n:])
}

func (l Level) squaredReLUBack(dy, x []float32) {
	n := len(x) &^ 7
	if l == Portable || n == 0 {
		squaredReLUBackPortable(dy, x)
		return
	}
	squaredReLUBackAVX2(&dy[0], &x[0], n)
	squaredReLUBackPortable(dy[n:], x[n:])
}

func (l Level) adam(w, g, m, v []float32, c *Adam) {
	n := len(w) &^ 7
	if l == Portable || n == 0 {
		adamPortable(w, g, m, v, c)
		return
	}
	adamAVX2(&w[0], &g[0], &m[0], &v[0], n, c)
	adamPortable(w[n:], g[n:], m[n:], v[n:], c)
}
