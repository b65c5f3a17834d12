package native

import (
	"fmt"
	"math"
	"math/rand/v2"

	"agentlightning/learner/native/internal/kernel"
)

// tensor is one named block of the flat parameter vector.
type tensor struct {
	name  string
	shape []int
	off   int
	std   float64 // spread of the first values; 0 means they are all 1
}

func (t tensor) size() int {
	n := 1
	for _, d := range t.shape {
		n *= d
	}
	return n
}

// layerOffsets say where the parameters of a block begin.
type layerOffsets struct {
	qkv, out, up, down int
	attnNorm, mlpNorm  int
}

// layout maps a model's tensors onto one flat vector. Weights, gradients and
// optimiser moments all have this layout. Matrices come first: the first decay
// numbers are the ones that weight decay applies to.
type layout struct {
	cfg      Config
	vocab    int // tokens
	vocabPad int // rows of the vocabulary tables, for whole panels
	tensors  []tensor
	size     int
	decay    int

	layers []layerOffsets
	tok    int // token table
	prev1  int // table of the token before
	prev2  int // table of the token before that
	pos    int
	head   int
	final  int // gain of the last norm
}

func newLayout(cfg Config, vocab int) *layout {
	l := &layout{cfg: cfg, vocab: vocab, vocabPad: kernel.RoundUp(vocab)}
	add := func(name string, std float64, shape ...int) int {
		t := tensor{name: name, shape: shape, off: l.size, std: std}
		l.tensors = append(l.tensors, t)
		l.size += t.size()
		return t.off
	}
	d, f := cfg.Dim, cfg.Hidden
	// Blocks that begin with small weights, and next to nothing on their way back
	// into the residual stream, learn the fastest: two-digit addition in 250
	// steps reached 93 to 96 % on four seeds, and 32 to 80 % with the usual ones.
	in, table := 0.5/math.Sqrt(float64(d)), 0.04
	const back = 1e-3
	l.layers = make([]layerOffsets, cfg.Layers)
	for i := range l.layers {
		o, name := &l.layers[i], fmt.Sprintf("layers.%d.", i)
		o.qkv = add(name+"attention.qkv", in, d, 3*d)
		o.out = add(name+"attention.out", back, d, d)
		o.up = add(name+"mlp.up", in, d, f)
		o.down = add(name+"mlp.down", back, f, d)
	}
	if !cfg.Tied {
		l.head = add("head", 0.02, l.vocabPad, d)
	}
	l.decay = l.size
	l.tok = add("embedding.token", table, l.vocabPad, d)
	l.prev1 = add("embedding.previous", table, l.vocabPad, d)
	l.prev2 = add("embedding.previous2", table, l.vocabPad, d)
	l.pos = add("embedding.position", table, cfg.Context, d)
	if cfg.Tied {
		l.head = l.tok
	}
	for i := range l.layers {
		o, name := &l.layers[i], fmt.Sprintf("layers.%d.", i)
		o.attnNorm = add(name+"attention.norm", 0, d)
		o.mlpNorm = add(name+"mlp.norm", 0, d)
	}
	l.final = add("norm", 0, d)
	return l
}

// isVocabTable reports whether t has one row a token, padded.
func (l *layout) isVocabTable(t tensor) bool {
	return t.off == l.tok || t.off == l.prev1 || t.off == l.prev2 || t.off == l.head
}

// init fills w with the first weights of a seed. Rows that pad the vocabulary
// stay zero.
func (l *layout) init(w []float32, seed int64) {
	r := rand.New(rand.NewPCG(uint64(seed), 0x9e3779b97f4a7c15))
	for _, t := range l.tensors {
		vals := w[t.off : t.off+t.size()]
		if l.isVocabTable(t) {
			vals = vals[:l.vocab*t.shape[1]]
		}
		for i := range vals {
			if t.std == 0 {
				vals[i] = 1
			} else {
				vals[i] = float32(r.NormFloat64() * t.std)
			}
		}
	}
}

// forwardPack holds the matrices of a model in the order in which products read
// them.
type forwardPack struct {
	layers []struct{ qkv, out, up, down []float32 }
	head   []float32
}

func newForwardPack(l *layout) *forwardPack {
	d, f := l.cfg.Dim, l.cfg.Hidden
	p := &forwardPack{layers: make([]struct{ qkv, out, up, down []float32 }, l.cfg.Layers)}
	for i := range p.layers {
		k := &p.layers[i]
		k.qkv = make([]float32, kernel.PackedLen(d, 3*d))
		k.out = make([]float32, kernel.PackedLen(d, d))
		k.up = make([]float32, kernel.PackedLen(d, f))
		k.down = make([]float32, kernel.PackedLen(f, d))
	}
	p.head = make([]float32, kernel.PackedLen(d, l.vocabPad))
	return p
}

func (p *forwardPack) fill(l *layout, w []float32) {
	d, f := l.cfg.Dim, l.cfg.Hidden
	for i, o := range l.layers {
		k := &p.layers[i]
		kernel.Pack(k.qkv, w[o.qkv:], d, 3*d, 3*d)
		kernel.Pack(k.out, w[o.out:], d, d, d)
		kernel.Pack(k.up, w[o.up:], d, f, f)
		kernel.Pack(k.down, w[o.down:], f, d, d)
	}
	kernel.PackTransposed(p.head, w[l.head:], d, l.vocabPad, d)
}

// backwardPack holds the transposes that gradients of activations need.
type backwardPack struct {
	layers []struct{ qkv, out, up, down []float32 }
	head   []float32
}

func newBackwardPack(l *layout) *backwardPack {
	d, f := l.cfg.Dim, l.cfg.Hidden
	p := &backwardPack{layers: make([]struct{ qkv, out, up, down []float32 }, l.cfg.Layers)}
	for i := range p.layers {
		k := &p.layers[i]
		k.qkv = make([]float32, kernel.PackedLen(3*d, d))
		k.out = make([]float32, kernel.PackedLen(d, d))
		k.up = make([]float32, kernel.PackedLen(f, d))
		k.down = make([]float32, kernel.PackedLen(d, f))
	}
	p.head = make([]float32, kernel.PackedLen(l.vocabPad, d))
	return p
}

func (p *backwardPack) fill(l *layout, w []float32) {
	d, f := l.cfg.Dim, l.cfg.Hidden
	for i, o := range l.layers {
		k := &p.layers[i]
		kernel.PackTransposed(k.qkv, w[o.qkv:], 3*d, d, 3*d)
		kernel.PackTransposed(k.out, w[o.out:], d, d, d)
		kernel.PackTransposed(k.up, w[o.up:], f, d, f)
		kernel.PackTransposed(k.down, w[o.down:], d, f, d)
	}
	kernel.Pack(p.head, w[l.head:], l.vocabPad, d, d)
}
