package kernel

import "math"

func matMulPortable(c []float32, stride int, a Matrix, b Right, m, n, k int, add bool) {
	for j := 0; j < n; j += PanelWidth {
		panel := b.Data[j/PanelWidth*b.Panel:]
		for i := range m {
			to := (*[PanelWidth]float32)(c[i*stride+j:])
			if !add {
				clear(to[:])
			}
			addRow(to, a.Data[i*a.Row:], a.Col, panel, b.Row, k)
		}
	}
}

// addRow adds one row of a product to s. Every row goes through it, so that a
// row comes out the same whatever its neighbours, also where compilers fuse
// multiplications and additions. Taking four inner steps at a time saves most
// of the loads and stores of the sums, which is what limits scalar code.
func addRow(s *[PanelWidth]float32, a []float32, aCol int, b []float32, bRow, k int) {
	for ; k >= 4; k -= 4 {
		a0, a1, a2, a3 := a[0], a[aCol], a[2*aCol], a[3*aCol]
		b0 := (*[PanelWidth]float32)(b)
		b1 := (*[PanelWidth]float32)(b[bRow:])
		b2 := (*[PanelWidth]float32)(b[2*bRow:])
		b3 := (*[PanelWidth]float32)(b[3*bRow:])
		for j := 0; j < PanelWidth; j += 4 {
			s, b0, b1, b2, b3 := (*[4]float32)(s[j:]), (*[4]float32)(b0[j:]), (*[4]float32)(b1[j:]), (*[4]float32)(b2[j:]), (*[4]float32)(b3[j:])
			s[0] += (a0*b0[0] + a1*b1[0]) + (a2*b2[0] + a3*b3[0])
			s[1] += (a0*b0[1] + a1*b1[1]) + (a2*b2[1] + a3*b3[1])
			s[2] += (a0*b0[2] + a1*b1[2]) + (a2*b2[2] + a3*b3[2])
			s[3] += (a0*b0[3] + a1*b1[3]) + (a2*b2[3] + a3*b3[3])
		}
		if k == 4 {
			return
		}
		a, b = a[4*aCol:], b[4*bRow:]
	}
	for p := range k {
		a0, b0 := a[p*aCol], (*[PanelWidth]float32)(b[p*bRow:])
		for j := range s {
			s[j] += a0 * b0[j]
		}
	}
}

const (
	expMin  = -87.0
	expMax  = 88.0
	log2e   = 1.44269504088896341
	ln2High = 0.693359375
	ln2Low  = -2.12194440e-4
	expC0   = 1.9875691500e-4
	expC1   = 1.3981999507e-3
	expC2   = 8.3334519073e-3
	expC3   = 4.1665795894e-2
	expC4   = 1.6666665459e-1
	expC5   = 5.0000001201e-1
)

// The explicit float32 conversions below keep results from depending on what a
// compiler fuses.

// exp32 is the polynomial of the assembly, good to about one unit in the last
// place; arguments below -87 give e^-87.
func exp32(x float32) float32 {
	x = min(max(x, expMin), expMax)
	n := float32(math.RoundToEven(float64(float32(x * log2e))))
	r := x - float32(n*ln2High)
	r -= float32(n * ln2Low)
	p := float32(float32(expC0)*r) + expC1
	p = float32(p*r) + expC2
	p = float32(p*r) + expC3
	p = float32(p*r) + expC4
	p = float32(p*r) + expC5
	p = float32(p*float32(r*r)) + r + 1
	return p * math.Float32frombits(uint32(int32(n)+127)<<23)
}

func expSumPortable(dst, src []float32, shift float32) float32 {
	var sum float32
	for i, v := range src {
		e := exp32(v - shift)
		dst[i] = e
		sum += e
	}
	return sum
}

func maxPortable(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

func dotPortable(x, y []float32) float32 {
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += float32(x[i] * y[i])
		s1 += float32(x[i+1] * y[i+1])
		s2 += float32(x[i+2] * y[i+2])
		s3 += float32(x[i+3] * y[i+3])
	}
	for ; i < len(x); i++ {
		s0 += float32(x[i] * y[i])
	}
	return (s0 + s1) + (s2 + s3)
}

func axpyPortable(y []float32, a float32, x []float32) {
	for i, v := range x {
		y[i] += float32(a * v)
	}
}

func squaredReLUPortable(y, x []float32) {
	for i, v := range x {
		v = max(v, 0)
		y[i] = v * v
	}
}

func squaredReLUBackPortable(dy, x []float32) {
	for i, v := range x {
		dy[i] *= 2 * max(v, 0)
	}
}

func mixPortable(dst, w, rows []float32, stride int) {
	clear(dst)
	for j := 0; j < len(dst); j += PanelWidth {
		addRow((*[PanelWidth]float32)(dst[j:]), w, 1, rows[j:], stride, len(w))
	}
}

func scalePortable(x []float32, a float32) {
	for i := range x {
		x[i] *= a
	}
}

func adamPortable(w, g, m, v []float32, c *Adam) {
	for i, gi := range g {
		gi *= c.GradScale
		mi := float32(c.Beta1*m[i]) + float32((1-c.Beta1)*gi)
		vi := float32(c.Beta2*v[i]) + float32((1-c.Beta2)*float32(gi*gi))
		m[i], v[i] = mi, vi
		den := float32(math.Sqrt(float64(vi))) + c.Epsilon
		w[i] = float32(c.Keep*w[i]) - float32(c.Rate*mi)/den
	}
}
