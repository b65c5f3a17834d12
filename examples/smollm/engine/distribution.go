package engine

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// distribution is what the model thinks may come next. It is good until the model
// computes again.
type distribution struct {
	logits []float32
	best   int
	norm   float64 // logarithm of the sum of the exponentials of all logits
}

func newDistribution(logits []float32) distribution {
	d := distribution{logits: logits}
	for i, x := range logits {
		if x > logits[d.best] {
			d.best = i
		}
	}
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - d.high())
	}
	d.norm = d.high() + math.Log(sum)
	return d
}

func (d distribution) high() float64 { return float64(d.logits[d.best]) }

func (d distribution) logprob(id int) float64 { return float64(d.logits[id]) - d.norm }

// top returns the n likeliest tokens, the likeliest first.
func (d distribution) top(n int) []int {
	var out []int
	for id, x := range d.logits {
		if n == 0 || len(out) == n && x <= d.logits[out[n-1]] {
			continue
		}
		place, _ := slices.BinarySearchFunc(out, x, func(other int, x float32) int {
			if d.logits[other] >= x {
				return -1
			}
			return 1
		})
		out = slices.Insert(out, place, id)
		out = out[:min(len(out), n)]
	}
	return out
}

// sample draws a token at a temperature from the likeliest ones whose
// probabilities add up to topP.
func (d distribution) sample(temperature, topP float64, random *rand.Rand) int {
	if temperature == 0 {
		return d.best
	}
	weights := make([]float64, len(d.logits))
	order := make([]int, len(d.logits))
	total := 0.0
	for i, x := range d.logits {
		order[i], weights[i] = i, math.Exp((float64(x)-d.high())/temperature)
		total += weights[i]
	}
	if topP > 0 && topP < 1 {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
		kept := 0.0
		for i, id := range order {
			if kept += weights[id]; kept >= topP*total {
				order, total = order[:i+1], kept
				break
			}
		}
	}
	left := random.Float64() * total
	for _, id := range order {
		if left -= weights[id]; left < 0 {
			return id
		}
	}
	return order[0]
}
