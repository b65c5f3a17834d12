package rescore

import (
	"math"
	"slices"
)

// Summary is what became of the chosen rollouts.
type Summary struct {
	// Chosen = Already + Scored + the sums of Skipped and Failed + Left.
	Chosen  int            `json:"chosen"`
	Already int            `json:"already"` // had a reward in the set
	Scored  int            `json:"scored"`
	Skipped map[string]int `json:"skipped"` // by reason: there is nothing to score
	Failed  map[string]int `json:"failed"`  // by reason; they are tried again the next time
	Left    int            `json:"left"`    // not come to, since the work was stopped
	// Examples has one error a reason of Failed.
	Examples map[string]string `json:"examples"`

	// MeanNew is over what was scored; MeanOld and Correlation (Pearson's) over
	// what was scored and has a reward in the base set; nil when there are none,
	// or, of the correlation, when either reward is always the same.
	MeanNew     *float64 `json:"mean_new"`
	MeanOld     *float64 `json:"mean_old"`
	Correlation *float64 `json:"correlation"`
	Compared    int      `json:"compared"`

	// Asked is how often a service was asked, or in a dry run would be.
	Asked        int     `json:"asked"`
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	Cost         float64 `json:"cost"`
}

// pair is an old reward and a new one; old is nil where there is none.
type pair struct {
	order int // of the rollout among those that were chosen
	old   *float64
	new   float64
}

// compare fills in the figures about rewards. Pairs came in the order in which
// they were ready; sums must not depend on it.
func (s *Summary) compare(pairs []pair) {
	slices.SortFunc(pairs, func(a, b pair) int { return a.order - b.order })
	var olds, news []float64
	sum := 0.0
	for _, p := range pairs {
		sum += p.new
		if p.old != nil && !math.IsNaN(*p.old) && !math.IsInf(*p.old, 0) {
			olds, news = append(olds, *p.old), append(news, p.new)
		}
	}
	if len(pairs) > 0 {
		s.MeanNew = new(sum / float64(len(pairs)))
	}
	if s.Compared = len(olds); len(olds) == 0 {
		return
	}
	meanOld, meanNew := mean(olds), mean(news)
	s.MeanOld = &meanOld
	var xy, xx, yy float64
	for i := range olds {
		x, y := olds[i]-meanOld, news[i]-meanNew
		xy, xx, yy = xy+x*y, xx+x*x, yy+y*y
	}
	if xx > 0 && yy > 0 {
		s.Correlation = new(xy / math.Sqrt(xx*yy))
	}
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
