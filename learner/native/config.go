package native

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
)

// Config is the shape of a model and how it is run. The zero value of a field
// means its default.
type Config struct {
	// Dim is the width of the residual stream. Default 64; a multiple of 16.
	Dim int
	// Layers is the number of transformer blocks. Default 2.
	Layers int
	// Heads is the number of attention heads. Default 4; Dim/Heads is a multiple
	// of 16.
	Heads int
	// Hidden is the width of the MLP. Default 4*Dim; a multiple of 16.
	Hidden int
	// Context is the largest number of tokens of a sequence, prompt and
	// completion together. Default 96.
	Context int
	// Tied makes the output head share the token table.
	Tied bool
	// Seed determines the first weights, and the samples of requests that bring
	// no seed of their own.
	Seed int64

	// WeightDecay is AdamW's decoupled decay of the matrices, per unit of
	// learning rate. Default 0.
	WeightDecay float64
	// Beta1 and Beta2 are AdamW's decay rates. Default 0.9 and 0.98.
	Beta1, Beta2 float64

	// Workers is how many goroutines calculate at once, in training and in
	// sampling each. Default GOMAXPROCS. Results do not depend on it.
	Workers int
	// Shards is how many parts the gradient of a step is summed from; it bounds
	// the workers that training can use. Results depend on it in the last bits,
	// so it does not follow the machine. Default 4.
	Shards int
	// Slots is how many sequences are sampled at once; further requests wait.
	// Default 128.
	Slots int
	// Portable forces the plain-Go arithmetic, slower and the same on every
	// machine. By default the best instruction set of the machine is used.
	Portable bool

	// Logger receives events of the model's life. Nil discards them.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Dim = cmp.Or(c.Dim, 64)
	c.Layers = cmp.Or(c.Layers, 2)
	c.Heads = cmp.Or(c.Heads, 4)
	c.Hidden = cmp.Or(c.Hidden, 4*c.Dim)
	c.Context = cmp.Or(c.Context, 96)
	c.Beta1 = cmp.Or(c.Beta1, 0.9)
	c.Beta2 = cmp.Or(c.Beta2, 0.98)
	c.Workers = cmp.Or(c.Workers, runtime.GOMAXPROCS(0))
	c.Shards = cmp.Or(c.Shards, 4)
	c.Slots = cmp.Or(c.Slots, 128)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// ErrConfig is wrapped by every error about a field of [Config].
var ErrConfig = errors.New("invalid model configuration")

// Validate returns an error naming the first field that is out of range.
func (c Config) Validate() error {
	c = c.withDefaults()
	fields := []struct {
		name   string
		value  int
		lo, hi int
	}{
		{"Dim", c.Dim, 16, 4096},
		{"Layers", c.Layers, 1, 64},
		{"Heads", c.Heads, 1, c.Dim / 16},
		{"Hidden", c.Hidden, 16, 16384},
		{"Context", c.Context, 2, 8192},
		{"Workers", c.Workers, 1, 1024},
		{"Shards", c.Shards, 1, 1024},
		{"Slots", c.Slots, 1, 65536},
	}
	for _, f := range fields {
		if f.value < f.lo || f.value > f.hi {
			return fmt.Errorf("%w: %s is %d: must be between %d and %d", ErrConfig, f.name, f.value, f.lo, f.hi)
		}
	}
	switch {
	case c.Dim%16 != 0:
		return fmt.Errorf("%w: Dim is %d: must be a multiple of 16", ErrConfig, c.Dim)
	case c.Hidden%16 != 0:
		return fmt.Errorf("%w: Hidden is %d: must be a multiple of 16", ErrConfig, c.Hidden)
	case c.Dim%c.Heads != 0 || c.Dim/c.Heads%16 != 0:
		return fmt.Errorf("%w: Heads is %d: Dim/Heads must be a multiple of 16, and Dim is %d", ErrConfig, c.Heads, c.Dim)
	case !(c.WeightDecay >= 0 && c.WeightDecay < 1):
		return fmt.Errorf("%w: WeightDecay is %v: must be in [0, 1)", ErrConfig, c.WeightDecay)
	case !(c.Beta1 > 0 && c.Beta1 < 1 && c.Beta2 > 0 && c.Beta2 < 1):
		return fmt.Errorf("%w: Beta1, Beta2 are %v, %v: must be in (0, 1)", ErrConfig, c.Beta1, c.Beta2)
	}
	return nil
}
