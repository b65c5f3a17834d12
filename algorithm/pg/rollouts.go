package pg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/internal/journal"
	"agentlightning/rl"
	"agentlightning/store"
)

// asked is a rollout that was asked for.
type asked struct {
	ID    string `json:"id"`
	Step  int    `json:"step"`  // that asked for it
	Group int    `json:"group"` // of that step, in the order in which tasks were drawn
	// Member is its place in the group; the greedy one has none.
	Member int `json:"member"`
	// Draw is which draw the task of the group came from, so that it names the
	// group in the whole run.
	Draw int `json:"draw"`
	// Greedy is the rollout that the others are compared with.
	Greedy bool `json:"greedy,omitempty"`
}

func (a asked) group() string { return strconv.Itoa(a.Draw) }

// request is a rollout to ask for.
type request struct {
	asked
	task json.RawMessage
}

// gatherAll asks for the groups of a step, or takes up those that were asked for
// before an interruption, waits for them, and asks for more where the method
// says so.
func (t *training) gatherAll(ctx context.Context, step int) (gathered, error) {
	if len(t.Pending) == 0 {
		if err := t.ask(ctx, step, "train", t.newGroups(step, 0, t.Tasks)); err != nil {
			return gathered{}, err
		}
	}
	var outcomes []algorithm.Outcome
	for {
		more, err := t.collect(ctx, step, ids(t.Pending[len(outcomes):]))
		if err != nil {
			return gathered{}, err
		}
		outcomes = append(outcomes, more...)
		again, err := t.askMore(ctx, step, outcomes)
		if err != nil {
			return gathered{}, err
		}
		if !again {
			return t.take(t.Pending, outcomes), nil
		}
	}
}

// take makes what a step is trained on of rollouts and their outcomes.
func (t *training) take(rollouts []asked, outcomes []algorithm.Outcome) gathered {
	g := gathered{baselines: map[string]algorithm.Outcome{}, metrics: map[string]float64{}}
	t.taken = map[string]bool{}
	for i, a := range rollouts {
		t.taken[a.ID] = true
		if a.Greedy {
			g.baselines[a.group()] = outcomes[i]
			continue
		}
		g.outcomes, g.groups = append(g.outcomes, outcomes[i]), append(g.groups, a.group())
	}
	return g
}

// newGroups draws tasks for groups of a step, from group number from on.
func (t *training) newGroups(step, from, count int) []request {
	var requests []request
	for g := from; g < from+count; g++ {
		draw := t.Drawn + g - from
		for m := range t.GroupSize {
			requests = append(requests, t.member(asked{Step: step, Group: g, Member: m, Draw: draw}))
		}
		if t.Method.Advantages.Estimator == rl.ReMax {
			requests = append(requests, t.member(asked{Step: step, Group: g, Draw: draw, Greedy: true}))
		}
	}
	return requests
}

func (t *training) member(a asked) request { return request{a, t.env.Train[t.pick(a.Draw)]} }

// ask enqueues rollouts to train on, and keeps that it did.
func (t *training) ask(ctx context.Context, step int, key string, requests []request) error {
	ids, err := t.enqueue(ctx, step, key, agl.ModeTrain, requests)
	if err != nil {
		return err
	}
	for i, id := range ids {
		a := requests[i].asked
		a.ID = id
		t.Pending = append(t.Pending, a)
		t.Drawn = max(t.Drawn, a.Draw+1)
	}
	return t.mark(ctx, step-1)
}

// askMore fills groups that are short and replaces those that teach nothing, as
// often as the method allows. It reports whether it asked for anything.
func (t *training) askMore(ctx context.Context, step int, outcomes []algorithm.Outcome) (bool, error) {
	if t.Rounds >= max(t.Method.Refill, t.Method.Resample) {
		return false, nil
	}
	groups, first, sizes := 0, map[string]asked{}, map[string]int{}
	var members []rl.Member
	for i, o := range outcomes {
		a := t.Pending[i]
		if a.Greedy {
			continue
		}
		groups = max(groups, a.Group+1)
		if sizes[a.group()]++; sizes[a.group()] == 1 {
			first[a.group()] = a
		}
		members = append(members, rl.Member{Group: a.group(), Reward: t.Method.reward(o), Failed: o.Failure != ""})
	}
	var requests []request
	if t.Rounds < t.Method.Refill {
		for _, s := range rl.Shortages(members, t.Method.comparison(), t.GroupSize) {
			for m := range s.Missing {
				a := first[s.Group]
				a.Member = sizes[s.Group] + m
				requests = append(requests, t.member(a))
			}
		}
	}
	if t.Rounds < t.Method.Resample {
		lacking, err := t.lacking(members)
		if err != nil {
			return false, err
		}
		requests = append(requests, t.newGroups(step, groups, lacking)...)
	}
	if len(requests) == 0 {
		return false, nil
	}
	t.Rounds++
	return true, t.ask(ctx, step, "train/"+strconv.Itoa(t.Rounds), requests)
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
	of := t.drawable()
	if pass := n / of; t.order == nil || t.pass != pass {
		t.pass, t.order = pass, rand.New(rand.NewPCG(uint64(t.Seed), uint64(pass))).Perm(of)
	}
	return t.order[n%of]
}

// metadata ties a rollout to its run; the keys are those of package semconv.
type metadata struct {
	RunID    string `json:"agl.run_id"`
	Step     int    `json:"agl.step"`
	Group    string `json:"agl.group"`
	Member   int    `json:"agl.member"`
	Seed     int64  `json:"agl.seed"`
	Request  string `json:"agl.request"`
	Baseline bool   `json:"agl.baseline,omitempty"`
}

// enqueue asks for rollouts once, however often the run is killed before it
// could note that it did: those that are there already are found by their key.
func (t *training) enqueue(ctx context.Context, step int, key string, mode agl.Mode, wanted []request) ([]string, error) {
	requests := make([]store.EnqueueRequest, len(wanted))
	digest := sha256.New()
	for i, r := range wanted {
		kind := mode
		if r.Greedy { // agents sample greedily when they are not trained
			kind = agl.ModeVal
		}
		m, err := json.Marshal(metadata{
			t.run.RunID, step, strconv.Itoa(r.Group), r.Member, rolloutSeed(t.Seed, step, kind, r.Group, r.Member), key, r.Greedy,
		})
		if err != nil {
			return nil, err
		}
		requests[i] = store.EnqueueRequest{Input: r.task, Mode: kind, Config: &t.Rollout, Metadata: m}
		digest.Write(m)
		digest.Write(r.task)
	}
	if t.resumed {
		t.resumed = false
		if ids, err := t.adopt(ctx, step, key, wanted); err != nil || ids != nil {
			return ids, err
		}
	}
	// The key is for a request of the killed process that is still on its way.
	once := store.WithKey(ctx, t.run.RunID+"/"+hex.EncodeToString(digest.Sum(nil)[:16]))
	return algorithm.Ask(once, t.env.Store, requests)
}

// adopt returns the rollouts that an execution asked for that was killed before
// it could note them; nil when there are none.
func (t *training) adopt(ctx context.Context, step int, key string, wanted []request) ([]string, error) {
	rollouts, err := journal.Find(ctx, t.env.Store, t.run.Run, step, key)
	if err != nil || len(rollouts) != len(wanted) {
		return nil, err
	}
	type place struct {
		group  string
		member int
		greedy bool
	}
	found := map[place]string{}
	for _, r := range rollouts {
		var m metadata
		if err := json.Unmarshal(r.Metadata, &m); err != nil {
			return nil, fmt.Errorf("metadata of rollout %s: %w", r.RolloutID, err)
		}
		found[place{m.Group, m.Member, m.Baseline}] = r.RolloutID
	}
	ids := make([]string, len(wanted))
	for i, r := range wanted {
		if ids[i] = found[place{strconv.Itoa(r.Group), r.Member, r.Greedy}]; ids[i] == "" {
			return nil, nil
		}
	}
	t.env.Logger.InfoContext(ctx, "found rollouts that were asked for", "run_id", t.run.RunID, "step", step, "rollouts", len(ids))
	return ids, nil
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

func (t *training) collect(ctx context.Context, step int, ids []string) ([]algorithm.Outcome, error) {
	how := algorithm.Collecting{Stall: t.Stall}
	if t.OnProgress != nil {
		how.OnProgress = func(finished, of int) { t.OnProgress(step, finished, of) }
	}
	return algorithm.Collect(ctx, t.env.Store, ids, how)
}

func ids(rollouts []asked) []string {
	out := make([]string, len(rollouts))
	for i, r := range rollouts {
		out[i] = r.ID
	}
	return out
}
