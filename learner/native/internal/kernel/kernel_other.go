//go:build !amd64

package kernel

// Detect returns the best level of this machine.
func Detect() Level { return Portable }

func (Level) matMul(c []float32, stride int, a Matrix, b Right, m, n, k int, add bool) {
	matMulPortable(c, stride, a, b, m, n, k, add)
}

func (Level) expSum(dst, src []float32, shift float32) float32 {
	return expSumPortable(dst, src, shift)
}

func (Level) max(x []float32) float32 { return maxPortable(x) }

func (Level) dot(x, y []float32) float32 { return dotPortable(x, y) }

func (Level) axpy(y []float32, a float32, x []float32) { axpyPortable(y, a, x) }

func (Level) mix(dst, w, rows []float32, stride int) { mixPortable(dst, w, rows, stride) }

func (Level) scale(x []float32, a float32) { scalePortable(x, a) }

func (Level) squaredReLU(y, x []float32) { squaredReLUPortable(y, x) }

func (Level) squaredReLUBack(dy, x []float32) { squaredReLUBackPortable(dy, x) }

func (Level) adam(w, g, m, v []float32, c *Adam) { adamPortable(w, g, m, v, c) }
