package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Whatever tokens a text is cut into, characters stay whole and stop texts hidden.
func TestText(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		stop     []string
		want     string
		stopped  bool
	}{
		{"plain", "a€🧮ü", nil, "a€🧮ü", false},
		{"stop", "one, two", []string{","}, "one", true},
		{"long stop", "one END two", []string{" END "}, "one", true},
		{"the earlier", "abcdef", []string{"ef", "cd"}, "ab", true},
		{"overlap", "aaab", []string{"aab"}, "a", true},
		{"almost", "aaac", []string{"aab"}, "aaac", false},
		{"beginning at the end", "one EN", []string{"END"}, "one EN", false},
		{"of characters", "x€🧮y", []string{"🧮"}, "x€", true},
		{"half a character", "x\xe2\x82", nil, "x\ufffd", false},
		{"no character", "x\xffy", nil, "x\ufffdy", false},
		{"empty stop", "x", []string{""}, "x", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for width := 1; width <= 4; width++ {
				parts, got, stopped := newText(tt.stop), "", false
				for piece := range slices.Chunk([]byte(tt.in), width) {
					var out string
					out, stopped = parts.add(piece)
					got += out
					if stopped {
						break
					}
					if !strings.HasPrefix(tt.want, got) {
						t.Fatalf("in pieces of %d: %q is said too early", width, got)
					}
				}
				got += parts.rest()
				if got != tt.want || stopped != tt.stopped {
					t.Errorf("in pieces of %d: %q, %v, want %q, %v", width, got, stopped, tt.want, tt.stopped)
				}
			}
		})
	}
}

// What is drawn has the probabilities that it should.
func TestSample(t *testing.T) {
	t.Parallel()
	logits := []float32{1, 3, 2, -4}
	soft := func(temperature float64) []float64 {
		out, sum := make([]float64, 4), 0.0
		for i, x := range logits {
			out[i] = math.Exp(float64(x) / temperature)
			sum += out[i]
		}
		for i := range out {
			out[i] /= sum
		}
		return out
	}
	d := newDistribution(logits)
	for i, p := range soft(1) {
		if got := math.Exp(d.logprob(i)); math.Abs(got-p) > 1e-9 {
			t.Errorf("the probability of %d is %v, want %v", i, got, p)
		}
	}
	if got := d.top(3); !slices.Equal(got, []int{1, 2, 0}) {
		t.Errorf("the likeliest are %v", got)
	}
	nucleus := soft(1)
	kept := nucleus[1] + nucleus[2]
	for _, tt := range []struct {
		temperature, topP float64
		want              []float64
	}{
		{0, 1, []float64{0, 1, 0, 0}},
		{1, 1, soft(1)},
		{0.5, 1, soft(0.5)},
		{1, 0.9, []float64{0, nucleus[1] / kept, nucleus[2] / kept, 0}},
	} {
		random := rand.New(rand.NewPCG(1, 2))
		const draws = 20000
		var counts [4]float64
		for range draws {
			counts[d.sample(tt.temperature, tt.topP, random)]++
		}
		for i, want := range tt.want {
			if got := counts[i] / draws; math.Abs(got-want) > 0.015 {
				t.Errorf("temperature %v, top_p %v: token %d is drawn with %v, want %v", tt.temperature, tt.topP, i, got, want)
			}
		}
	}
}
