package pg

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/algorithm/stage"
	"agentlightning/semconv"
	"agentlightning/store"
)

// Follow makes the algorithm learn from rollouts that others report: it has no
// tasks of its own and asks for nothing. A rollout is trained on once it has
// finished and has a reward, and never twice. Rollouts for validation or tests,
// and those that some run asked for, are none of its business.
//
// Estimators that compare the members of a group compare rollouts that name the
// same group in their metadata (agl.group), or whose tasks have the same data_id,
// or are equal; a group waits until it is large enough. Estimators without groups,
// such as REINFORCE++, take every rollout.
//
// What was left out, and why, is in the metrics of a step as left_out_REASON:
//
//	stale       the weights have moved on too far since it started
//	failed      it did not succeed, and the method drops such rollouts
//	unrewarded  it finished without a reward, and none came within RewardWait
//	no_calls    none of its model calls can be trained on
//	late        it did not finish within Window, or found no group in time
type Follow struct {
	// Rollouts is how many an update takes, more when a group is larger; 0 means 64.
	Rollouts int `json:"rollouts"`
	// MaxStaleness is by how many updates the weights may have moved on since
	// those that were published when the rollout started; 0 is no limit.
	MaxStaleness int `json:"max_staleness,omitempty"`
	// RewardWait is how long a rollout that has finished may wait for its reward;
	// 0 is not at all.
	RewardWait time.Duration `json:"reward_wait,omitempty"`
	// Window is how long after its start a rollout is waited for; 0 means 24 hours.
	Window time.Duration `json:"window,omitempty"`
	// Earlier takes those, too, that started before the run did, within Window.
	Earlier bool `json:"earlier,omitempty"`
}

func (f Follow) withDefaults() *Follow {
	f.Rollouts = cmp.Or(f.Rollouts, 64)
	f.Window = cmp.Or(f.Window, 24*time.Hour)
	return &f
}

func (f *Follow) validate() error {
	switch {
	case f.Rollouts < 0:
		return fmt.Errorf("Follow.Rollouts: %d: must be at least 1", f.Rollouts)
	case f.MaxStaleness < 0:
		return fmt.Errorf("Follow.MaxStaleness: %d: must not be negative", f.MaxStaleness)
	case f.RewardWait < 0:
		return fmt.Errorf("Follow.RewardWait: %v: must not be negative", f.RewardWait)
	case f.Window < 0 || f.Window < f.RewardWait:
		return fmt.Errorf("Follow.Window: %v: must be at least RewardWait, %v", f.Window, f.RewardWait)
	}
	return nil
}

// following is what a run that follows others knows of them.
type following struct {
	// Floor is the start before which every rollout is settled; Settled are those
	// after it that are: trained on, or left out.
	Floor   float64  `json:"floor"`
	Settled []string `json:"settled,omitempty"`
	// Published says which weights were given out from when on, by the clock of
	// the store.
	Published []publication `json:"published,omitempty"`

	settled map[string]bool
	seen    map[string]followed // all that started after Floor
	why     map[string]int      // of those left out since the last step
}

type publication struct {
	Updates int     `json:"updates"` // that the weights are of
	Time    float64 `json:"time"`
}

// followed is a rollout of somebody else.
type followed struct {
	start   float64
	outcome *algorithm.Outcome // nil when it cannot be trained on yet, or any more
	group   string
	again   time.Time // when to look again for its reward
}

// clockSlack is how much the clocks of those who create rollouts may differ, in
// seconds.
const clockSlack = 60

// pollEvery is the least time between looks at what others reported; looks take
// at most a tenth of the time. followPage is how many rollouts one reads at once.
const (
	pollEvery  = 250 * time.Millisecond
	followPage = 500
)

func (f *following) published(updates int, at float64) {
	f.Published = append(f.Published, publication{updates, at})
}

// staleness is by how many updates weights that were given out at a start are
// behind those of so many updates.
func (f *following) staleness(start float64, updates int) int {
	given := 0
	for _, p := range f.Published {
		if p.Time <= start {
			given = p.Updates
		}
	}
	return updates - given
}

// settle notes that rollouts were trained on, and forgets what lies too far back
// to be seen again.
func (f *following) settle(trained map[string]bool) {
	for id := range trained {
		f.leave(id)
	}
	f.why = nil
	newest, open := 0.0, math.Inf(1)
	for id, r := range f.seen {
		if newest = max(newest, r.start); !f.settled[id] {
			open = min(open, r.start)
		}
	}
	f.Floor, f.Settled = max(f.Floor, min(newest, open)-clockSlack), nil
	for id := range f.settled {
		if f.seen[id].start < f.Floor {
			delete(f.settled, id)
			delete(f.seen, id)
			continue
		}
		f.Settled = append(f.Settled, id)
	}
	slices.Sort(f.Settled)
	for len(f.Published) > 1 && f.Published[1].Time <= f.Floor {
		f.Published = f.Published[1:]
	}
}

// leave settles a rollout.
func (f *following) leave(id string) {
	r := f.seen[id]
	r.outcome = nil // its spans are not needed any more
	f.seen[id], f.settled[id] = r, true
}

// follow waits until there is enough to train on.
func (t *training) follow(ctx context.Context, step int) (gathered, error) {
	f := t.Following
	if f.settled == nil {
		f.settled, f.seen = map[string]bool{}, map[string]followed{}
		for _, id := range f.Settled {
			f.settled[id] = true
		}
		if f.Floor == 0 {
			f.Floor = t.run.StartTime
			if t.Follow.Earlier {
				f.Floor -= t.Follow.Window.Seconds()
			}
		}
	}
	if f.why == nil {
		f.why = map[string]int{}
	}
	last, before := time.Now(), 0
	for {
		looked := time.Now()
		if err := t.look(ctx, step-1); err != nil {
			return gathered{}, err
		}
		chosen, ready := t.enough()
		if ready >= t.Follow.Rollouts {
			return t.takeFollowed(chosen), nil
		}
		if ready != before {
			before, last = ready, time.Now()
			stage.Progress(ctx, "%d of %d rollouts reported", ready, t.Follow.Rollouts)
			if t.OnProgress != nil {
				t.OnProgress(step, ready, t.Follow.Rollouts)
			}
		}
		if stall := t.stall(); stall > 0 && time.Since(last) >= stall {
			return gathered{}, fmt.Errorf("no rollout to train on was reported for %v; there are %d of %d, and %v were left out",
				stall, ready, t.Follow.Rollouts, f.why)
		}
		pause := time.NewTimer(max(pollEvery, 9*time.Since(looked)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return gathered{}, context.Cause(ctx)
		case <-pause.C:
		}
	}
}

// look reads what is new, when the weights are of so many updates.
func (t *training) look(ctx context.Context, updates int) error {
	f := t.Following
	for offset := 0; ; offset += followPage {
		page, err := t.env.Store.QueryRollouts(ctx, store.RolloutQuery{
			Paging: store.Paging{SortBy: "start_time", Desc: true, Limit: followPage, Offset: offset},
		})
		if err != nil {
			return fmt.Errorf("look for rollouts: %w", err)
		}
		var finished []string
		for i := range page.Items {
			r := &page.Items[i]
			if r.StartTime < f.Floor {
				break
			}
			known, seen := f.seen[r.RolloutID]
			if f.settled[r.RolloutID] {
				f.seen[r.RolloutID] = followed{start: r.StartTime}
				continue
			}
			if !seen {
				known = followed{start: r.StartTime, group: groupOf(&r.Rollout)}
				f.seen[r.RolloutID] = known
			}
			if known.outcome == nil && !time.Now().Before(known.again) && t.sort(r, updates) {
				finished = append(finished, r.RolloutID)
			}
		}
		if err := t.read(ctx, finished); err != nil {
			return err
		}
		if n := len(page.Items); n < followPage || page.Items[n-1].StartTime < f.Floor {
			break
		}
	}
	for id, r := range f.seen { // also those that are ready but wait for a group
		if !f.settled[id] && t.Follow.MaxStaleness > 0 && f.staleness(r.start, updates) > t.Follow.MaxStaleness {
			t.leaveOut(id, "stale")
		}
		if !f.settled[id] && time.Since(agl.Time(r.start)) > t.Follow.Window {
			t.leaveOut(id, "late")
		}
	}
	return nil
}

func (t *training) leaveOut(id, why string) {
	t.Following.leave(id)
	t.Following.why[why]++
}

// sort settles a rollout that is never trained on, and reports whether its spans
// are to be read.
func (t *training) sort(r *agl.AttemptedRollout, updates int) bool {
	f := t.Following
	switch {
	case r.Mode == agl.ModeVal || r.Mode == agl.ModeTest, r.MetadataValue(semconv.MetadataRunID) != nil:
		f.leave(r.RolloutID)
	case t.Follow.MaxStaleness > 0 && f.staleness(r.StartTime, updates) > t.Follow.MaxStaleness:
		t.leaveOut(r.RolloutID, "stale")
	default:
		return r.Status.Terminal()
	}
	return false
}

// read looks at what finished rollouts are worth.
func (t *training) read(ctx context.Context, finished []string) error {
	if len(finished) == 0 {
		return nil
	}
	outcomes, err := algorithm.Collect(ctx, t.env.Store, finished, algorithm.Collecting{Stall: -1})
	if err != nil {
		return err
	}
	for _, o := range outcomes {
		id := o.Rollout.RolloutID
		r := t.Following.seen[id]
		zero := t.Method.zeroFailed()
		switch {
		case o.Failure != "" && t.Method.reward(o) == nil && !zero:
			t.leaveOut(id, "failed")
		case t.Method.reward(o) == nil && !zero:
			if end := o.Rollout.EndTime; end == nil || time.Since(agl.Time(*end)) >= t.Follow.RewardWait {
				t.leaveOut(id, "unrewarded")
				continue
			}
			r.again = time.Now().Add(t.Follow.RewardWait / 20)
			t.Following.seen[id] = r
		case !trainable(o):
			t.leaveOut(id, "no_calls")
		default:
			r.outcome = &o
			t.Following.seen[id] = r
		}
	}
	return nil
}

// trainable reports whether a rollout has a call that can be trained on.
func trainable(o algorithm.Outcome) bool {
	r := credit.Read(o.Rollout.RolloutID, "", o.Spans)
	for i := range r.Calls {
		if r.Calls[i].Usable() {
			return true
		}
	}
	return false
}

// groupOf names the group of a rollout of somebody else.
func groupOf(r *agl.Rollout) string {
	var name string
	if json.Unmarshal(r.MetadataValue(semconv.MetadataGroup), &name) == nil && name != "" {
		return "group/" + name
	}
	var input struct {
		DataID any `json:"data_id"`
	}
	if json.Unmarshal(r.Input, &input) == nil && input.DataID != nil {
		return fmt.Sprint("data/", input.DataID)
	}
	return algorithm.GroupOf(r)
}

// enough returns the rollouts that the next update would take, and how many are
// ready in all.
func (t *training) enough() (chosen []string, ready int) {
	f := t.Following
	groups := map[string][]string{}
	var names []string
	var waiting []string
	for id, r := range f.seen {
		if r.outcome != nil {
			waiting = append(waiting, id)
		}
	}
	slices.SortFunc(waiting, func(a, b string) int {
		return cmp.Or(cmp.Compare(f.seen[a].start, f.seen[b].start), cmp.Compare(a, b))
	})
	for _, id := range waiting {
		name := id // each by itself
		if t.Method.grouped() {
			name = f.seen[id].group
		}
		if groups[name] == nil {
			names = append(names, name)
		}
		groups[name] = append(groups[name], id)
	}
	least := 1
	if t.Method.grouped() {
		least = cmp.Or(t.Method.Advantages.MinMembers, 2)
	}
	for _, name := range names {
		if len(groups[name]) < least {
			continue
		}
		ready += len(groups[name])
		if len(chosen) < t.Follow.Rollouts {
			chosen = append(chosen, groups[name]...)
		}
	}
	return chosen, ready
}

// takeFollowed makes what a step is trained on of the chosen rollouts.
func (t *training) takeFollowed(chosen []string) gathered {
	f := t.Following
	t.taken = map[string]bool{}
	g := gathered{metrics: map[string]float64{}}
	for _, id := range chosen {
		r := f.seen[id]
		g.outcomes, g.groups = append(g.outcomes, *r.outcome), append(g.groups, r.group)
		t.taken[id] = true
	}
	for why, n := range f.why {
		g.metrics["left_out_"+why] = float64(n)
	}
	waiting := -len(chosen)
	for id, r := range f.seen {
		if !f.settled[id] && r.outcome != nil {
			waiting++
		}
	}
	g.metrics["followed_waiting"] = float64(waiting)
	return g
}
