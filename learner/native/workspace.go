package native

import (
	"math"

	"agentlightning/learner/native/internal/kernel"
)

const normEpsilon = 1e-5

// padded spaces the rows of wide matrices by an odd number of cache lines, so
// that a column of them does not fall into a few sets of the cache.
func padded(n int) int { return n + kernel.PanelWidth }

// grow returns a slice of n numbers, reusing buf when it is large enough. The
// contents are undefined.
func grow(buf []float32, n int) []float32 {
	if cap(buf) < n {
		return make([]float32, n+n/4)[:n]
	}
	return buf[:n]
}

// normRow stores x·g/rms(x) in y and returns 1/rms(x).
func normRow(l kernel.Level, y, x, g []float32) float32 {
	r := float32(1 / math.Sqrt(float64(l.Dot(x, x))/float64(len(x))+normEpsilon))
	g, y = g[:len(x)], y[:len(x)]
	for i, v := range x {
		y[i] = float32(v*r) * g[i]
	}
	return r
}

// normBackRow adds the gradient of normRow to dx and dg. x, g and r are those
// of the forward pass, dy the gradient of its output.
func normBackRow(dx, dg, dy, x, g []float32, r float32) {
	n := len(x)
	dx, dg, dy, g = dx[:n], dg[:n], dy[:n], g[:n]
	var s0, s1 float32
	for i := 0; i+1 < n; i += 2 {
		s0 += float32(float32(dy[i]*g[i]) * x[i])
		s1 += float32(float32(dy[i+1]*g[i+1]) * x[i+1])
	}
	c := float32((s0+s1)*float32(float32(r*r)*r)) / float32(n)
	for i, v := range x {
		d := dy[i]
		dg[i] += float32(float32(d*v) * r)
		dx[i] += float32(float32(d*g[i])*r) - float32(v*c)
	}
}
