package lesson

import (
	"context"
	"math/rand/v2"

	"agentlightning/algorithm"
	"agentlightning/algorithm/pg"
	"agentlightning/algorithm/sft"
	"agentlightning/learner"
	"agentlightning/learner/native"
)

// Row is a demonstration as a learner takes it. The roles of the messages must be
// the tokenizer's own.
func Row(tok *native.Tokenizer, messages []native.Message) learner.Row {
	ids, mask, err := tok.Render(messages)
	if err != nil {
		panic(err)
	}
	return learner.Row{IDs: ids, Mask: mask}
}

// Warmup teaches an untrained model the form of what it is to say.
type Warmup struct {
	Steps, Rows int
	Rate        learner.Schedule
	// Demonstrate makes one conversation.
	Demonstrate func(random *rand.Rand) []native.Message
}

// Run imitates demonstrations and then forgets what the optimiser remembers.
func (w Warmup) Run(ctx context.Context, env algorithm.Env, name string, model *native.Model, seed int64, show *Display) error {
	show.Begin(name, 0, w.Steps)
	defer show.End()
	warm, err := sft.New(sft.Config{
		Learner: model, Steps: w.Steps, LearningRate: w.Rate, Seed: seed, OnStep: show.Warmup,
		Rows: func(_ int, random *rand.Rand) []learner.Row {
			rows := make([]learner.Row, w.Rows)
			for i := range rows {
				rows[i] = Row(model.Tokenizer(), w.Demonstrate(random))
			}
			return rows
		},
	})
	if err != nil {
		return err
	}
	if err := warm.Run(ctx, env); err != nil {
		return err
	}
	model.ResetOptimizer()
	return nil
}

// Train trains by policy gradients as c says, showing every step, and returns
// the figures of the steps that it made.
func Train(ctx context.Context, env algorithm.Env, name string, c pg.Config, show *Display) (Report, error) {
	var r Report
	begun := false
	c.OnStep = func(s pg.Step) {
		if !begun {
			show.Begin(name, max(s.Number-1, 0), s.Of)
			begun = true
		}
		show.Training(s)
		recorded := map[string]float64{}
		for short, value := range s.Metrics {
			recorded[algorithm.MetricName(pg.Name, short)] = value
		}
		r.AddStep(s.Number, recorded)
	}
	train, err := pg.New(c)
	if err != nil {
		return r, err
	}
	defer show.End()
	return r, train.Run(ctx, env)
}
