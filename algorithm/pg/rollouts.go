package pg

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strconv"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/rl"
	"agentlightning/store"
)

// asked is a rollout of the step in hand.
type asked struct {
	ID    string `json:"id"`
	Group int    `json:"group"` // of the step, in the order in which tasks were drawn
}

// gather asks for the groups of a step, or takes up those that were asked for
// before an interruption, waits for them, and asks for more where the method
// says so. It returns the outcomes and the group of each.
func (t *training) gather(ctx context.Context, step int) ([]algorithm.Outcome, []string, error) {
	if len(t.pending) == 0 {
		groups := make([]int, t.Tasks)
		for i := range groups {
			groups[i] = i
		}
		if err := t.ask(ctx, step, groups, 0, t.GroupSize); err != nil {
			return nil, nil, err
		}
	}
	var outcomes []algorithm.Outcome
	for {
		more, err := t.collect(ctx, step, t.pending[len(outcomes):])
		if err != nil {
			return nil, nil, err
		}
		outcomes = append(outcomes, more...)
		again, err := t.askMore(ctx, step, outcomes)
		if err != nil {
			return nil, nil, err
		}
		if !again {
			break
		}
	}
	groups := make([]string, len(outcomes))
	for i, a := range t.pending {
		groups[i] = strconv.Itoa(a.Group)
	}
	return outcomes, groups, nil
}

// ask enqueues rollouts from member on of some groups, and keeps that it did.
func (t *training) ask(ctx context.Context, step int, groups []int, member, count int) error {
	requests := make([]request, 0, len(groups)*count)
	for _, g := range groups {
		task := t.env.Train[t.pick(t.drawn+g)]
		for m := member; m < member+count; m++ {
			requests = append(requests, request{task, g, m})
		}
	}
	return t.enqueuePending(ctx, step, requests)
}

func (t *training) enqueuePending(ctx context.Context, step int, requests []request) error {
	ids, err := t.enqueue(ctx, step, agl.ModeTrain, requests)
	if err != nil {
		return err
	}
	for i, id := range ids {
		t.pending = append(t.pending, asked{id, requests[i].group})
	}
	return t.mark(ctx, step-1)
}

// askMore fills groups that are short and replaces those that teach nothing, as
// often as the method allows. It reports whether it asked for anything.
func (t *training) askMore(ctx context.Context, step int, outcomes []algorithm.Outcome) (bool, error) {
	if t.rounds >= max(t.Method.Refill, t.Method.Resample) {
		return false, nil
	}
	groups, sizes := 0, map[int]int{}
	members := make([]rl.Member, len(outcomes))
	for i, o := range outcomes {
		g := t.pending[i].Group
		groups = max(groups, g+1)
		sizes[g]++
		members[i] = rl.Member{Group: strconv.Itoa(g), Reward: t.Method.reward(o), Failed: o.Failure != ""}
	}
	var requests []request
	if t.rounds < t.Method.Refill {
		for _, s := range rl.Shortages(members, t.Method.comparison(), t.GroupSize) {
			g, err := strconv.Atoi(s.Group)
			if err != nil {
				return false, err
			}
			for m := range s.Missing {
				requests = append(requests, request{t.env.Train[t.pick(t.drawn+g)], g, sizes[g] + m})
			}
		}
	}
	if t.rounds < t.Method.Resample {
		lacking, err := t.lacking(members)
		if err != nil {
			return false, err
		}
		for g := groups; g < groups+lacking; g++ {
			for m := range t.GroupSize {
				requests = append(requests, request{t.env.Train[t.pick(t.drawn+g)], g, m})
			}
		}
	}
	if len(requests) == 0 {
		return false, nil
	}
	t.rounds++
	return true, t.enqueuePending(ctx, step, requests)
}

// lacking is how many groups short of Tasks have something to teach. Groups that
// are being refilled may still come to have it.
func (t *training) lacking(members []rl.Member) (int, error) {
	_, stats, err := rl.Advantages(members, rl.AdvantageConfig{
		MinMembers: t.Method.Advantages.MinMembers, OnFailure: t.Method.Advantages.OnFailure,
	})
	if err != nil {
		return 0, err
	}
	return max(0, t.Tasks-(stats.Groups-stats.GroupsConstant-stats.GroupsSmall)), nil
}

// pick returns the index of the n-th task that is drawn: every pass over the
// tasks takes each of them once, in an order of its own.
func (t *training) pick(n int) int {
	of := len(t.env.Train)
	if pass := n / of; t.order == nil || t.pass != pass {
		t.pass, t.order = pass, rand.New(rand.NewPCG(uint64(t.Seed), uint64(pass))).Perm(of)
	}
	return t.order[n%of]
}

// metadata ties a rollout to its run; the keys are those of package semconv.
type metadata struct {
	RunID  string `json:"agl.run_id"`
	Step   int    `json:"agl.step"`
	Group  string `json:"agl.group"`
	Member int    `json:"agl.member"`
	Seed   int64  `json:"agl.seed"`
}

// request is a rollout to ask for.
type request struct {
	task          json.RawMessage
	group, member int
}

func (t *training) enqueue(ctx context.Context, step int, mode agl.Mode, wanted []request) ([]string, error) {
	requests := make([]store.EnqueueRequest, 0, len(wanted))
	for _, r := range wanted {
		m, err := json.Marshal(metadata{
			t.run.RunID, step, strconv.Itoa(r.group), r.member,
			rolloutSeed(t.Seed, step, mode, r.group, r.member),
		})
		if err != nil {
			return nil, err
		}
		requests = append(requests, store.EnqueueRequest{Input: r.task, Mode: mode, Config: &t.Rollout, Metadata: m})
	}
	return algorithm.Ask(ctx, t.env.Store, requests)
}

// rolloutSeed is what the agent of one rollout derives its randomness from, a
// number that any JSON reader keeps exactly.
func rolloutSeed(seed int64, step int, mode agl.Mode, group, member int) int64 {
	kind := uint64(1)
	if mode != agl.ModeTrain {
		kind = 2
	}
	r := rand.New(rand.NewPCG(uint64(seed), uint64(step)<<40|uint64(group)<<20|uint64(member)<<4|kind))
	return r.Int64N(1 << 31)
}

func (t *training) collect(ctx context.Context, step int, rollouts []asked) ([]algorithm.Outcome, error) {
	how := algorithm.Collecting{Stall: t.Stall}
	if t.OnProgress != nil {
		how.OnProgress = func(finished, of int) { t.OnProgress(step, finished, of) }
	}
	ids := make([]string, len(rollouts))
	for i, r := range rollouts {
		ids[i] = r.ID
	}
	return algorithm.Collect(ctx, t.env.Store, ids, how)
}
