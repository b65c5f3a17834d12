package tracking

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/store"
)

// Run is what a store has of a run.
type Run struct {
	agl.Run
	// Config is the configuration as dotted keys and texts, by key, without the
	// version of the code.
	Params []Param
	// CodeVersion names the code that it last ran with; empty when it is not known.
	CodeVersion string
	Metrics     []agl.StepMetrics // by step
	Checkpoints []agl.Checkpoint  // by step, without their state
}

// Param is one value of a configuration.
type Param struct{ Key, Value string }

// Read gathers a run. Metrics that were recorded under short names, as earlier
// versions did, get the names of today.
func Read(ctx context.Context, from store.RunStore, runID string) (*Run, error) {
	run, err := from.Run(ctx, runID)
	if err != nil {
		return nil, err
	}
	r := &Run{Run: run}
	if r.Params, err = Flatten(run.Config); err != nil {
		return nil, fmt.Errorf("configuration of run %s: %w", runID, err)
	}
	r.Params = slices.DeleteFunc(r.Params, func(p Param) bool {
		if p.Key == algorithm.ConfigCodeVersion {
			r.CodeVersion = p.Value
			return true
		}
		return false
	})
	if r.Metrics, err = from.StepMetrics(ctx, runID, math.MinInt32); err != nil {
		return nil, fmt.Errorf("metrics of run %s: %w", runID, err)
	}
	for i := range r.Metrics {
		named := make(map[string]float64, len(r.Metrics[i].Values))
		for name, v := range r.Metrics[i].Values {
			named[algorithm.MetricName(run.Algorithm, name)] = v
		}
		r.Metrics[i].Values = named
	}
	if r.Checkpoints, err = from.Checkpoints(ctx, runID); err != nil {
		return nil, fmt.Errorf("checkpoints of run %s: %w", runID, err)
	}
	return r, nil
}

// Flatten turns a JSON object into dotted keys and texts, by key. Lists are kept
// as JSON, and texts lose their quotes.
func Flatten(config json.RawMessage) ([]Param, error) {
	if len(bytes.TrimSpace(config)) == 0 {
		return nil, nil
	}
	in := json.NewDecoder(bytes.NewReader(config))
	in.UseNumber()
	var value map[string]any
	if err := in.Decode(&value); err != nil {
		return nil, err
	}
	var out []Param
	if err := flatten("", value, &out); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b Param) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

func flatten(prefix string, value map[string]any, out *[]Param) error {
	for k, v := range value {
		switch v := v.(type) {
		case map[string]any:
			if err := flatten(prefix+k+".", v, out); err != nil {
				return err
			}
		case string:
			*out = append(*out, Param{prefix + k, v})
		default:
			text, err := json.Marshal(v)
			if err != nil {
				return err
			}
			*out = append(*out, Param{prefix + k, string(text)})
		}
	}
	return nil
}

// Names lists the metrics that a run has, by name.
func (r *Run) Names() []string {
	seen := map[string]bool{}
	var out []string
	for _, m := range r.Metrics {
		for name := range m.Values {
			if !seen[name] {
				seen[name] = true
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// Steps is the number of the last step that was recorded; 0 when there is none.
func (r *Run) Steps() int {
	if n := len(r.Metrics); n > 0 {
		return r.Metrics[n-1].Step
	}
	return 0
}

// News is when the run was last heard of, in Unix seconds.
func (r *Run) News() float64 {
	at := r.StartTime
	for _, m := range r.Metrics {
		at = max(at, m.Time)
	}
	for _, c := range r.Checkpoints {
		at = max(at, c.Time)
	}
	if r.EndTime != nil {
		at = max(at, *r.EndTime)
	}
	return at
}

// Best is the best score of a run, the metric that it is of and its step: the
// validation reward where there is one, otherwise the best score of an optimiser
// of prompts, otherwise the training reward.
func (r *Run) Best() (score float64, metric string, step int, ok bool) {
	for _, name := range []string{algorithm.MetricValidationReward, "training/best_score", algorithm.MetricReward} {
		for _, m := range r.Metrics {
			if v, has := m.Values[name]; has && (!ok || v > score) {
				score, metric, step, ok = v, name, m.Step, true
			}
		}
		if ok {
			return score, metric, step, true
		}
	}
	return 0, "", 0, false
}

// Figure is a metric of a run over its steps.
type Figure struct {
	Last     float64 `json:"last"`
	LastStep int     `json:"last_step"`
	Min      float64 `json:"min"`
	MinStep  int     `json:"min_step"`
	Max      float64 `json:"max"`
	MaxStep  int     `json:"max_step"`
}

// Figure sums up a metric; nil when the run has none of that name.
func (r *Run) Figure(name string) *Figure {
	var f *Figure
	for _, m := range r.Metrics {
		v, ok := m.Values[name]
		if !ok {
			continue
		}
		if f == nil {
			f = &Figure{Min: v, MinStep: m.Step, Max: v, MaxStep: m.Step}
		}
		f.Last, f.LastStep = v, m.Step
		if v < f.Min {
			f.Min, f.MinStep = v, m.Step
		}
		if v > f.Max {
			f.Max, f.MaxStep = v, m.Step
		}
	}
	return f
}

// Sample is one rollout that a run asked for.
type Sample struct {
	RolloutID string          `json:"rollout_id"`
	Step      int             `json:"step"`
	Group     string          `json:"group"`
	Member    int             `json:"member"`
	Mode      string          `json:"mode"`
	Status    string          `json:"status"`
	Reward    *float64        `json:"reward"` // nil when it failed or has none
	Input     json.RawMessage `json:"input"`
}

// samplesAtATime is how many rollouts are read at a time.
const samplesAtATime = 200

// Samples calls visit with the rollouts that a run asked for, the newest first,
// of one step unless step is negative. Rewards are those of a set, empty for
// those that agents gave.
func (r *Run) Samples(ctx context.Context, from store.Store, step int, set string, visit func(*Sample) error) error {
	which := algorithm.Stored{RewardSet: set}
	q := store.RolloutQuery{Paging: store.Paging{SortBy: "start_time", Desc: true, Limit: samplesAtATime}}
	seen := map[string]bool{} // new rollouts push others to the next page
	for {
		page, err := from.QueryRollouts(ctx, q)
		if err != nil {
			return fmt.Errorf("rollouts of run %s: %w", r.RunID, err)
		}
		for i := range page.Items {
			one := &page.Items[i]
			if one.StartTime < r.StartTime {
				return nil // and so are those that follow
			}
			s, ok := r.sample(&one.Rollout)
			if !ok || step >= 0 && s.Step != step || seen[s.RolloutID] {
				continue
			}
			seen[s.RolloutID] = true
			if one.Status == agl.RolloutSucceeded {
				outcomes, err := which.Outcomes(ctx, from, []string{s.RolloutID})
				if err != nil {
					return err
				}
				s.Reward = outcomes[0].Reward
			}
			if err := visit(&s); err != nil {
				return err
			}
		}
		if q.Offset += len(page.Items); len(page.Items) == 0 || q.Offset >= page.Total {
			return nil
		}
	}
}

func (r *Run) sample(one *agl.Rollout) (Sample, bool) {
	var m struct {
		RunID  string `json:"agl.run_id"`
		Step   int    `json:"agl.step"`
		Group  string `json:"agl.group"`
		Member int    `json:"agl.member"`
	}
	if len(one.Metadata) == 0 || json.Unmarshal(one.Metadata, &m) != nil || m.RunID != r.RunID {
		return Sample{}, false
	}
	return Sample{
		RolloutID: one.RolloutID, Step: m.Step, Group: m.Group, Member: m.Member,
		Mode: string(one.Mode), Status: string(one.Status), Input: one.Input,
	}, true
}
