package grpo

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strconv"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/store"
)

// ask enqueues the groups of a step, or takes up those that were asked for
// before an interruption, and returns their ids, group by group.
func (t *training) ask(ctx context.Context, step int) ([]string, error) {
	if len(t.pending) > 0 {
		return t.pending, nil
	}
	tasks := make([]json.RawMessage, t.Tasks)
	for i := range tasks {
		tasks[i] = t.env.Train[t.pick((step-1)*t.Tasks+i)]
	}
	ids, err := t.enqueue(ctx, step, agl.ModeTrain, tasks, t.GroupSize)
	if err != nil {
		return nil, err
	}
	t.pending = ids
	return ids, t.mark(ctx, step-1)
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

func (t *training) enqueue(ctx context.Context, step int, mode agl.Mode, tasks []json.RawMessage, size int) ([]string, error) {
	requests := make([]store.EnqueueRequest, 0, len(tasks)*size)
	for i, task := range tasks {
		for member := range size {
			m, err := json.Marshal(metadata{
				t.run.RunID, step, strconv.Itoa(i), member,
				rolloutSeed(t.Seed, step, mode, i, member),
			})
			if err != nil {
				return nil, err
			}
			requests = append(requests, store.EnqueueRequest{Input: task, Mode: mode, Config: &t.Rollout, Metadata: m})
		}
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

func (t *training) collect(ctx context.Context, step int, ids []string) ([]algorithm.Outcome, error) {
	how := algorithm.Collecting{Stall: t.Stall}
	if t.OnProgress != nil {
		how.OnProgress = func(finished, of int) { t.OnProgress(step, finished, of) }
	}
	return algorithm.Collect(ctx, t.env.Store, ids, how)
}

func groupOf(i, size int) string { return strconv.Itoa(i / size) }
