package native

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentlightning/learner"
)

func imitationBatch(m *Model, seed uint64) learner.Batch {
	return learner.Batch{
		Rows:    randomRows(rand.New(rand.NewPCG(seed, 1)), m, 10, 20, 5, 24, 12, 3),
		Options: learner.Options{Objective: learner.Imitation, LearningRate: 1e-3, Minibatch: 2, Epochs: 2, Seed: int64(seed)},
	}
}

func update(t *testing.T, m *Model, b learner.Batch) learner.Metrics {
	t.Helper()
	metrics, err := m.Update(t.Context(), b)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	return metrics
}

// A model that went through a checkpoint goes on exactly as one that did not.
func TestCheckpointRoundTrip(t *testing.T) {
	t.Parallel()
	for _, tied := range []bool{false, true} {
		m := smallModel(t, Config{Dim: 32, Heads: 2, Hidden: 48, Context: 24, Tied: tied, Seed: 1, WeightDecay: 0.1})
		update(t, m, imitationBatch(m, 1))
		dir := filepath.Join(t.TempDir(), "a", "b")
		for range 2 { // the second time over the first
			if err := m.Save(t.Context(), dir); err != nil {
				t.Fatalf("Save: %v", err)
			}
		}
		entries, err := os.ReadDir(filepath.Dir(dir))
		if err != nil || len(entries) != 1 {
			t.Errorf("Save left %v beside the checkpoint, %v", entries, err)
		}
		opened, err := Open(dir, Config{Workers: 1})
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		t.Cleanup(func() { _ = opened.Close() })
		loaded := smallModel(t, Config{Dim: 32, Heads: 2, Hidden: 48, Context: 24, Tied: tied, Seed: 99, WeightDecay: 0.1})
		if err := loaded.Load(t.Context(), dir); err != nil {
			t.Fatalf("Load: %v", err)
		}
		for name, other := range map[string]*Model{"opened": opened, "loaded": loaded} {
			if other.Version() != m.Version() {
				t.Errorf("%s version = %d, want %d", name, other.Version(), m.Version())
			}
			if !slices.Equal(other.train.weights, m.train.weights) || !slices.Equal(other.current.Load().weights, m.train.weights) {
				t.Errorf("%s weights differ", name)
			}
		}
		update(t, m, imitationBatch(m, 2))
		update(t, opened, imitationBatch(m, 2))
		update(t, loaded, imitationBatch(m, 2))
		if !slices.Equal(m.train.weights, opened.train.weights) || !slices.Equal(m.train.weights, loaded.train.weights) {
			t.Errorf("tied=%t: weights after the next update differ: the optimiser's state was lost", tied)
		}
	}
}

// What a process left that was killed while it saved is cleared away by the next
// one that saves the same checkpoint.
func TestSaveClearsWhatWasLeft(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Dim: 16, Heads: 1, Hidden: 16, Context: 8, Seed: 1})
	parent := t.TempDir()
	for _, name := range []string{".step.tmp-1", ".step.tmp-2.old", ".other.tmp-3"} {
		if err := os.Mkdir(filepath.Join(parent, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	left := func() []string {
		t.Helper()
		if err := m.Save(t.Context(), filepath.Join(parent, "step")); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(parent)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if got := left(); !slices.Equal(got, []string{".other.tmp-3", ".step.tmp-2.old", "step"}) {
		t.Errorf("after the first save there are %v, want what was moved aside kept", got)
	}
	if got := left(); !slices.Equal(got, []string{".other.tmp-3", "step"}) {
		t.Errorf("after the second save there are %v", got)
	}
}

func TestLoadNamesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{})
	dir := filepath.Join(t.TempDir(), "c")
	if err := m.Save(t.Context(), dir); err != nil {
		t.Fatalf("Save: %v", err)
	}
	for _, tt := range []struct {
		name string
		cfg  Config
		tok  *Tokenizer
		want string
	}{
		{"width", Config{Dim: 64, Heads: 2, Hidden: 48, Context: 24}, m.tok, `tensor "layers.0.attention.qkv" has shape [32 96], and this model needs [64 192]`},
		{"context", Config{Dim: 32, Heads: 2, Hidden: 48, Context: 25}, m.tok, `tensor "embedding.position" has shape [24 32], and this model needs [25 32]`},
		{"layers", Config{Dim: 32, Heads: 2, Hidden: 48, Context: 24, Layers: 3}, m.tok, `tensor "layers.2.attention.qkv" is missing`},
		{"heads", Config{Dim: 32, Heads: 1, Hidden: 48, Context: 24}, m.tok, "heads=2"},
		{"tied", Config{Dim: 32, Heads: 2, Hidden: 48, Context: 24, Tied: true}, m.tok, "tied=false"},
		{"words", Config{Dim: 32, Heads: 2, Hidden: 48, Context: 24}, NewTokenizer([]string{" one"}), "vocabulary has 2 words"},
	} {
		other, err := New(tt.cfg, tt.tok)
		if err != nil {
			t.Fatalf("%s: New: %v", tt.name, err)
		}
		before := slices.Clone(other.train.weights)
		if err := other.Load(t.Context(), dir); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Load = %v, want it to say %s", tt.name, err, tt.want)
		}
		if !slices.Equal(before, other.train.weights) {
			t.Errorf("%s: a failed Load changed the weights", tt.name)
		}
		_ = other.Close()
	}
}

func TestLoadOfBrokenFiles(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{})
	good := filepath.Join(t.TempDir(), "good")
	if err := m.Save(t.Context(), good); err != nil {
		t.Fatalf("Save: %v", err)
	}
	raw, err := os.ReadFile(filepath.Join(good, weightsFile))
	if err != nil {
		t.Fatalf("ReadFile: %v", err)
	}
	huge := slices.Clone(raw)
	binary.LittleEndian.PutUint64(huge, 1<<60)
	for name, content := range map[string][]byte{
		"empty": {}, "cut": raw[:len(raw)-4], "header cut": raw[:100], "header size": huge,
		"other type":   []byte(strings.Replace(string(raw), `"F32"`, `"F64"`, 1)),
		"other format": []byte(strings.Replace(string(raw), checkpointFormat, strings.ToUpper(checkpointFormat), 1)),
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatalf("CopyFS: %v", err)
		}
		if err := os.WriteFile(filepath.Join(dir, weightsFile), content, 0o644); err != nil {
			t.Fatalf("WriteFile: %v", err)
		}
		if err := m.Load(t.Context(), dir); err == nil {
			t.Errorf("%s: Load succeeded", name)
		}
		if _, err := Open(dir, Config{}); err == nil {
			t.Errorf("%s: Open succeeded", name)
		}
	}
	if _, err := Open(filepath.Join(good, "missing"), Config{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of a missing folder = %v, want a missing file", err)
	}
}

func FuzzParseTensors(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Add([]byte("\x40\x00\x00\x00\x00\x00\x00\x00" + `{"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}        ` + "\x00\x00\x80\x3f"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		tensors, _, err := parseTensors(raw)
		if err != nil {
			return
		}
		for name, tt := range tensors {
			n := 1
			for _, d := range tt.shape {
				n *= d
			}
			if n != len(tt.data) {
				t.Errorf("tensor %q of shape %v has %d numbers", name, tt.shape, len(tt.data))
			}
		}
	})
}
