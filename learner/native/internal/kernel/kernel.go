// Package kernel holds the float32 arithmetic of the built-in model: matrix
// products and the few vector operations that would otherwise dominate a
// training step of a small network.
//
// Everything hangs off a [Level], the instruction set in use. [Detect] picks
// the best one of the machine; [Portable] is plain Go and works everywhere.
//
// A row of a product depends on nothing but its own inputs: every element is
// one chain of multiply-adds in the order of the inner dimension, whichever
// tile it falls into. Sampling relies on it, so that the tokens of a seed do
// not change with the other requests that happen to be in flight.
package kernel

import "fmt"

// Level is an instruction set that the kernels can use.
type Level int

const (
	// Portable is plain Go.
	Portable Level = iota
	// AVX2 needs AVX2 and FMA.
	AVX2
	// AVX512 needs AVX-512 F, DQ, BW and VL beside AVX2 and FMA.
	AVX512
)

// String returns the name of the level as it is written in logs.
func (l Level) String() string {
	switch l {
	case Portable:
		return "portable"
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	}
	return fmt.Sprintf("level(%d)", int(l))
}

// PanelWidth is the number of columns of one panel of a [Panels]; the number of
// columns of every product must be a multiple of it.
const PanelWidth = 16

// RoundUp returns n rounded up to a multiple of [PanelWidth].
func RoundUp(n int) int { return (n + PanelWidth - 1) &^ (PanelWidth - 1) }

// Matrix is a view of float32 numbers: element (i, j) is Data[i*Row+j*Col].
type Matrix struct {
	Data     []float32
	Row, Col int
}

// Rows returns the view of a row-major matrix whose rows are stride apart.
func Rows(data []float32, stride int) Matrix { return Matrix{Data: data, Row: stride, Col: 1} }

// Transposed returns the view of the transpose of a row-major matrix whose rows
// are stride apart.
func Transposed(data []float32, stride int) Matrix { return Matrix{Data: data, Row: 1, Col: stride} }

// Right is the right operand of a product: k rows of panels of [PanelWidth]
// columns. Within a panel consecutive rows are Row apart; panel j begins at
// Data[j*Panel].
type Right struct {
	Data       []float32
	Row, Panel int
}

// Plain returns a right operand that is an ordinary row-major matrix whose rows
// are stride apart. Its columns must be padded to [PanelWidth].
func Plain(data []float32, stride int) Right {
	return Right{Data: data, Row: stride, Panel: PanelWidth}
}

// Packed returns the right operand of k rows that [Pack] or [PackTransposed]
// wrote.
func Packed(data []float32, k int) Right {
	return Right{Data: data, Row: PanelWidth, Panel: k * PanelWidth}
}

// PackedLen is the length of the buffer that k rows and n columns pack into.
func PackedLen(k, n int) int { return k * RoundUp(n) }

// Pack writes the row-major k×n matrix src panel by panel into dst, which holds
// [PackedLen] numbers. Missing columns of the last panel are zero.
func Pack(dst, src []float32, k, n, stride int) {
	for j0 := 0; j0 < n; j0 += PanelWidth {
		w := min(PanelWidth, n-j0)
		panel := dst[j0*k : (j0+PanelWidth)*k]
		for p := range k {
			to := panel[p*PanelWidth : (p+1)*PanelWidth]
			copy(to, src[p*stride+j0:p*stride+j0+w])
			clear(to[w:])
		}
	}
}

// PackTransposed packs the transpose of the row-major n×k matrix src, as [Pack]
// would pack the transpose itself.
func PackTransposed(dst, src []float32, k, n, stride int) {
	for j0 := 0; j0 < n; j0 += PanelWidth {
		w := min(PanelWidth, n-j0)
		panel := dst[j0*k : (j0+PanelWidth)*k]
		if w < PanelWidth {
			clear(panel)
		}
		for j := range w {
			row := src[(j0+j)*stride : (j0+j)*stride+k]
			to := panel[j:]
			for p, v := range row {
				to[p*PanelWidth] = v
			}
		}
	}
}

// MatMul computes c = a·b, or c += a·b when add is set, for an m×k matrix a and
// a k×n matrix b with k of at least 1. Rows of c are stride apart; n is a
// multiple of [PanelWidth].
func (l Level) MatMul(c []float32, stride int, a Matrix, b Right, m, n, k int, add bool) {
	if m <= 0 || n <= 0 {
		return
	}
	checkMatMul(c, stride, a, b, m, n, k)
	l.matMul(c, stride, a, b, m, n, k, add)
}

// checkMatMul keeps the assembly inside the slices: it does no bounds checks.
func checkMatMul(c []float32, stride int, a Matrix, b Right, m, n, k int) {
	if n%PanelWidth != 0 || k < 1 {
		//nolint:forbidigo // a broken invariant of the model; the assembly would write out of bounds
		panic(fmt.Sprintf("kernel: product of inner size %d and %d columns: want at least 1 and a multiple of %d", k, n, PanelWidth))
	}
	_ = c[(m-1)*stride+n-1]
	_ = a.Data[(m-1)*a.Row+(k-1)*a.Col]
	_ = b.Data[(n/PanelWidth-1)*b.Panel+(k-1)*b.Row+PanelWidth-1]
}
