package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/semconv"
	"agentlightning/store"
)

// TaskChanges implements [store.Browser].
func (s *Store) TaskChanges(ctx context.Context, q store.SamplesQuery) (store.SamplesPage, error) {
	if err := checkSamples(&q); err != nil {
		return store.SamplesPage{}, err
	}
	if err := s.checkHealth(ctx); err != nil {
		return store.SamplesPage{}, err
	}
	var page store.SamplesPage
	err := s.view(ctx, func(r Reader) error {
		run, err := existingRun(r, q.RunID)
		if err != nil {
			return err
		}
		c := sampling{ctx: ctx, r: r, q: q, run: run, tried: map[taskOf]map[int64][]tried{}, modes: map[agl.Mode]bool{}, seen: map[string]bool{}}
		page, err = c.compare()
		return err
	})
	return page, err
}

func checkSamples(q *store.SamplesQuery) error {
	q.Order = cmp.Or(q.Order, store.MostImproved)
	switch {
	case !slices.Contains(store.SampleOrders(), q.Order):
		return invalid("Invalid order: %s, must be one of %v", q.Order, store.SampleOrders())
	case q.Offset < 0:
		return invalid("Offset must be greater than or equal to 0")
	case q.Limit < 0 || q.Limit > maxBrowsePage:
		return invalid("Limit must be from 0 to %d; ask for the next page with offset", maxBrowsePage)
	case q.Before != nil && q.After != nil && *q.Before >= *q.After:
		return invalid("before %d must be less than after %d", *q.Before, *q.After)
	}
	if q.Limit == 0 {
		q.Limit = defaultBrowsePage
	}
	return nil
}

// taskKey tells tasks apart: by their ids, or where they have none by all they
// are.
func taskKey(input json.RawMessage) string {
	if jsonx.KindOf(jsonx.Raw(input)) == jsonx.Object {
		if members, err := jsonx.Members(jsonx.Raw(input)); err == nil {
			for _, name := range []string{"id", "data_id"} {
				id := jsonx.Get(members, name)
				if kind := jsonx.KindOf(id); kind == jsonx.String || kind == jsonx.Number {
					return name + " " + string(id)
				}
			}
		}
	}
	return "task " + string(bytes.TrimSpace(input))
}

// taskOf is a task in a mode: validation and training are never compared.
type taskOf struct {
	mode agl.Mode
	key  string
}

// tried is a rollout of a task.
type tried struct{ rollout, attempt string }

// sampling is one call of TaskChanges.
type sampling struct {
	ctx context.Context //nolint:containedctx // it lives as long as the call
	r   Reader
	q   store.SamplesQuery
	run agl.Run

	tried    map[taskOf]map[int64][]tried // rollouts by step
	order    []taskOf                     // as they were met
	seen     map[string]bool              // rollouts
	modes    map[agl.Mode]bool
	stepless int
	examined int
	digested int
}

func (c *sampling) compare() (store.SamplesPage, error) {
	complete, err := c.walk()
	if err != nil {
		return store.SamplesPage{}, err
	}
	page := store.SamplesPage{
		Mode: c.mode(), Items: []store.TaskChange{}, Steps: []int64{}, Modes: []agl.Mode{},
		Stepless: c.stepless, Examined: c.examined, Complete: complete,
	}
	for _, mode := range modesToCompare() {
		if c.modes[mode] {
			page.Modes = append(page.Modes, mode)
		}
	}
	steps := map[int64]bool{}
	var before, after, n float64
	for _, task := range c.order {
		if task.mode != page.Mode {
			continue
		}
		for step := range c.tried[task] {
			steps[step] = true
		}
		first, last, ok := c.ends(task)
		if !ok {
			page.Once++
			continue
		}
		if c.digested >= store.BrowseSpansLimit {
			page.Complete = false
			continue
		}
		change, err := c.change(task, first, last)
		if err != nil {
			return store.SamplesPage{}, err
		}
		if change.Change != nil {
			before, after, n = before+*change.Before.Reward, after+*change.After.Reward, n+1
		}
		if tally(&page, change.Change) == c.q.Order {
			page.Items = append(page.Items, change)
		}
	}
	for step := range steps {
		page.Steps = append(page.Steps, step)
	}
	slices.Sort(page.Steps)
	if n > 0 {
		page.Before, page.After = new(before/n), new(after/n)
	}
	inSampleOrder(page.Items, c.q.Order)
	page.Total = len(page.Items)
	from := min(c.q.Offset, page.Total)
	page.Items = page.Items[from:min(from+c.q.Limit, page.Total)]
	return page, nil
}

// leastChange is the difference of two means that counts as one.
const leastChange = 1e-9

// tally counts a task by what became of it.
func tally(page *store.SamplesPage, change *float64) store.SampleOrder {
	switch {
	case change == nil:
		page.Unrewarded++
		return store.NotComparable
	case *change > leastChange:
		page.Improved++
		return store.MostImproved
	case *change < -leastChange:
		page.Worsened++
		return store.MostWorsened
	}
	page.Unchanged++
	return store.Unchanged
}

func inSampleOrder(items []store.TaskChange, order store.SampleOrder) {
	slices.SortStableFunc(items, func(a, b store.TaskChange) int {
		switch order {
		case store.MostImproved:
			return cmp.Compare(*b.Change, *a.Change)
		case store.MostWorsened:
			return cmp.Compare(*a.Change, *b.Change)
		case store.Unchanged:
			return cmp.Compare(*a.After.Reward, *b.After.Reward)
		case store.NotComparable:
		}
		return 0
	})
}

// walk looks at rollouts from both ends of the run, and where that leaves a gap,
// back from the ends of the steps that are asked for. It reports whether all of
// the run was looked at.
func (c *sampling) walk() (complete bool, err error) {
	whole := Walk{From: &c.run.StartTime, To: c.run.EndTime}
	ended, _, err := c.look(whole)
	if err != nil || ended {
		return ended, err
	}
	whole.Desc = true
	ended, met, err := c.look(whole)
	if err != nil || ended || met {
		return ended || met, err
	}
	for _, step := range []*int64{c.q.Before, c.q.After} {
		if step == nil {
			continue
		}
		window, ok, err := c.window(*step)
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		if _, _, err := c.look(window); err != nil {
			return false, err
		}
	}
	return false, nil
}

// window is what was asked for until a step ended, the newest first.
func (c *sampling) window(step int64) (w Walk, ok bool, err error) {
	metrics, err := c.r.StepMetrics(c.run.RunID, int(step)-1)
	if err != nil || len(metrics) == 0 || int64(metrics[0].Step) != step {
		return w, false, err
	}
	return Walk{From: &c.run.StartTime, To: new(metrics[0].Time), Desc: true}, true, nil
}

// look notes the rollouts of a walk. It reports whether there were no more, and
// whether it came to one that was known.
func (c *sampling) look(w Walk) (ended, met bool, err error) {
	w.Most = store.SamplesLimit + 1
	n := 0
	ended = true
	var found []noted
	err = c.r.WalkRollouts(w, func(r *agl.AttemptedRollout, _ SpansOf) (bool, error) {
		if n == store.SamplesLimit {
			ended = false
			return false, nil
		}
		n++
		if n%256 == 0 && c.ctx.Err() != nil {
			return false, c.ctx.Err()
		}
		if c.seen[r.RolloutID] {
			met = true
			return true, nil
		}
		c.seen[r.RolloutID] = true
		c.examined++
		if at, ok := c.place(r); ok {
			found = append(found, at)
		}
		return true, nil
	})
	if w.Desc {
		slices.Reverse(found)
	}
	for _, at := range found {
		steps := c.tried[at.task]
		if steps == nil {
			steps = map[int64][]tried{}
			c.tried[at.task] = steps
			c.order = append(c.order, at.task)
		}
		steps[at.step] = append(steps[at.step], at.tried)
	}
	return ended, met, err
}

// noted is a rollout with where it belongs in the run.
type noted struct {
	task taskOf
	step int64
	tried
}

// place tells where a rollout belongs in the run, if it does. What others are
// compared with in training is neither training nor validation.
func (c *sampling) place(r *agl.AttemptedRollout) (noted, bool) {
	if metadataText(&r.Rollout, semconv.MetadataRunID) != c.run.RunID || metadataText(&r.Rollout, semconv.MetadataBaseline) == "true" {
		return noted{}, false
	}
	step, err := strconv.ParseInt(metadataText(&r.Rollout, semconv.MetadataStep), 10, 64)
	if err != nil {
		c.stepless++
		return noted{}, false
	}
	c.modes[r.Mode] = true
	out := noted{task: taskOf{r.Mode, taskKey(r.Input)}, step: step, tried: tried{rollout: r.RolloutID}}
	if r.Attempt != nil {
		out.attempt = r.Attempt.AttemptID
	}
	return out, true
}

// modesToCompare lists the modes, that which tells most first.
func modesToCompare() []agl.Mode { return []agl.Mode{agl.ModeVal, agl.ModeTrain, "", agl.ModeTest} }

// mode is the one that is compared.
func (c *sampling) mode() agl.Mode {
	if c.q.Mode != nil {
		return *c.q.Mode
	}
	for _, mode := range modesToCompare() {
		for _, task := range c.order {
			if _, _, ok := c.ends(task); ok && task.mode == mode {
				return mode
			}
		}
	}
	for _, mode := range modesToCompare() {
		if c.modes[mode] {
			return mode
		}
	}
	return agl.ModeTrain
}

// ends are the steps at which a task is compared.
func (c *sampling) ends(task taskOf) (before, after int64, ok bool) {
	before, after = int64(math.MaxInt64), int64(math.MinInt64)
	for step := range c.tried[task] {
		before, after = min(before, step), max(after, step)
	}
	if c.q.Before != nil {
		before = *c.q.Before
	}
	if c.q.After != nil {
		after = *c.q.After
	}
	return before, after, before < after && c.tried[task][before] != nil && c.tried[task][after] != nil
}

func (c *sampling) change(task taskOf, before, after int64) (store.TaskChange, error) {
	var out store.TaskChange
	var err error
	if out.Before, _, err = c.side(task, before); err != nil {
		return out, err
	}
	if out.After, out.Task, err = c.side(task, after); err != nil {
		return out, err
	}
	if out.Before.Reward != nil && out.After.Reward != nil {
		out.Change = new(*out.After.Reward - *out.Before.Reward)
	}
	return out, nil
}

// side reads what the rollouts of a task earned at a step.
func (c *sampling) side(task taskOf, step int64) (store.TaskTried, json.RawMessage, error) {
	out := store.TaskTried{Step: step, Rollouts: []store.Sample{}}
	var input json.RawMessage
	sum := 0.0
	for _, t := range c.tried[task][step] {
		if c.ctx.Err() != nil {
			return out, nil, c.ctx.Err()
		}
		r, ok, err := c.r.Rollout(t.rollout)
		if err != nil || !ok {
			return out, nil, err
		}
		c.digested++
		b := browsing{ctx: c.ctx, r: c.r}
		item := store.Browsed{AttemptedRollout: r}
		if err := b.digestLatest(&item); err != nil {
			return out, nil, err
		}
		input = r.Input
		out.Tried++
		if item.Reward != nil {
			sum, out.Rewarded = sum+*item.Reward, out.Rewarded+1
		}
		if len(out.Rollouts) < store.SampleRollouts {
			out.Rollouts = append(out.Rollouts, store.Sample{RolloutID: t.rollout, AttemptID: t.attempt, Status: r.Status, Reward: item.Reward})
		}
	}
	if out.Rewarded > 0 {
		out.Reward = new(sum / float64(out.Rewarded))
	}
	return out, input, nil
}
