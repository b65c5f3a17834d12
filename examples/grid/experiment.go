package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/algorithm/pg"
	"agentlightning/examples/grid/walker"
	"agentlightning/examples/grid/world"
	"agentlightning/examples/internal/lesson"
	"agentlightning/learner/native"
	"agentlightning/rl"
	"agentlightning/trainer"
)

// modelName is the name under which the proxy knows the model in training.
const modelName = "grid-policy"

// report holds the figures of a run as --report writes them.
type report struct {
	Seed           int64        `json:"seed"`
	ShuffleRewards bool         `json:"shuffle_rewards"`
	Rules          []ruleReport `json:"rules"`
}

type ruleReport struct {
	Rule string `json:"rule"`
	lesson.Report
}

// run is the whole example in one process.
func run(ctx context.Context, o options, how plan, stdout, stderr io.Writer) (err error) {
	if o.Steps > 0 {
		how.steps = o.Steps
	}
	train, validation, err := world.Generate(uint64(o.Seed), how.train, how.validation)
	if err != nil {
		return err
	}
	logger := o.Logger(stderr)
	site, err := lesson.OpenOver(ctx, &o.Options, stdout, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	how.model.Seed = o.Seed
	model, err := site.StartPolicy(ctx, modelName, how.model, walker.Tokenizer())
	if err != nil {
		return err
	}
	start, err := os.MkdirTemp("", "agl-grid-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(start)) }()
	e := &experiment{
		options: o, plan: how, train: train, model: model, start: filepath.Join(start, "warm"), show: lesson.NewDisplay(stdout),
		resources: agl.NamedResources{lesson.Resource("main_llm", site.URL, modelName)},
		figures:   report{Seed: o.Seed, ShuffleRewards: o.Shuffle},
	}
	defer e.show.Close()
	trainTasks, err := algorithm.Tasks(train)
	if err != nil {
		return err
	}
	validationTasks, err := algorithm.Tasks(validation)
	if err != nil {
		return err
	}
	agent := &walker.Walker{Client: lesson.Client(o.Agents), Retries: 2}
	err = trainer.Fit(ctx, trainer.Config{
		Agent: agent.Agent(), Algorithm: e, Store: site.Store, Concurrency: o.Agents, Logger: logger,
	}, trainTasks, validationTasks)
	if err != nil {
		return err
	}
	e.show.Close()
	e.print(stdout)
	return lesson.Write(o.Report, &e.figures)
}

// experiment is the algorithm of the example: one warm-up, then a training with
// each rule, all from the same weights and on the same tasks.
type experiment struct {
	options
	plan      plan
	train     []world.Task
	model     *native.Model
	start     string // the checkpoint that every training begins with
	resources agl.NamedResources
	show      *lesson.Display

	figures report
}

func (e *experiment) Run(ctx context.Context, env algorithm.Env) error {
	warmup := lesson.Warmup{Steps: e.plan.warmupSteps, Rows: e.plan.warmupRows, Rate: e.plan.warmupRate, Demonstrate: e.demonstrate}
	if err := warmup.Run(ctx, env, "warm-up", e.model, e.Seed, e.show); err != nil {
		return err
	}
	if err := e.model.Save(ctx, e.start); err != nil {
		return err
	}
	for _, rule := range e.rules {
		if err := e.model.Load(ctx, e.start); err != nil {
			return err
		}
		figures, err := lesson.Train(ctx, env, rule.String(), e.training(rule), e.show)
		if err != nil {
			return fmt.Errorf("training with %s: %w", rule, err)
		}
		e.figures.Rules = append(e.figures.Rules, ruleReport{rule.String(), figures})
	}
	return nil
}

func (e *experiment) demonstrate(random *rand.Rand) []native.Message {
	d, err := world.Demonstrate(e.train[random.IntN(len(e.train))], e.plan.care, random)
	if err != nil {
		panic(err) // tasks that were generated are sound
	}
	return walker.Messages(d[random.IntN(len(d))])
}

// training differs between the rules in nothing but the rule.
func (e *experiment) training(rule credit.Rule) pg.Config {
	p := e.plan
	return pg.Config{
		Learner: e.model, Method: pg.Method{Credit: rule, Loss: rl.Loss{Clip: p.clip}},
		Steps: p.steps, Tasks: p.tasks, GroupSize: p.group, Epochs: p.epochs, Minibatch: p.minibatch, LearningRate: p.rate,
		Rollout: limits(), Resources: e.resources, ValidateEvery: p.validateEvery,
		Seed: e.Seed, ShuffleRewards: e.Shuffle,
	}
}

// print shows the comparison.
func (e *experiment) print(out io.Writer) {
	fmt.Fprintf(out, "\nout of the house with the key, of %d validation tasks\n", e.plan.validation)
	fmt.Fprintf(out, "%-22s %8s %8s %8s %9s\n", "credit", "before", "half way", "after", "rollouts")
	for _, r := range e.figures.Rules {
		fmt.Fprintf(out, "%-22s %7.1f%% %7.1f%% %7.1f%% %9d\n", r.Rule, 100*r.Before, 100*halfWay(r.Curve), 100*r.After, r.Rollouts)
	}
}

// halfWay is the accuracy at the last validation in the first half of a training.
func halfWay(curve []lesson.Point) float64 {
	var accuracy float64
	for _, p := range curve {
		if p.Accuracy != nil && 2*p.Step <= curve[len(curve)-1].Step {
			accuracy = *p.Accuracy
		}
	}
	return accuracy
}
