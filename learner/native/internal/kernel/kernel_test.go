package kernel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"agentlightning/learner/native/internal/kernel"
)

// levels are those this machine can run; the portable one always.
func levels() []kernel.Level {
	var out []kernel.Level
	for l := kernel.Portable; l <= kernel.Detect(); l++ {
		out = append(out, l)
	}
	return out
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func TestMatMulAgreesWithNaive(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, l := range levels() {
		for _, m := range []int{1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 31} {
			for _, n := range []int{1, 5, 16, 17, 32, 48, 70, 96} {
				for _, k := range []int{1, 2, 3, 16, 33, 64} {
					checkProduct(t, r, l, m, n, k)
				}
			}
		}
	}
}

func checkProduct(t *testing.T, r *rand.Rand, l kernel.Level, m, n, k int) {
	t.Helper()
	np := kernel.RoundUp(n)
	a, b := random(r, m*(k+3)), random(r, k*(n+5))
	want := make([]float64, m*n)
	for i := range m {
		for j := range n {
			for p := range k {
				want[i*n+j] += float64(a[i*(k+3)+p]) * float64(b[p*(n+5)+j])
			}
		}
	}
	at := make([]float32, (k+1)*(m+2))
	for i := range m {
		for p := range k {
			at[p*(m+2)+i] = a[i*(k+3)+p]
		}
	}
	bt := make([]float32, n*(k+1))
	plain := make([]float32, k*(np+4))
	for p := range k {
		for j := range n {
			bt[j*(k+1)+p] = b[p*(n+5)+j]
			plain[p*(np+4)+j] = b[p*(n+5)+j]
		}
	}
	packed := slices.Repeat([]float32{99}, kernel.PackedLen(k, n))
	kernel.Pack(packed, b, k, n, n+5)
	packedT := slices.Repeat([]float32{99}, kernel.PackedLen(k, n))
	kernel.PackTransposed(packedT, bt, k, n, k+1)

	lefts := map[string]kernel.Matrix{"rows": kernel.Rows(a, k+3), "transposed": kernel.Transposed(at, m+2)}
	rights := map[string]kernel.Right{
		"plain": kernel.Plain(plain, np+4), "packed": kernel.Packed(packed, k), "packed transposed": kernel.Packed(packedT, k),
	}
	for ln, left := range lefts {
		for rn, right := range rights {
			for _, add := range []bool{false, true} {
				c := slices.Repeat([]float32{0.5}, m*(np+1))
				l.MatMul(c, np+1, left, right, m, np, k, add)
				for i := range m {
					for j := range n {
						w := want[i*n+j]
						if add {
							w += 0.5
						}
						if got := c[i*(np+1)+j]; math.Abs(float64(got)-w) > 1e-4 {
							t.Fatalf("%v %s × %s, m=%d n=%d k=%d add=%v: element (%d,%d) = %v, want %v", l, ln, rn, m, n, k, add, i, j, got, w)
						}
					}
					if c[i*(np+1)+np] != 0.5 {
						t.Fatalf("%v m=%d n=%d k=%d: wrote beyond the row", l, m, n, k)
					}
				}
			}
		}
	}
}

// A row must come out the same to the last bit whatever rows it is batched with.
func TestMatMulIsBatchInvariant(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	const n, k = 112, 64
	a, b := random(r, 40*k), random(r, n*k)
	for _, l := range levels() {
		all := make([]float32, 40*n)
		l.MatMul(all, n, kernel.Rows(a, k), kernel.Plain(b, n), 40, n, k, false)
		for m := 1; m <= 20; m++ {
			for from := range 20 {
				part := make([]float32, m*n)
				l.MatMul(part, n, kernel.Rows(a[from*k:], k), kernel.Plain(b, n), m, n, k, false)
				if !slices.Equal(part, all[from*n:(from+m)*n]) {
					t.Fatalf("%v: rows %d to %d differ from the same rows of a larger batch", l, from, from+m)
				}
			}
		}
	}
}

func TestVectorOperations(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for _, l := range levels() {
		for _, n := range []int{0, 1, 2, 7, 8, 9, 15, 16, 17, 23, 24, 64, 100, 385} {
			x, y := random(r, n), random(r, n)
			for i := range x {
				x[i] *= 5
			}
			wantMax, wantDot := math.Inf(-1), 0.0
			for i := range x {
				wantMax = math.Max(wantMax, float64(x[i]))
				wantDot += float64(x[i]) * float64(y[i])
			}
			if got := l.Max(x); float64(got) != wantMax {
				t.Errorf("%v Max of %d = %v, want %v", l, n, got, wantMax)
			}
			if got := l.Dot(x, y); math.Abs(float64(got)-wantDot) > 1e-3 {
				t.Errorf("%v Dot of %d = %v, want %v", l, n, got, wantDot)
			}
			z := slices.Clone(y)
			l.Axpy(z, 0.25, x)
			for i := range z {
				if want := y[i] + 0.25*x[i]; math.Abs(float64(z[i]-want)) > 1e-5 {
					t.Errorf("%v Axpy of %d: element %d = %v, want %v", l, n, i, z[i], want)
				}
			}
			scaled := slices.Clone(x)
			l.Scale(scaled, -3)
			for i := range x {
				if scaled[i] != -3*x[i] {
					t.Errorf("%v Scale of %d: element %d = %v, want %v", l, n, i, scaled[i], -3*x[i])
				}
			}
			relu, back := make([]float32, n), slices.Clone(y)
			l.SquaredReLU(relu, x)
			l.SquaredReLUBack(back, x)
			for i := range x {
				v := max(x[i], 0)
				if relu[i] != v*v || back[i] != y[i]*(2*v) {
					t.Errorf("%v SquaredReLU, Back of %d: at %v, %v gave %v, %v", l, n, x[i], y[i], relu[i], back[i])
				}
			}
			dst := slices.Repeat([]float32{7}, n+1)
			got, want := l.ExpSum(dst[:n], x, 1.5), 0.0
			for i := range x {
				e := math.Exp(float64(x[i] - 1.5))
				want += e
				if math.Abs(float64(dst[i])-e) > 3e-7*e {
					t.Errorf("%v ExpSum of %d: e^%v = %v, want %v", l, n, x[i]-1.5, dst[i], e)
				}
			}
			if math.Abs(float64(got)-want) > 1e-5*want {
				t.Errorf("%v ExpSum of %d = %v, want %v", l, n, got, want)
			}
			if dst[n] != 7 {
				t.Errorf("%v ExpSum of %d wrote beyond the end", l, n)
			}
		}
	}
}

func TestMix(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10))
	for _, l := range levels() {
		for _, k := range []int{0, 1, 3, 4, 5, 8, 31} {
			for _, n := range []int{0, 16, 48} {
				const stride = 51
				w, rows := random(r, k), random(r, max(k, 1)*stride)
				dst := slices.Repeat([]float32{7}, n+1)
				l.Mix(dst[:n], w, rows, stride)
				for j := range n {
					want := 0.0
					for p := range k {
						want += float64(w[p]) * float64(rows[p*stride+j])
					}
					if math.Abs(float64(dst[j])-want) > 1e-5 {
						t.Errorf("%v Mix of %d rows of %d: column %d = %v, want %v", l, k, n, j, dst[j], want)
					}
				}
				if dst[n] != 7 {
					t.Errorf("%v Mix of %d rows of %d wrote beyond the end", l, k, n)
				}
			}
		}
	}
}

func TestExpSumOfExtremes(t *testing.T) {
	t.Parallel()
	for _, l := range levels() {
		x := []float32{-1e30, -200, -88, 0, 80}
		l.ExpSum(x, slices.Clone(x), 0)
		for i := range 3 {
			if x[i] < 0 || x[i] > 2e-38 {
				t.Errorf("%v: element %d = %v, want about 0", l, i, x[i])
			}
		}
		if x[3] != 1 || math.IsInf(float64(x[4]), 0) {
			t.Errorf("%v: e^0, e^80 = %v, %v", l, x[3], x[4])
		}
	}
}

func TestStepAgreesWithDefinition(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for _, l := range levels() {
		const n = 29
		w, g, m, v := random(r, n), random(r, n), random(r, n), random(r, n)
		for i := range v {
			v[i] *= v[i]
		}
		c := kernel.Adam{GradScale: 0.5, Beta1: 0.9, Beta2: 0.99, Rate: 0.01, Epsilon: 1e-8, Keep: 0.999}
		w0, m0, v0 := slices.Clone(w), slices.Clone(m), slices.Clone(v)
		l.Step(w, g, m, v, &c)
		for i := range w {
			gi := 0.5 * float64(g[i])
			mi := 0.9*float64(m0[i]) + 0.1*gi
			vi := 0.99*float64(v0[i]) + 0.01*gi*gi
			wi := 0.999*float64(w0[i]) - 0.01*mi/(math.Sqrt(vi)+1e-8)
			if math.Abs(float64(w[i])-wi) > 1e-6 || math.Abs(float64(m[i])-mi) > 1e-6 || math.Abs(float64(v[i])-vi) > 1e-6 {
				t.Errorf("%v element %d: w, m, v = %v, %v, %v, want %v, %v, %v", l, i, w[i], m[i], v[i], wi, mi, vi)
			}
		}
	}
}

func BenchmarkGEMM(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	shapes := []struct{ m, n, k int }{{256, 192, 64}, {256, 256, 64}, {256, 64, 256}, {512, 512, 512}, {50, 64, 16}, {1, 64, 64}}
	for _, l := range levels() {
		for _, s := range shapes {
			b.Run(fmt.Sprintf("%v/%dx%dx%d", l, s.m, s.n, s.k), func(b *testing.B) {
				a, w, c := random(r, s.m*s.k), random(r, s.k*s.n), make([]float32, s.m*s.n)
				p := make([]float32, kernel.PackedLen(s.k, s.n))
				kernel.Pack(p, w, s.k, s.n, s.n)
				for b.Loop() {
					l.MatMul(c, s.n, kernel.Rows(a, s.k), kernel.Packed(p, s.k), s.m, s.n, s.k, false)
				}
				b.ReportMetric(2*float64(s.m)*float64(s.n)*float64(s.k)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
			})
		}
	}
}
