package native

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// rngState is the random source of one sequence.
type rngState struct{ pcg rand.PCG }

func (r *rngState) seed(s int64) { r.pcg.Seed(uint64(s), 0xda942042e4dd58b5) }

// float returns a number in [0, 1).
func (r *rngState) float() float64 { return float64(r.pcg.Uint64()>>11) / (1 << 53) }

// coldest is the temperature below which sampling is greedy: dividing by less
// leaves nothing but the likeliest token, and overflows.
const coldest = 1e-5

// sampler holds the buffers of sampling.
type sampler struct {
	probs, shaped []float32
	order         []int32
}

// sample draws the next token of a sequence from its logits and records it.
func (d *decoder) sample(s *sequence, logits []float32, version int64) {
	b := &d.sampler
	b.probs = grow(b.probs, len(logits))
	shift := d.level.Max(logits)
	sum := d.level.ExpSum(b.probs, logits, shift)
	logZ := math.Log(float64(sum)) + float64(shift)

	id := d.draw(s, logits, shift, sum)
	t := Token{ID: id, Logprob: float32(float64(logits[id]) - logZ)}
	if n := s.req.TopLogprobs; n > 0 {
		t.Top = make([]TokenLogprob, n)
		for i, o := range b.ranked(logits)[:n] {
			t.Top[i] = TokenLogprob{o, float32(float64(logits[o]) - logZ)}
		}
	}
	s.ids = append(s.ids, id)
	s.result.Tokens = append(s.result.Tokens, t)
	s.result.Version = version
	if s.stream != nil {
		s.stream <- t
	}
	switch {
	case id == EndToken || len(s.req.Stop) > 0 && d.stops(s, id):
		s.finished, s.result.FinishReason = true, FinishStop
	case len(s.ids) >= s.limit:
		s.finished, s.result.FinishReason = true, FinishLength
	}
}

// draw picks a token. The sampler's probs hold e^(logit-shift), which add up to
// sum.
func (d *decoder) draw(s *sequence, logits []float32, shift, sum float32) int32 {
	b := &d.sampler
	if s.req.Temperature < coldest {
		return int32(slices.Index(logits, shift))
	}
	weights := b.probs
	if s.req.Temperature != 1 {
		b.shaped = grow(b.shaped, len(logits))
		copy(b.shaped, logits)
		inv := float32(1 / s.req.Temperature)
		d.level.Scale(b.shaped, inv)
		sum = d.level.ExpSum(b.shaped, b.shaped, shift*inv)
		weights = b.shaped
	}
	u := float32(s.rng.float())
	if p := s.req.TopP; p > 0 && p < 1 {
		order := b.ranked(weights)
		var kept float32
		n := 0
		for n < len(order) && (n == 0 || kept < float32(p)*sum) {
			kept += weights[order[n]]
			n++
		}
		return order[pick(func(i int) float32 { return weights[order[i]] }, n, u*kept)]
	}
	return int32(pickDense(weights, u*sum))
}

// pick returns the index at which the running sum of n weights exceeds u.
func pick(weight func(i int) float32, n int, u float32) int {
	last := 0
	for i := range n {
		w := weight(i)
		if w > 0 {
			last = i
		}
		if u -= w; u < 0 {
			return i
		}
	}
	return last // rounding: the sum fell just short of u
}

func pickDense(weights []float32, u float32) int {
	return pick(func(i int) float32 { return weights[i] }, len(weights), u)
}

// ranked returns the ids by descending weight; equal ones by id.
func (b *sampler) ranked(weights []float32) []int32 {
	b.order = b.order[:0]
	for i := range weights {
		b.order = append(b.order, int32(i))
	}
	slices.SortFunc(b.order, func(i, j int32) int {
		return cmp.Or(cmp.Compare(weights[j], weights[i]), cmp.Compare(i, j))
	})
	return b.order
}

// stops reports whether the text of the completion contains a stop text now
// that id was added.
func (d *decoder) stops(s *sequence, id int32) bool {
	before := s.text.Len()
	s.tok.writeTo(&s.text, id)
	text := s.text.String()
	for _, stop := range s.req.Stop {
		if stop != "" && strings.Contains(text[max(0, before-len(stop)+1):], stop) {
			return true
		}
	}
	return false
}
