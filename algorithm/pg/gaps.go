package pg

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/rl"
	"agentlightning/semconv"
	"agentlightning/store"
)

// Bounds of what a step keeps of its tokens. What is beyond them is counted, and
// not listed.
const (
	gapTokens     = 8192    // of an attempt
	gapTokensStep = 1 << 18 // of a step
	gapRecords    = 8       // of an attempt, when it is trained on again and again
	gapsAtATime   = 200     // spans of one request
)

// gaps tell by how much the policy that is trained differs from the one that
// sampled, token by token: log-probability when it was sampled less that which
// the learner computed (see learner.Batch.Trained), in nats.
type gaps struct {
	b        *batch
	of       map[int]*attemptGaps // by rollout
	tokens   int
	listed   int
	sum      float64
	furthest float64
	err      error // the first
}

// attemptGaps are those of one rollout.
type attemptGaps struct {
	tokens, omitted int
	sum             float64
	largest         float64 // the furthest from 0
	call, position  int     // where that is
	calls           map[int]*callGaps
}

// callGaps lists tokens of one answer.
type callGaps struct {
	positions []int64
	logprobs  []float64
}

func newGaps(b *batch) *gaps { return &gaps{b: b, of: map[int]*attemptGaps{}} }

// add takes what the learner thought of the tokens of a row.
func (g *gaps) add(row int, logprobs []float32) {
	if err := g.check(row, logprobs); err != nil {
		g.err = cmp.Or(g.err, err)
		return
	}
	p := &g.b.parts[row]
	a := g.of[p.rollout]
	if a == nil {
		a = &attemptGaps{calls: map[int]*callGaps{}}
		g.of[p.rollout] = a
	}
	answers := g.answers(p)
	for t := 1; t < len(p.Mask); t++ { // nothing predicts the first token
		if p.Mask[t] == 0 {
			continue
		}
		call := int(p.origin[t])
		at := t - answers[call]
		gap := float64(g.b.rollouts[p.rollout].Calls[call].Logprobs[at]) - float64(logprobs[t])
		g.tokens, g.sum, g.furthest = g.tokens+1, g.sum+gap, max(g.furthest, math.Abs(gap))
		a.tokens, a.sum = a.tokens+1, a.sum+gap
		if a.tokens == 1 || math.Abs(gap) > math.Abs(a.largest) {
			a.largest, a.call, a.position = gap, call, at
		}
		if a.tokens-a.omitted > gapTokens || g.listed >= gapTokensStep {
			a.omitted++
			continue
		}
		g.listed++
		c := a.calls[call]
		if c == nil {
			c = &callGaps{}
			a.calls[call] = c
		}
		c.positions, c.logprobs = append(c.positions, int64(at)), append(c.logprobs, sixDigits(logprobs[t]))
	}
}

func (g *gaps) check(row int, logprobs []float32) error {
	if row < 0 || row >= len(g.b.parts) {
		return fmt.Errorf("the learner told of row %d of a batch of %d", row, len(g.b.parts))
	}
	p := &g.b.parts[row]
	if len(logprobs) != len(p.IDs) {
		return fmt.Errorf("the learner told %d log-probabilities of row %d, which has %d tokens", len(logprobs), row, len(p.IDs))
	}
	for t, m := range p.Mask {
		if m != 0 && !rl.Finite(float64(logprobs[t])) {
			return fmt.Errorf("the learner told of row %d that token %d has the log-probability %v: must be finite", row, t, logprobs[t])
		}
	}
	return nil
}

// answers tells where in a row the answer of each of its calls begins: a call
// brings the rest of its prompt, and then its answer.
func (g *gaps) answers(p *part) map[int]int {
	out := map[int]int{}
	for t, call := range p.origin {
		out[int(call)] = t + 1
	}
	for call := range out {
		out[call] -= len(g.b.rollouts[p.rollout].Calls[call].ResponseIDs)
	}
	return out
}

// sixDigits is a number that takes little room as a text.
func sixDigits(v float32) float64 {
	f, _ := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', 6, 32), 64)
	return f
}

// describe adds the gap over all tokens. A learner that does not tell has none.
func (g *gaps) describe(to map[string]float64) {
	to["logprob_gap/tokens"] = float64(g.tokens)
	if g.tokens > 0 {
		to["logprob_gap/mean"], to["logprob_gap/max"] = g.sum/float64(g.tokens), g.furthest
	}
}

// keepGaps stores the gaps of a step beside the calls that they are of, each
// attempt's as one span. Its id follows from the step, so that a step that is
// done again after an interruption stores nothing twice.
func (t *training) keepGaps(ctx context.Context, step int, g *gaps, outcomes []algorithm.Outcome) error {
	if g.err != nil {
		return fmt.Errorf("update: %w", g.err)
	}
	var spans []agl.Span
	for i := range outcomes {
		if a := g.of[i]; a != nil && keeps(&outcomes[i]) {
			spans = append(spans, t.gapSpan(step, a, g.b.rollouts[i].Calls, &outcomes[i]))
		}
	}
	for part := range slices.Chunk(spans, gapsAtATime) {
		if err := t.addSpans(ctx, part); err != nil {
			return fmt.Errorf("keep the log-probabilities of step %d: %w", step, err)
		}
	}
	return nil
}

// keeps reports whether an attempt takes a further span. For one that is given up
// a span would be a sign of life.
func keeps(o *algorithm.Outcome) bool {
	a := o.Rollout.Attempt
	if a == nil || a.Status == agl.AttemptPreparing || a.Status == agl.AttemptUnresponsive {
		return false
	}
	records := 0
	for i := range o.Spans {
		if o.Spans[i].Name == semconv.SpanTrained {
			records++
		}
	}
	return records < gapRecords
}

func (t *training) addSpans(ctx context.Context, spans []agl.Span) error {
	owners := make([]store.Attempted, len(spans))
	for i := range spans {
		owners[i] = store.Attempted{RolloutID: spans[i].RolloutID, AttemptID: spans[i].AttemptID}
	}
	ids, err := t.env.Store.NextSequenceIDs(ctx, owners)
	if err != nil {
		return err
	}
	for i := range spans {
		spans[i].SequenceID = ids[i]
	}
	added, err := t.env.Store.AddSpans(ctx, spans)
	if err != nil {
		return err
	}
	for i := range added {
		if added[i].Err != nil { // such as of a rollout that was deleted meanwhile
			t.env.Logger.WarnContext(ctx, "log-probabilities of a rollout were not kept", "run_id", t.run.RunID,
				"rollout_id", spans[i].RolloutID, "err", added[i].Err)
		}
	}
	return nil
}

// gapSpan is what is stored for an attempt, in its trace beside the call with the
// largest gap.
func (t *training) gapSpan(step int, a *attemptGaps, calls []credit.Call, o *algorithm.Outcome) agl.Span {
	attributes := agl.Attributes{
		{Key: semconv.TrainedRun, Value: t.run.RunID},
		{Key: semconv.TrainedStep, Value: int64(step)},
		{Key: semconv.TrainedTokens, Value: int64(a.tokens)},
		{Key: semconv.TrainedOmitted, Value: int64(a.omitted)},
		{Key: semconv.TrainedGap, Value: a.sum},
		{Key: semconv.TrainedLargest, Value: a.largest},
		{Key: semconv.TrainedCall, Value: calls[a.call].SpanID},
		{Key: semconv.TrainedPosition, Value: int64(a.position)},
	}
	for i, call := range slices.Sorted(maps.Keys(a.calls)) {
		c := a.calls[call]
		attributes = append(attributes,
			agl.Attribute{Key: semconv.TrainedSpanID(i), Value: calls[call].SpanID},
			agl.Attribute{Key: semconv.TrainedLogprobs(i), Value: c.logprobs})
		if last := len(c.positions) - 1; c.positions[last] != int64(last) {
			attributes = append(attributes, agl.Attribute{Key: semconv.TrainedPositions(i), Value: c.positions})
		}
	}
	now := agl.Seconds(time.Now())
	core := agl.SpanCore{
		Name: semconv.SpanTrained, Status: agl.TraceStatus{StatusCode: agl.StatusOK},
		Attributes: attributes, StartTime: &now, EndTime: &now,
	}
	span := core.Span(o.Rollout.RolloutID, o.Rollout.Attempt.AttemptID, 0, now)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s\x00%s", t.run.RunID, step, span.RolloutID, span.AttemptID))
	span.SpanID = hex.EncodeToString(sum[:8])
	if at := slices.IndexFunc(o.Spans, func(s agl.Span) bool { return s.SpanID == calls[a.call].SpanID }); at >= 0 {
		span.TraceID, span.ParentID = o.Spans[at].TraceID, o.Spans[at].ParentID
	}
	span.Context = &agl.SpanContext{TraceID: span.TraceID, SpanID: span.SpanID}
	return span
}
