package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"agentlightning/examples/charts/chart"
)

// task is a chart and what is asked about it, one question after the other.
type task struct {
	ID        string      `json:"id"`
	Chart     chart.Chart `json:"chart"`
	Questions []question  `json:"questions"`
}

// question is what is asked, and the answer: a number or a label.
type question struct {
	Text   string   `json:"text"`
	Number *float64 `json:"number,omitempty"`
	Label  string   `json:"label,omitempty"`
}

var months = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}

// tasks draws charts. In every other one the axis begins above zero.
func tasks(random *rand.Rand, count int) []task {
	all := make([]task, count)
	for i := range all {
		c := chart.Chart{Kind: chart.Bars, Step: []int{5, 10, 20, 25, 50}[random.IntN(5)]}
		if random.IntN(2) == 1 {
			c.Kind = chart.Line
		}
		if i%2 == 1 {
			c.Base = c.Step * (2 + random.IntN(6))
		}
		first := random.IntN(len(months) - 6)
		c.Labels = months[first : first+6]
		for range c.Labels {
			share := 0.1 + 0.9*random.Float64()
			c.Values = append(c.Values, float64(c.Base)+math.Round(share*float64(chart.Steps*c.Step)))
		}
		all[i] = task{ID: fmt.Sprintf("chart-%d", i), Chart: c, Questions: ask(random, &c)}
	}
	return all
}

// ask makes two questions about a chart, as a rule of different kinds.
func ask(random *rand.Rand, c *chart.Chart) []question {
	pair := random.Perm(len(c.Labels))[:2]
	high, low := pair[0], pair[1]
	if c.Values[high] < c.Values[low] {
		high, low = low, high
	}
	difference := c.Values[high] - c.Values[low]
	best, twice := 0, false
	for i, v := range c.Values {
		if v > c.Values[best] {
			best, twice = i, false
		} else if i != best && v == c.Values[best] {
			twice = true
		}
	}
	kinds := []question{{Text: "How much is it in " + c.Labels[low] + "?", Number: &c.Values[low]}}
	if difference > 0 {
		kinds = append(kinds, question{Text: "How much more is it in " + c.Labels[high] + " than in " + c.Labels[low] + "?", Number: &difference})
	}
	if !twice {
		kinds = append(kinds, question{Text: "Which month is highest?", Label: c.Labels[best]})
	}
	if len(kinds) < 2 {
		kinds = append(kinds, question{Text: "How much is it in " + c.Labels[high] + "?", Number: &c.Values[high]})
	}
	random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	return kinds[:2]
}

// tolerance is the relative error at which an answer is worth nothing.
const tolerance = 0.1

// reward is what an answer is worth: 1 when it is exact, less the further off.
func (q question) reward(answer string) float64 {
	answer = strings.TrimSpace(answer)
	if q.Number == nil {
		if strings.EqualFold(answer, q.Label) {
			return 1
		}
		return 0
	}
	got, err := strconv.ParseFloat(answer, 64)
	if err != nil {
		return 0
	}
	return max(0, 1-math.Abs(got-*q.Number)/math.Abs(*q.Number)/tolerance)
}
