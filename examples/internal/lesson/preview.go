package lesson

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/algorithm/pg"
	"agentlightning/semconv"
	"agentlightning/store"
)

// Share is what the calls of one agent in one rollout of a group got.
type Share struct {
	Rollout int    `json:"rollout"` // from 1
	Agent   string `json:"agent"`
	Calls   int    `json:"calls"` // that are trained on
	// Credit and Advantage are the means over these calls; 0 without any.
	Credit    float64 `json:"credit"`
	Advantage float64 `json:"advantage"`
	// Reward has all parts of the final reward of the rollout.
	Reward []Part `json:"reward"`
}

// Part is one dimension of a reward.
type Part struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Parts are the dimensions of a reward by their names.
func Parts(reward []agl.RewardDimension) map[string]float64 {
	parts := map[string]float64{}
	for _, d := range reward {
		parts[d.Name] = d.Value
	}
	return parts
}

// Preview lets agents work on tasks n times each, sampled as in training, until one
// goes differently for all agents, the last otherwise. It returns which task that
// is and what a training with the method would give each agent for it. The agents
// are listed in the order that is given.
func Preview[T any](ctx context.Context, env algorithm.Env, limits agl.RolloutConfig, tasks []T, n int, seed int64, method pg.Method, agents ...string) (at int, shares []Share, err error) {
	for i, task := range tasks {
		if shares, err = preview(ctx, env, limits, task, n, seed, method, agents); err != nil {
			return 0, nil, err
		}
		at = i
		if !slices.ContainsFunc(shares, func(s Share) bool { return s.Calls == 0 }) {
			break
		}
	}
	return at, shares, nil
}

// preview looks at one task.
func preview(ctx context.Context, env algorithm.Env, limits agl.RolloutConfig, task any, n int, seed int64, method pg.Method, agents []string) ([]Share, error) {
	list, err := algorithm.Tasks([]any{task})
	if err != nil {
		return nil, err
	}
	requests := make([]store.EnqueueRequest, n)
	for i := range requests {
		// Far enough apart that no two rollouts share the seed of a turn.
		metadata, err := json.Marshal(map[string]any{semconv.MetadataSeed: seed + 1000*int64(i), "example.when": "preview"})
		if err != nil {
			return nil, err
		}
		requests[i] = store.EnqueueRequest{Input: list[0], Mode: agl.ModeTrain, Config: &limits, Metadata: metadata}
	}
	ids, err := algorithm.Ask(ctx, env.Store, requests)
	if err != nil {
		return nil, err
	}
	outcomes, err := algorithm.Collect(ctx, env.Store, ids, algorithm.Collecting{})
	if err != nil {
		return nil, err
	}
	rollouts := make([]credit.Rollout, n)
	for i, o := range outcomes {
		rollouts[i] = credit.Read(o.Rollout.RolloutID, "preview", o.Spans)
		rollouts[i].Failed = o.Rollout.Status != agl.RolloutSucceeded
	}
	assigned, err := credit.Assign(rollouts, method.Credit, method.Advantages)
	if err != nil {
		return nil, fmt.Errorf("preview of credit: %w", err)
	}
	var out []Share
	for i, r := range rollouts {
		var parts []Part
		for _, d := range r.Dimensions {
			parts = append(parts, Part(d))
		}
		for _, agent := range agents {
			s := Share{Rollout: i + 1, Agent: agent, Reward: parts}
			for k, c := range assigned.Calls[i] {
				if r.Calls[k].Agent == agent && c.Used {
					s.Calls++
					s.Credit += *c.Reward
					s.Advantage += c.Advantage
				}
			}
			if s.Calls > 0 {
				s.Credit /= float64(s.Calls)
				s.Advantage /= float64(s.Calls)
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// PrintShares shows a preview as a table.
func PrintShares(out io.Writer, shares []Share) error {
	tw := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprint(tw, "rollout")
	if len(shares) > 0 {
		for _, d := range shares[0].Reward {
			fmt.Fprint(tw, "\t"+d.Name)
		}
	}
	fmt.Fprintln(tw, "\tagent\tcalls\tcredit\tadvantage")
	for _, s := range shares {
		fmt.Fprint(tw, s.Rollout)
		for _, d := range s.Reward {
			fmt.Fprintf(tw, "\t%.2f", d.Value)
		}
		if s.Calls == 0 {
			fmt.Fprintf(tw, "\t%s\t0\t–\tnot trained on\n", s.Agent)
			continue
		}
		fmt.Fprintf(tw, "\t%s\t%d\t%.2f\t%+.2f\n", s.Agent, s.Calls, s.Credit, s.Advantage)
	}
	return tw.Flush()
}
