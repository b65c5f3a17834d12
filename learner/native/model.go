package native

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"agentlightning/learner"
	"agentlightning/learner/native/internal/kernel"
)

// ErrClosed is returned by methods of a model after [Model.Close].
var ErrClosed = errors.New("model is closed")

// Model is a small decoder-only transformer that can be sampled from and
// trained at the same time. It implements [learner.Learner]. Sampling reads a
// snapshot of the weights that every successful update replaces; a sequence in
// flight goes on with the new ones. All methods are safe for concurrent use.
type Model struct {
	cfg   Config
	tok   *Tokenizer
	lay   *layout
	level kernel.Level

	current atomic.Pointer[snapshot]
	engine  *engine
	seeds   seedSource

	mu      sync.Mutex // serialises updates, Save and Load; guards what follows
	train   trainer
	version int64
	serial  int64
	closed  bool
}

var _ learner.Learner = (*Model)(nil)

// snapshot is an immutable copy of the weights, packed for sampling.
type snapshot struct {
	weights []float32
	pack    *forwardPack
	version int64 // updates, as Model.Version counts them
	serial  int64 // unique to the snapshot within the process
}

// New returns a model with random weights over the tokens of tok. It owns one
// goroutine, which [Model.Close] stops.
func New(cfg Config, tok *Tokenizer) (*Model, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	m := &Model{cfg: cfg, tok: tok, lay: newLayout(cfg, tok.Size()), level: kernel.Detect()}
	if cfg.Portable {
		m.level = kernel.Portable
	}
	m.seeds.rng = rand.New(rand.NewPCG(uint64(cfg.Seed), 0xd1342543de82ef95))
	m.train = newTrainer(m.lay, m.level)
	m.lay.init(m.train.weights, cfg.Seed)
	m.publish()
	m.engine = startEngine(m)
	cfg.Logger.Info("built-in model ready", "parameters", m.Parameters(), "vocabulary", tok.Size(),
		"context", cfg.Context, "arithmetic", m.level.String())
	return m, nil
}

// publish makes the trainer's weights the ones that are sampled from.
func (m *Model) publish() {
	m.serial++
	s := &snapshot{weights: slices.Clone(m.train.weights), pack: newForwardPack(m.lay), version: m.version, serial: m.serial}
	s.pack.fill(m.lay, s.weights)
	m.current.Store(s)
}

// Config returns the configuration with its defaults filled in.
func (m *Model) Config() Config { return m.cfg }

// Tokenizer returns the tokenizer that the model was made with.
func (m *Model) Tokenizer() *Tokenizer { return m.tok }

// Parameters is the number of trainable numbers.
func (m *Model) Parameters() int {
	n := m.lay.size
	for _, t := range m.lay.tensors {
		if m.lay.isVocabTable(t) {
			n -= (m.lay.vocabPad - m.lay.vocab) * t.shape[1]
		}
	}
	return n
}

// Version counts the updates that are visible to sampling.
func (m *Model) Version() int64 { return m.current.Load().version }

// Close ends all requests in flight with [ErrClosed] and waits for the model's
// goroutine. It may be called more than once.
func (m *Model) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.engine.stop()
	return nil
}

// seedSource hands out seeds to requests that bring none.
type seedSource struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (s *seedSource) next() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.Int64()
}
