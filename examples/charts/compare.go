package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/algorithm"
	"agentlightning/examples/charts/chart"
	"agentlightning/examples/internal/lesson"
)

// variant is one of the prompts, and sizes are those of the pictures.
type variant struct{ Name, Text string }

const begin = "You read charts. Answer with the number or the name alone."

func prompts() []variant {
	return []variant{
		{"plain", begin},
		{"axis", begin + " " + tellsOfAxis},
		{"axis, measure", begin + " " + tellsOfAxis + " " + tellsMeasures},
	}
}

func sizes() []int { return []int{1, 2, 4} }

// comparison is the algorithm: every prompt is tried with every size of picture on
// all tasks. Of those that come within enough of the best one it keeps the one
// with the fewest tokens, and tries it, the first, and the same in the other API
// on tasks that had no say in it.
type comparison struct {
	llm agl.NamedResource
	out io.Writer

	report report
}

// enough is how much of the mean reward is not worth a larger picture.
const enough = 0.02

// report holds the figures of a run as --report writes them.
type report struct {
	Seed  int64  `json:"seed"`
	RunID string `json:"run_id"`
	Train []cell `json:"train"`
	Best  cell   `json:"best"`
	// First, Chosen and Claude are measured on tasks that had no say: the first
	// variant, the best, and the best in Anthropic's API.
	First  cell `json:"first"`
	Chosen cell `json:"chosen"`
	Claude cell `json:"anthropic"`
	Images seen `json:"images"`
}

// cell is what a variant came to.
type cell struct {
	Prompt string  `json:"prompt"`
	Scale  int     `json:"scale"`
	API    string  `json:"api"`
	Reward float64 `json:"reward"` // mean
	Tokens float64 `json:"tokens"` // of the first prompt of a task, mean
}

// seen says what adapters make of the pictures.
type seen struct {
	Rollouts int `json:"rollouts"`
	Calls    int `json:"calls"`
	Triplets int `json:"triplets"` // with the picture that was shown
	Rows     int `json:"rows"`
	Pictures int `json:"pictures"` // in the rows
}

func (c *comparison) run(ctx context.Context, env algorithm.Env) error {
	record, err := algorithm.Begin(ctx, env, "compare", map[string]any{"prompts": prompts(), "scales": sizes()}, c.report.Seed)
	if err != nil {
		return err
	}
	return record.Finish(ctx, c.compare(ctx, env, record))
}

func (c *comparison) compare(ctx context.Context, env algorithm.Env, record *algorithm.Run) error {
	c.report.RunID = record.RunID
	fmt.Fprintf(c.out, "\n%-22s", fmt.Sprintf("mean reward, %d charts", len(env.Train)))
	for _, size := range sizes() {
		fmt.Fprintf(c.out, "%12s", pixels(size))
	}
	var cells []cell
	for _, p := range prompts() {
		fmt.Fprintf(c.out, "\n  %-20s", p.Name)
		for _, size := range sizes() {
			v, _, err := c.try(ctx, env, record, agl.ModeTrain, p, size, openAI, env.Train)
			if err != nil {
				return err
			}
			cells = append(cells, v)
			fmt.Fprintf(c.out, "%12.3f", v.Reward)
			if err := record.Record(ctx, len(cells), map[string]float64{
				algorithm.MetricReward: v.Reward, algorithm.MetricRollouts: float64(len(env.Train)), "scale": float64(size), "prompt_tokens": v.Tokens,
			}); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(c.out, "\n  %-20s", "tokens to begin with")
	for i := range sizes() {
		fmt.Fprintf(c.out, "%12.0f", cells[len(cells)-len(sizes())+i].Tokens)
	}
	c.report.Train, c.report.Best = cells, cheapest(cells)
	best := c.report.Best
	fmt.Fprintf(c.out, "\nchosen: %q at %s\n\nmean reward, %d others\n", best.Prompt, pixels(best.Scale), len(env.Val))
	return c.others(ctx, env, record)
}

// others tries what was chosen on other tasks.
func (c *comparison) others(ctx context.Context, env algorithm.Env, record *algorithm.Run) error {
	best, all := c.report.Best, prompts()
	for _, v := range []struct {
		into   *cell
		prompt string
		scale  int
		api    string
	}{
		{&c.report.First, all[0].Name, sizes()[0], openAI},
		{&c.report.Chosen, best.Prompt, best.Scale, openAI},
		{&c.report.Claude, best.Prompt, best.Scale, claude},
	} {
		for _, p := range all {
			if p.Name != v.prompt {
				continue
			}
			got, outcomes, err := c.try(ctx, env, record, agl.ModeVal, p, v.scale, v.api, env.Val)
			if err != nil {
				return err
			}
			*v.into = got
			name := fmt.Sprintf("%q at %s, %s", got.Prompt, pixels(got.Scale), apis[got.API])
			fmt.Fprintf(c.out, "  %-48s%6.3f\n", name, got.Reward)
			if err := c.report.Images.add(outcomes, v.scale); err != nil {
				return err
			}
		}
	}
	return nil
}

// apis are the names of the dialects for people.
var apis = map[string]string{openAI: "OpenAI's API", claude: "Anthropic's API"}

func pixels(size int) string {
	return strconv.Itoa(chart.Width*size) + "x" + strconv.Itoa(chart.Height*size)
}

// cheapest is the cell with the fewest tokens among those that are good enough.
func cheapest(cells []cell) cell {
	most := 0.0
	for _, c := range cells {
		most = max(most, c.Reward)
	}
	var best cell
	for _, c := range cells {
		if c.Reward >= most-enough && (best.Prompt == "" || c.Tokens < best.Tokens) {
			best = c
		}
	}
	return best
}

// try has the agent work on tasks with a variant.
func (c *comparison) try(
	ctx context.Context, env algorithm.Env, record *algorithm.Run, mode agl.Mode, p variant, size int, api string, tasks []json.RawMessage,
) (cell, []algorithm.Outcome, error) {
	text := func(s string) agl.PromptTemplate { return agl.PromptTemplate{Template: s, Engine: agl.EngineFString} }
	outcomes, err := lesson.Try(ctx, env, record.RunID, mode, agl.NamedResources{
		c.llm,
		{Name: instructions, Resource: text(p.Text)},
		{Name: scale, Resource: text(strconv.Itoa(size))},
		{Name: dialect, Resource: text(api)},
	}, tasks)
	if err != nil {
		return cell{}, nil, err
	}
	v := cell{Prompt: p.Name, Scale: size, API: api}
	for i := range outcomes {
		o := &outcomes[i]
		if o.Reward == nil {
			return v, nil, fmt.Errorf("rollout %s: %s", o.Rollout.RolloutID, o.Failure)
		}
		calls, err := adapter.Calls(o.Spans)
		if err != nil {
			return v, nil, err
		}
		if len(calls) == 0 {
			return v, nil, fmt.Errorf("rollout %s: no call was recorded", o.Rollout.RolloutID)
		}
		v.Reward += *o.Reward / float64(len(outcomes))
		v.Tokens += float64(len(calls[0].PromptIDs)) / float64(len(outcomes))
	}
	return v, outcomes, nil
}

// add looks at rollouts as training does, and compares the pictures that it finds
// with those that were drawn.
func (s *seen) add(outcomes []algorithm.Outcome, size int) error {
	for i := range outcomes {
		var t task
		if err := json.Unmarshal(outcomes[i].Rollout.Input, &t); err != nil {
			return err
		}
		drawn, err := t.Chart.Draw(size)
		if err != nil {
			return err
		}
		triplets, err := adapter.TracerTriplets(outcomes[i].Spans, adapter.TracerOptions{})
		if err != nil {
			return err
		}
		for _, triplet := range triplets {
			var prompt struct {
				Images []string `json:"image_urls"`
			}
			if err := json.Unmarshal(triplet.Prompt, &prompt); err != nil {
				return err
			}
			if len(prompt.Images) == 1 && prompt.Images[0] == dataURL(drawn) {
				s.Triplets++
			}
		}
		calls, err := adapter.Calls(outcomes[i].Spans)
		if err != nil {
			return err
		}
		rows, _ := adapter.Trajectories(calls, adapter.TrajectoryConfig{})
		for _, row := range rows {
			for _, url := range row.Images {
				shown, err := picture(url)
				if err != nil {
					return err
				}
				if string(shown) != string(drawn) {
					return errors.New("a row has another picture than was shown")
				}
				s.Pictures++
			}
		}
		s.Rollouts++
		s.Calls += len(calls)
		s.Rows += len(rows)
	}
	return nil
}
