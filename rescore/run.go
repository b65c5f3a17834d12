package rescore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/semconv"
	"agentlightning/store"
)

// ErrOtherScorer is returned when a rollout has a reward in the set that another
// scorer gave: a set must not change its meaning.
var ErrOtherScorer = errors.New("the set has rewards of another scorer")

// ErrTooManyFailures is returned when scoring was given up.
var ErrTooManyFailures = errors.New("too many failures in a row")

// Config says what to score and how.
type Config struct {
	Store  store.Store // required
	Scorer Scorer      // required
	// Set is the name of the new set; required, and not that of the default one.
	Set string
	// Each calls visit with the chosen rollouts; required.
	Each func(ctx context.Context, visit func(*agl.AttemptedRollout) error) error
	// Base is the set that scorers see as the old reward and that the summary
	// compares with; empty is the default one.
	Base string
	// Unsuccessful also scores rollouts that have ended but did not succeed.
	Unsuccessful bool
	// DryRun stores nothing, and asks no [Remote] scorer.
	DryRun bool
	// Concurrency is how many attempts or groups are scored at a time; 0 means 4.
	Concurrency int
	// StopAfter is how many failures in a row end the work; 0 means 20, negative
	// none.
	StopAfter int
	// Now is the clock of the spans; nil means time.Now.
	Now func() time.Time
	// OnProgress is called by one goroutine at a time; nil means not at all.
	OnProgress func(Progress)
}

// Progress is how far the work has come.
type Progress struct {
	Done, Of       int // rollouts
	Scored, Failed int
	InputTokens    int64
	OutputTokens   int64
	Cost           float64
	LastFailure    string // empty when there was none
}

// Validate returns an error naming the field that is missing or out of range.
func (c Config) Validate() error {
	switch {
	case c.Store == nil:
		return errors.New("rescore: Store: must be set")
	case c.Scorer == nil:
		return errors.New("rescore: Scorer: must be set")
	case c.Each == nil:
		return errors.New("rescore: Each: must be set")
	case c.Set == "" || c.Set == agl.DefaultRewardSet:
		return fmt.Errorf("rescore: Set: %q: must be the name of a set of its own; the default one holds what agents gave", c.Set)
	case c.Set == c.Base:
		return fmt.Errorf("rescore: Base: %q: is the set that is made", c.Base)
	case c.Concurrency < 0:
		return fmt.Errorf("rescore: Concurrency: %d: must not be negative", c.Concurrency)
	}
	if err := errors.Join(agl.CheckRewardSet(c.Set), agl.CheckRewardSet(c.Base)); err != nil {
		return fmt.Errorf("rescore: %w", err)
	}
	return nil
}

// Run scores the chosen rollouts that have no reward in the set yet. The summary
// is right also when there is an error, such as that of a context that ended.
func Run(ctx context.Context, c Config) (Summary, error) {
	if err := c.Validate(); err != nil {
		return Summary{}, err
	}
	c.Concurrency = cmp.Or(c.Concurrency, 4)
	c.StopAfter = cmp.Or(c.StopAfter, 20)
	if c.Now == nil {
		c.Now = time.Now
	}
	w := &work{Config: c, summary: Summary{Skipped: map[string]int{}, Failed: map[string]int{}, Examples: map[string]string{}}}
	grouper, ok := c.Scorer.(Grouper)
	w.grouped = ok && grouper.GroupOnly()
	err := w.choose(ctx)
	if err == nil {
		err = w.look(ctx)
	}
	if err == nil {
		err = w.scoreAll(ctx)
	}
	s := &w.summary
	s.Left = s.Chosen - s.Already - s.Scored
	for _, counts := range []map[string]int{s.Skipped, s.Failed} {
		for _, n := range counts {
			s.Left -= n
		}
	}
	s.compare(w.pairs)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return *s, err
}

// work is one execution.
type work struct {
	Config
	grouped bool
	refs    []ref

	mu       sync.Mutex
	summary  Summary
	pairs    []pair
	progress Progress
	row      int // failures since the last success
}

// ref is a rollout that may be scored.
type ref struct {
	rollout, attempt string
	group            string // of scorers that compare
	scored           bool
	order            int
}

// choose lists what was asked for.
func (w *work) choose(ctx context.Context) error {
	return w.Each(ctx, func(r *agl.AttemptedRollout) error {
		w.summary.Chosen++
		switch {
		case !r.Status.Terminal():
			w.summary.Skipped["has not ended"]++
		case r.Attempt == nil:
			w.summary.Skipped["was never attempted"]++
		case r.Status != agl.RolloutSucceeded && !w.Unsuccessful:
			w.summary.Skipped["did not succeed"]++
		case r.Attempt.Status == agl.AttemptPreparing || r.Attempt.Status == agl.AttemptUnresponsive:
			// A span is a sign of life and would bring it back.
			w.summary.Skipped["its attempt has not ended"]++
		default:
			one := ref{rollout: r.RolloutID, attempt: r.Attempt.AttemptID, order: len(w.refs)}
			if w.grouped {
				one.group = algorithm.GroupOf(&r.Rollout)
			}
			w.refs = append(w.refs, one)
		}
		return nil
	})
}

// look finds what was scored before, and by whom, ahead of all scoring.
func (w *work) look(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(w.Concurrency)
	name := semconv.SpanRescore
	for i := range w.refs {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			r := &w.refs[i]
			page, err := w.Store.QuerySpans(ctx, store.SpanQuery{RolloutID: r.rollout, AttemptID: &r.attempt, Name: &name})
			if err != nil {
				return fmt.Errorf("rewards of rollout %s: %w", r.rollout, err)
			}
			for i := range page.Items {
				s := &page.Items[i]
				if set, _ := agl.RewardSetOf(s); set != w.Set {
					continue
				}
				if by, _ := s.Attributes.String(semconv.RescoreDigest); by != w.Scorer.Digest() {
					who, _ := s.Attributes.String(semconv.RescoreScorer)
					return fmt.Errorf("%w: rollout %s has a reward of %s by %s; choose another name for the set", ErrOtherScorer, r.rollout, w.Set, who)
				}
				r.scored = true
			}
			return nil
		})
	}
	return g.Wait()
}

// units are the refs that are scored together.
func (w *work) units() [][]*ref {
	groups := map[string]int{}
	var out [][]*ref
	for i := range w.refs {
		r := &w.refs[i]
		at, seen := groups[r.group]
		if !w.grouped || !seen {
			at = len(out)
			groups[r.group] = at
			out = append(out, nil)
		}
		out[at] = append(out[at], r)
	}
	return out
}

func (w *work) scoreAll(ctx context.Context) error {
	w.progress.Of = len(w.refs)
	g, working := errgroup.WithContext(ctx)
	g.SetLimit(w.Concurrency)
	for _, unit := range w.units() {
		if working.Err() != nil {
			break
		}
		g.Go(func() error { return w.unit(working, unit) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// unit scores an attempt, or the attempts of a group.
func (w *work) unit(ctx context.Context, refs []*ref) error {
	scored := slices.DeleteFunc(slices.Clone(refs), func(r *ref) bool { return !r.scored })
	if len(scored) == len(refs) {
		return w.report(func() { w.summary.Already += len(refs) }, len(refs))
	}
	if len(scored) > 0 {
		return w.report(func() {
			w.summary.Already += len(scored)
			w.summary.Skipped["others of its group were scored without it"] += len(refs) - len(scored)
		}, len(refs))
	}
	attempts, places := make([]Attempt, len(refs)), make([]place, len(refs))
	for i, r := range refs {
		rollout, err := w.Store.Rollout(ctx, r.rollout)
		if err != nil {
			return err
		}
		page, err := w.Store.QuerySpans(ctx, store.SpanQuery{RolloutID: r.rollout, AttemptID: &r.attempt, Paging: store.Paging{SortBy: "sequence_id"}})
		if err != nil {
			return fmt.Errorf("spans of rollout %s: %w", r.rollout, err)
		}
		if attempts[i], err = Read(&rollout, page.Items, w.Base); err != nil {
			return w.report(func() {
				w.fail(len(refs), &ScoreError{"attempt cannot be read", fmt.Errorf("rollout %s: %w", r.rollout, err)})
			}, len(refs))
		}
		places[i] = placeIn(page.Items)
	}
	if remote, ok := w.Scorer.(Remote); ok && w.DryRun {
		return w.report(func() {
			w.summary.Asked++
			w.summary.InputTokens += remote.Estimate(attempts)
			w.summary.Skipped["a dry run asks no service"] += len(refs)
		}, len(refs))
	}
	scores := w.Scorer.Score(ctx, attempts)
	if len(scores) != len(attempts) {
		return fmt.Errorf("rescore: %s gave %d scores for %d attempts", w.Scorer, len(scores), len(attempts))
	}
	if err := ctx.Err(); err != nil && !slices.ContainsFunc(scores, func(s Score) bool { return s.Err == nil }) {
		return err // it was told to stop; that is no failure
	}
	return w.keep(ctx, refs, attempts, places, scores)
}

// keepLimit bounds how long storing what was scored may take when the work is
// being stopped.
const keepLimit = 10 * time.Second

// keep stores the scores of a unit, all or none.
func (w *work) keep(ctx context.Context, refs []*ref, attempts []Attempt, places []place, scores []Score) error {
	var spans []agl.Span
	var bad []error
	for i := range scores {
		if err := scores[i].check(&attempts[i]); err != nil {
			bad = append(bad, fmt.Errorf("rollout %s: %w", attempts[i].RolloutID, err))
			continue
		}
		spans = append(spans, rewardSpans(&attempts[i], &scores[i], w.Set, w.Scorer, places[i], agl.Seconds(w.Now()))...)
	}
	if len(bad) > 0 && w.grouped {
		spans = nil // ranks without all members mean nothing
	}
	if len(spans) > 0 && !w.DryRun {
		// What came in the moment the work was told to stop has been paid for.
		storing, done := context.WithTimeout(context.WithoutCancel(ctx), keepLimit)
		defer done()
		if err := w.put(storing, spans); err != nil {
			return err
		}
	}
	err := w.report(func() {
		for i := range scores {
			w.spend(&scores[i])
		}
		if _, ok := w.Scorer.(Remote); ok {
			w.summary.Asked++
		}
		switch {
		case len(spans) == 0:
			w.fail(len(attempts), bad[0])
			return
		case len(bad) > 0:
			w.fail(len(bad), bad[0])
			return
		}
		w.row = 0
		for i := range scores {
			w.summary.Scored++
			w.progress.Scored++
			w.pairs = append(w.pairs, pair{refs[i].order, attempts[i].Reward, scores[i].Rewards[0].Value})
		}
	}, len(attempts))
	return err
}

// put stores spans with sequence ids after those of their attempts.
func (w *work) put(ctx context.Context, spans []agl.Span) error {
	owners := make([]store.Attempted, len(spans))
	for i := range spans {
		owners[i] = store.Attempted{RolloutID: spans[i].RolloutID, AttemptID: spans[i].AttemptID}
	}
	ids, err := w.Store.NextSequenceIDs(ctx, owners)
	if err != nil {
		return fmt.Errorf("sequence ids: %w", err)
	}
	for i := range spans {
		spans[i].SequenceID = ids[i]
	}
	added, err := w.Store.AddSpans(ctx, spans)
	if err != nil {
		return fmt.Errorf("store rewards of rollout %s: %w", spans[0].RolloutID, err)
	}
	for i := range added {
		if added[i].Err != nil {
			return fmt.Errorf("store a reward of rollout %s: %w", spans[i].RolloutID, added[i].Err)
		}
		if !added[i].Stored {
			return fmt.Errorf("rollout %s got a reward of %s meanwhile: is the same work running elsewhere?", spans[i].RolloutID, w.Set)
		}
	}
	return nil
}

func (w *work) spend(s *Score) {
	w.summary.InputTokens += s.InputTokens
	w.summary.OutputTokens += s.OutputTokens
	w.summary.Cost += s.Cost
}

// fail counts rollouts that got no score. The caller holds mu.
func (w *work) fail(n int, err error) {
	reason := reasonOf(err)
	w.summary.Failed[reason] += n
	if _, have := w.summary.Examples[reason]; !have {
		w.summary.Examples[reason] = err.Error()
	}
	w.progress.Failed += n
	w.progress.LastFailure = err.Error()
	w.row++
}

// report applies what became of some rollouts and says so. It is an error when
// there were too many failures in a row.
func (w *work) report(apply func(), rollouts int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	apply()
	w.progress.Done += rollouts
	w.progress.InputTokens, w.progress.OutputTokens, w.progress.Cost = w.summary.InputTokens, w.summary.OutputTokens, w.summary.Cost
	if w.OnProgress != nil {
		w.OnProgress(w.progress)
	}
	if w.StopAfter > 0 && w.row >= w.StopAfter {
		return fmt.Errorf("%w: %d, the last: %s", ErrTooManyFailures, w.row, w.progress.LastFailure)
	}
	return nil
}
