package native

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"agentlightning/learner"
)

// What sampling reports is what an update computes for the same weights.
func TestSampledLogprobsAreTheTrainers(t *testing.T) {
	t.Parallel()
	for _, portable := range []bool{false, true} {
		m := smallModel(t, Config{Seed: 4, Portable: portable})
		r := rand.New(rand.NewPCG(1, 2))
		for i := range m.train.weights {
			m.train.weights[i] += float32(0.1 * r.NormFloat64())
		}
		m.publish()
		prompt := []int32{UserToken, 'a', 'b', ' ', firstWord, AssistantToken}
		for seed := range int64(6) {
			res, err := m.Generate(t.Context(), Request{Prompt: prompt, Temperature: 1, Seed: seed + 1})
			if err != nil {
				t.Fatalf("Generate: %v", err)
			}
			got := res.Logprobs()
			ids := append(slices.Clone(prompt), res.IDs()...)
			row := learner.Row{IDs: ids, Mask: make([]float32, len(ids))}
			for i := len(prompt); i < len(ids); i++ {
				row.Mask[i] = 1
			}
			rows, err := m.trainRows(learner.Batch{Rows: []learner.Row{row}})
			if err != nil {
				t.Fatalf("trainRows: %v", err)
			}
			p := newPass(m.level, m.lay)
			p.reset(rows)
			pk := newForwardPack(m.lay)
			pk.fill(m.lay, m.train.weights)
			p.forward(m.train.weights, pk)
			for i, g := range p.targets {
				logits := p.logits[i*padded(m.lay.vocabPad):][:m.lay.vocab]
				want, _ := logSoftmax(m.level, logits, make([]float32, len(logits)), g.id)
				if math.Abs(float64(want-got[i])) > 1e-4 {
					t.Errorf("portable=%t seed %d token %d: sampled logprob %v, trainer's %v", portable, seed, i, got[i], want)
				}
			}
		}
	}
}

// The tokens of a seed are the same alone, in company, and after a cache hit.
func TestSamplesDoNotDependOnCompany(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 5, Slots: 7, Workers: 3})
	prompt := func(i int) []int32 {
		return []int32{UserToken, int32('a' + i%3), ' ', int32('0' + i%5), AssistantToken}
	}
	const n = 40
	alone := make([]*Result, n)
	for i := range n {
		fresh := smallModel(t, Config{Seed: 5, Workers: 1})
		res, err := fresh.Generate(t.Context(), Request{Prompt: prompt(i), Temperature: 0.9, TopP: 0.95, Seed: int64(i + 1)})
		if err != nil {
			t.Fatalf("Generate: %v", err)
		}
		alone[i] = res
	}
	for round := range 3 {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				res, err := m.Generate(context.WithoutCancel(t.Context()), Request{Prompt: prompt(i), Temperature: 0.9, TopP: 0.95, Seed: int64(i + 1)})
				if err != nil {
					t.Errorf("Generate: %v", err)
					return
				}
				if !slices.Equal(res.IDs(), alone[i].IDs()) || !slices.Equal(res.Logprobs(), alone[i].Logprobs()) {
					t.Errorf("round %d request %d: ids %v, alone %v", round, i, res.IDs(), alone[i].IDs())
				}
			})
		}
		wg.Wait()
	}
}

// An update makes what is cached worthless: the next request starts afresh.
func TestCacheDoesNotOutliveWeights(t *testing.T) {
	t.Parallel()
	m, fresh := smallModel(t, Config{Seed: 6}), smallModel(t, Config{Seed: 6})
	r := Request{Prompt: []int32{UserToken, 'a', 'b', 'c', 'd', 'e', AssistantToken}, Temperature: 1, Seed: 3}
	generate := func(m *Model) *Result {
		t.Helper()
		res, err := m.Generate(t.Context(), r)
		if err != nil {
			t.Fatalf("Generate: %v", err)
		}
		return res
	}
	generate(m)
	if res := generate(m); res.Cached != len(r.Prompt)-1 {
		t.Errorf("the second request took %d tokens from the cache, want %d", res.Cached, len(r.Prompt)-1)
	}
	b := imitationBatch(m, 1)
	b.Options.LearningRate = 0.01
	update(t, m, b)
	update(t, fresh, b)
	got, want := generate(m), generate(fresh)
	if got.Cached != 0 || got.Version != 1 {
		t.Errorf("after an update: %d tokens from the cache, version %d, want 0, 1", got.Cached, got.Version)
	}
	if !slices.Equal(got.IDs(), want.IDs()) || !slices.Equal(got.Logprobs(), want.Logprobs()) {
		t.Errorf("after an update: ids %v, a model without a cache has %v", got.IDs(), want.IDs())
	}
}

// A cache that two versions of the weights have written serves its own sequence
// and no other.
func TestMixedCacheIsNotShared(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 6})
	first := m.current.Load()
	s := m.newSequence(Request{Prompt: []int32{UserToken, 'a', AssistantToken}, Temperature: 1}, false)
	s.slot = newSlot(m.lay)
	s.slot.serial = first.serial
	d := newDecoder(m.level, m.lay)
	d.advance(first, []*sequence{s})
	d.advance(first, []*sequence{s})
	if s.slot.serial != first.serial || s.slot.filled != 4 {
		t.Errorf("with one version: serial %d, %d tokens, want %d, 4", s.slot.serial, s.slot.filled, first.serial)
	}
	update(t, m, imitationBatch(m, 1))
	d.advance(m.current.Load(), []*sequence{s})
	if s.slot.serial != 0 || s.result.Version != 1 {
		t.Errorf("after an update: serial %d, version %d, want 0, 1", s.slot.serial, s.result.Version)
	}
}

// Sampling follows the distribution that temperature and top-p shape.
func TestSamplingDistribution(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 8})
	prompt := []int32{UserToken}
	r := rand.New(rand.NewPCG(4, 4))
	for i := range m.train.weights[m.lay.head:m.lay.decay] {
		m.train.weights[m.lay.head+i] = float32(0.5 * r.NormFloat64())
	}
	m.publish()
	logits := allLogits(t, m, prompt)
	const n = 4000
	for _, tt := range []struct{ temperature, topP float64 }{{1, 0}, {0.5, 1}, {2, 0.5}, {1, 0.2}, {1e-9, 1}} {
		want := make([]float64, len(logits))
		order := make([]int, len(logits))
		sum := 0.0
		for i, l := range logits {
			order[i] = i
			want[i] = math.Exp(float64(l) / max(tt.temperature, 1e-2))
			sum += want[i]
		}
		slices.SortFunc(order, func(a, b int) int { return int(math.Copysign(1, want[b]-want[a])) })
		kept, limit := 0.0, tt.topP
		if limit == 0 {
			limit = 1
		}
		for _, i := range order {
			if want[i] /= sum; kept >= limit || tt.temperature < 1e-5 && kept > 0 {
				want[i] = 0
			}
			kept += want[i]
		}
		seen := make([]float64, len(logits))
		for seed := range int64(n) {
			res, err := m.Generate(t.Context(), Request{Prompt: prompt, MaxTokens: 1, Temperature: tt.temperature, TopP: tt.topP, Seed: seed + 1})
			if err != nil {
				t.Fatalf("Generate: %v", err)
			}
			seen[res.Tokens[0].ID] += 1.0 / n
		}
		distance := 0.0
		for i := range want {
			want[i] /= kept
			distance += math.Abs(want[i]-seen[i]) / 2
			if want[i] == 0 && seen[i] > 0 {
				t.Errorf("temperature %v, top-p %v: token %d was cut off and sampled", tt.temperature, tt.topP, i)
			}
		}
		// Sampling noise alone gives about sqrt(tokens/n)/2.
		if distance > 0.14 {
			t.Errorf("temperature %v, top-p %v: sampled frequencies are %v away from the distribution", tt.temperature, tt.topP, distance)
		}
	}
}

// Of more requests than slots, those that wait are served also when all others
// end in the same round.
func TestMoreRequestsThanSlots(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Seed: 1, Slots: 2})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if _, err := m.Generate(t.Context(), Request{Prompt: []int32{'a'}, MaxTokens: 1, Seed: int64(i + 1)}); err != nil {
				t.Errorf("Generate: %v", err)
			}
		})
	}
	wg.Wait()
}
