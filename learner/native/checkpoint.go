package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// The files of a checkpoint. The first holds the weights and, in its metadata,
// all that is needed to build the model; the second the optimiser's moments.
const (
	weightsFile   = "model.safetensors"
	optimizerFile = "optimizer.safetensors"
)

// criticSteps is in the metadata of the second file when there is a critic.
const criticSteps = "critic_steps"

const checkpointFormat = "agentlightning-native-1"

// shapeConfig is the part of a Config that a checkpoint fixes.
type shapeConfig struct {
	Dim         int     `json:"dim"`
	Layers      int     `json:"layers"`
	Heads       int     `json:"heads"`
	Hidden      int     `json:"hidden"`
	Context     int     `json:"context"`
	Tied        bool    `json:"tied"`
	Seed        int64   `json:"seed"`
	WeightDecay float64 `json:"weight_decay"`
	Beta1       float64 `json:"beta1"`
	Beta2       float64 `json:"beta2"`
	Shards      int     `json:"shards"`
}

func shapeOf(c Config) shapeConfig {
	return shapeConfig{c.Dim, c.Layers, c.Heads, c.Hidden, c.Context, c.Tied, c.Seed, c.WeightDecay, c.Beta1, c.Beta2, c.Shards}
}

// Save implements [learner.Learner]. The folder holds two safetensors files that
// other tools can read: weights, with configuration, words and version in the
// metadata, and the moments of the optimiser. An existing checkpoint of that
// name is replaced.
func (m *Model) Save(ctx context.Context, dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := m.save(dir); err != nil {
		return fmt.Errorf("save checkpoint %s: %w", dir, err)
	}
	return nil
}

func (m *Model) save(dir string) (err error) {
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	prefix := "." + filepath.Base(dir) + ".tmp-"
	if err := removeLeft(dir, parent, prefix); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	metadata, err := m.metadata()
	if err != nil {
		return err
	}
	if err := writeTensors(filepath.Join(tmp, weightsFile), m.named("", m.train.weights), metadata); err != nil {
		return err
	}
	moments := append(m.named("first.", m.train.first), m.named("second.", m.train.second)...)
	steps := map[string]string{"format": checkpointFormat, "steps": strconv.FormatInt(m.train.steps, 10)}
	if n := m.train.critic.steps; n > 0 {
		moments = append(moments, m.train.critic.tensors()...)
		steps[criticSteps] = strconv.FormatInt(n, 10)
	}
	if err := writeTensors(filepath.Join(tmp, optimizerFile), moments, steps); err != nil {
		return err
	}
	if err := syncDir(tmp); err != nil {
		return err
	}
	return replaceDir(dir, tmp)
}

// removeLeft deletes what a process left that was killed while it saved the same
// checkpoint, but not one that was moved aside and has nothing in its place.
func removeLeft(dir, parent, prefix string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	_, missing := os.Stat(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && (missing == nil || !strings.HasSuffix(e.Name(), ".old")) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(parent, e.Name())))
		}
	}
	return err
}

// replaceDir gives tmp the name dir. What was there before is moved aside
// first, as a folder cannot be renamed over another, and deleted last.
func replaceDir(dir, tmp string) error {
	old := tmp + ".old"
	err := os.Rename(dir, old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	had := err == nil
	if err := os.Rename(tmp, dir); err != nil {
		if had {
			err = errors.Join(err, os.Rename(old, dir))
		}
		return err
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	if had {
		return os.RemoveAll(old)
	}
	return nil
}

// syncDir makes the names in a folder durable. Windows has no such call; there
// renames are journalled.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (m *Model) metadata() (map[string]string, error) {
	shape, err := json.Marshal(shapeOf(m.cfg))
	if err != nil {
		return nil, err
	}
	// Words can be any bytes, which JSON strings cannot; []byte is base64.
	words := make([][]byte, len(m.tok.words))
	for i, w := range m.tok.words {
		words[i] = []byte(w)
	}
	list, err := json.Marshal(words)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"format": checkpointFormat, "config": string(shape), "words_base64": string(list),
		"version": strconv.FormatInt(m.version, 10),
	}, nil
}

// named cuts a flat vector into the tensors of the layout. Rows that only pad
// the vocabulary are left out.
func (m *Model) named(prefix string, flat []float32) []namedTensor {
	out := make([]namedTensor, 0, len(m.lay.tensors))
	for _, t := range m.lay.tensors {
		shape, n := slices.Clone(t.shape), t.size()
		if m.lay.isVocabTable(t) {
			shape[0] = m.lay.vocab
			n = shape[0] * shape[1]
		}
		out = append(out, namedTensor{prefix + t.name, shape, flat[t.off : t.off+n]})
	}
	return out
}

// assign copies tensors of a file into a flat vector.
func (m *Model) assign(flat []float32, prefix string, from map[string]namedTensor) error {
	for _, t := range m.named(prefix, flat) {
		f, ok := from[t.name]
		if !ok {
			return fmt.Errorf("tensor %q is missing", t.name)
		}
		if !slices.Equal(f.shape, t.shape) {
			return fmt.Errorf("tensor %q has shape %v, and this model needs %v", t.name, f.shape, t.shape)
		}
		copy(t.data, f.data)
	}
	return nil
}

// Load implements [learner.Learner]. The checkpoint must be of a model of the
// same shape and vocabulary; on an error nothing has changed. [Open] builds the
// model that fits a checkpoint.
func (m *Model) Load(ctx context.Context, dir string) error {
	c, err := readCheckpoint(dir)
	if err != nil {
		return fmt.Errorf("load checkpoint %s: %w", dir, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if m.closed {
		return ErrClosed
	}
	if err := m.load(c); err != nil {
		return fmt.Errorf("load checkpoint %s: %w", dir, err)
	}
	return nil
}

func (m *Model) load(c *checkpoint) error {
	if !slices.Equal(c.words, m.tok.words) {
		return fmt.Errorf("its vocabulary has %d words and is not this model's of %d", len(c.words), len(m.tok.words))
	}
	if c.shape.Heads != m.cfg.Heads || c.shape.Tied != m.cfg.Tied {
		return fmt.Errorf("it has heads=%d tied=%t, and this model has heads=%d tied=%t", c.shape.Heads, c.shape.Tied, m.cfg.Heads, m.cfg.Tied)
	}
	m.train.save()
	err := errors.Join(
		m.assign(m.train.weights, "", c.weights),
		m.assign(m.train.first, "first.", c.moments),
		m.assign(m.train.second, "second.", c.moments),
		m.assignCritic(c))
	if err != nil {
		m.train.restore()
		return err
	}
	m.train.steps, m.version = c.steps, c.version
	m.publish()
	return nil
}

// assignCritic takes over the critic of a checkpoint, or begins one when it has
// none.
func (m *Model) assignCritic(from *checkpoint) error {
	c := newCritic(m.cfg.Dim)
	if c.steps = from.criticSteps; c.steps > 0 {
		to := [][]float64{c.weights, c.first, c.second}
		for i, t := range c.tensors() {
			f, ok := from.moments[t.name]
			if !ok || !slices.Equal(f.shape, t.shape) {
				return fmt.Errorf("tensor %q has shape %v, and this model needs %v", t.name, f.shape, t.shape)
			}
			for j, v := range f.data {
				to[i][j] = float64(v)
			}
		}
	}
	m.train.critic = c
	return nil
}

// Open builds the model of a checkpoint and loads it. The fields of cfg that
// shape the model or its optimiser are taken from the checkpoint, the others
// from cfg.
func Open(dir string, cfg Config) (*Model, error) {
	c, err := readCheckpoint(dir)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint %s: %w", dir, err)
	}
	s := c.shape
	cfg.Dim, cfg.Layers, cfg.Heads, cfg.Hidden, cfg.Context = s.Dim, s.Layers, s.Heads, s.Hidden, s.Context
	cfg.Tied, cfg.Seed, cfg.WeightDecay, cfg.Beta1, cfg.Beta2, cfg.Shards = s.Tied, s.Seed, s.WeightDecay, s.Beta1, s.Beta2, s.Shards
	m, err := New(cfg, NewTokenizer(c.words))
	if err != nil {
		return nil, fmt.Errorf("open checkpoint %s: %w", dir, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.load(c); err != nil {
		m.engine.stop()
		return nil, fmt.Errorf("open checkpoint %s: %w", dir, err)
	}
	return m, nil
}

// checkpoint is the content of a checkpoint's folder.
type checkpoint struct {
	shape            shapeConfig
	words            []string
	version, steps   int64
	criticSteps      int64 // 0: there is no critic
	weights, moments map[string]namedTensor
}

func readCheckpoint(dir string) (*checkpoint, error) {
	c := &checkpoint{}
	weights, meta, err := readTensors(filepath.Join(dir, weightsFile))
	if err != nil {
		return nil, err
	}
	moments, opt, err := readTensors(filepath.Join(dir, optimizerFile))
	if err != nil {
		return nil, err
	}
	c.weights, c.moments = weights, moments
	if meta["format"] != checkpointFormat || opt["format"] != checkpointFormat {
		return nil, fmt.Errorf("format is %q: want %q", meta["format"], checkpointFormat)
	}
	var words [][]byte
	var errs [5]error
	errs[0] = json.Unmarshal([]byte(meta["config"]), &c.shape)
	errs[1] = json.Unmarshal([]byte(meta["words_base64"]), &words)
	c.version, errs[2] = strconv.ParseInt(meta["version"], 10, 64)
	c.steps, errs[3] = strconv.ParseInt(opt["steps"], 10, 64)
	if text, ok := opt[criticSteps]; ok {
		c.criticSteps, errs[4] = strconv.ParseInt(text, 10, 64)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	for _, w := range words {
		c.words = append(c.words, string(w))
	}
	return c, nil
}
