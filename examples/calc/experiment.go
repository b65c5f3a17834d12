package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/pg"
	"agentlightning/algorithm/sft"
	"agentlightning/examples/calc/problem"
	"agentlightning/examples/internal/lesson"
	"agentlightning/learner"
	"agentlightning/learner/native"
	"agentlightning/rl"
	"agentlightning/store"
)

// experimentName is the name of the whole example among the runs of the store;
// warm-up and training are runs of their own.
const experimentName = "calc"

// experiment is the algorithm of the example: warm-up, a look at the test,
// training, another look.
type experiment struct {
	options
	plan  plan
	data  problem.Dataset
	model *native.Model
	tok   *native.Tokenizer
	// resources lead the agents to the model, once it is offered to the server.
	resources agl.NamedResources
	offer     func(context.Context) error
	show      *lesson.Display

	figures report
	samples []sample
}

// progress is what the experiment must know to go on after an interruption.
type progress struct {
	Warmup   string `json:"warmup"`   // id of the run of the warm-up
	Training string `json:"training"` // id of the run of the training
	// WarmedUp says that the warm-up is complete.
	WarmedUp bool `json:"warmed_up"`
	// Before holds the figures of the test before the training.
	Before *testFigures `json:"before"`
}

// testFigures are the result of one look at the test.
type testFigures struct {
	Seen   float64 `json:"seen"`
	Unseen float64 `json:"unseen"`
	// Rollouts, of which some failed, and what they took.
	Rollouts int             `json:"rollouts"`
	Failed   int             `json:"failed"`
	Seconds  float64         `json:"seconds"`
	Talks    map[string]talk `json:"talks"` // by problem id
}

// talk is one conversation and whether it ended with the right answer.
type talk struct {
	Right bool          `json:"right"`
	Lines []lesson.Line `json:"lines"`
}

func (e *experiment) Run(ctx context.Context, env algorithm.Env) error {
	run, err := e.open(ctx, env)
	if err != nil {
		return err
	}
	return run.Finish(ctx, e.run(ctx, env, run))
}

// open takes up the experiment that was interrupted last, or begins a new one.
func (e *experiment) open(ctx context.Context, env algorithm.Env) (*algorithm.Run, error) {
	if e.resume {
		last, err := lastExperiment(ctx, env.Store)
		if err != nil {
			return nil, err
		}
		env.RunID = last.RunID
	}
	config := map[string]any{"shuffle_rewards": e.Shuffle, "model": e.model.Config()}
	return algorithm.Begin(ctx, env, experimentName, config, e.Seed)
}

// lastExperiment finds what --resume goes on with.
func lastExperiment(ctx context.Context, st store.RunStore) (agl.Run, error) {
	runs, err := st.Runs(ctx, 100)
	if err != nil {
		return agl.Run{}, err
	}
	for _, r := range runs {
		if r.Algorithm == experimentName {
			if r.Status == agl.RunSucceeded {
				return agl.Run{}, fmt.Errorf("--resume: run %s is complete; start another without --resume", r.RunID)
			}
			return r, nil
		}
	}
	return agl.Run{}, errors.New("--resume: this database has no run to go on with; start one without --resume")
}

func (e *experiment) run(ctx context.Context, env algorithm.Env, run *algorithm.Run) error {
	p, err := e.restore(ctx, env, run)
	if err != nil {
		return err
	}
	if err := run.Checkpoint(ctx, 0, "", nil, p); err != nil {
		return err
	}
	if !p.WarmedUp {
		if err := e.warmup(ctx, env, p.Warmup); err != nil {
			return err
		}
		p.WarmedUp = true
	} else if err := e.loadWarmup(ctx, env, p.Warmup); err != nil {
		return err
	}
	// Later the training offers the model, when it is back at its latest weights.
	if p.Before == nil {
		if err := e.offer(ctx); err != nil {
			return err
		}
		if _, err := env.Store.AddResources(ctx, e.resources); err != nil {
			return fmt.Errorf("publish the model: %w", err)
		}
		if p.Before, err = e.test(ctx, env, run.RunID, "before"); err != nil {
			return err
		}
	}
	if err := run.Checkpoint(ctx, 0, "", nil, p); err != nil {
		return err
	}
	if err := e.train(ctx, env, p.Training); err != nil {
		return err
	}
	after, err := e.test(ctx, env, run.RunID, "after")
	if err != nil {
		return err
	}
	return e.conclude(ctx, env, p, after)
}

// restore reads how far the experiment got, and names the runs of its parts.
func (e *experiment) restore(ctx context.Context, env algorithm.Env, run *algorithm.Run) (progress, error) {
	latest, ok, err := run.Latest(ctx)
	if err != nil {
		return progress{}, err
	}
	var p progress
	if ok {
		if err := json.Unmarshal(latest.State, &p); err != nil {
			return p, fmt.Errorf("state of run %s: %w", run.RunID, err)
		}
		return p, nil
	}
	for name, id := range map[string]*string{sft.Name: &p.Warmup, pg.Name: &p.Training} {
		part, err := env.Store.CreateRun(ctx, agl.Run{Algorithm: name, Seed: e.Seed, Config: json.RawMessage("{}")})
		if err != nil {
			return p, err
		}
		*id = part.RunID
	}
	return p, nil
}

func (e *experiment) warmup(ctx context.Context, env algorithm.Env, runID string) error {
	e.show.Begin("warm-up ", 0, e.plan.warmupSteps)
	defer e.show.End()
	warm, err := sft.New(sft.Config{
		Learner: e.model, Steps: e.plan.warmupSteps, LearningRate: e.plan.warmupRate, Seed: e.Seed,
		Checkpoints: filepath.Join(e.folder, "checkpoints"), CheckpointEvery: max(e.plan.warmupSteps/7, 1),
		Rows: func(_ int, random *rand.Rand) []learner.Row {
			return e.plan.demonstrations(e.tok, e.data.Train, random)
		},
		OnStep: e.show.Warmup,
	})
	if err != nil {
		return err
	}
	env.RunID = runID
	if err := warm.Run(ctx, env); err != nil {
		return err
	}
	e.model.ResetOptimizer()
	return nil
}

// loadWarmup brings back the weights from before the first step of training,
// which the training replaces by its own checkpoint when it has one.
func (e *experiment) loadWarmup(ctx context.Context, env algorithm.Env, runID string) error {
	c, err := env.Store.LatestCheckpoint(ctx, runID)
	if err != nil {
		return fmt.Errorf("weights of the warm-up: %w", err)
	}
	if err := e.model.Load(ctx, c.Path); err != nil {
		return fmt.Errorf("weights of the warm-up: %w", err)
	}
	e.model.ResetOptimizer()
	return nil
}

func (e *experiment) train(ctx context.Context, env algorithm.Env, runID string) error {
	method, err := e.trainingMethod(pg.Method{Loss: rl.Loss{Clip: e.plan.clip}})
	if err != nil {
		return err
	}
	env.RunID = runID
	// The curve is read from the store afterwards, since this may be the rest of it.
	_, err = lesson.Train(ctx, env, "training", pg.Config{
		Learner: e.model, Steps: e.plan.steps, Tasks: e.plan.tasks, GroupSize: e.plan.group,
		LearningRate: e.plan.rate, Epochs: e.plan.epochs, Minibatch: e.plan.minibatch,
		Method:  method,
		Publish: func(ctx context.Context, _ int) (agl.NamedResources, error) { return e.resources, e.offer(ctx) },
		Rollout: e.plan.limits(), ValidateEvery: e.plan.validateEvery,
		Checkpoints: filepath.Join(e.folder, "checkpoints"), Seed: e.Seed, ShuffleRewards: e.Shuffle,
	}, e.show)
	return err
}

// test looks at the test problems without training on them.
func (e *experiment) test(ctx context.Context, env algorithm.Env, runID, when string) (*testFigures, error) {
	started := time.Now()
	outcomes, err := lesson.Evaluate(ctx, env, e.plan.limits(), runID, when, e.data.Test)
	if err != nil {
		return nil, fmt.Errorf("test %s training: %w", when, err)
	}
	f, err := figures(e.data.Test, outcomes)
	if err != nil {
		return nil, fmt.Errorf("test %s training: %w", when, err)
	}
	f.Seconds = time.Since(started).Seconds()
	return f, nil
}

// tasks are the problems as the trainer takes them.
func (e *experiment) tasks() (train, val []json.RawMessage, err error) {
	if train, err = algorithm.Tasks(e.data.Train); err != nil {
		return nil, nil, err
	}
	val, err = algorithm.Tasks(e.data.Validation)
	return train, val, err
}

// print shows how it went.
func (e *experiment) print(out io.Writer) error {
	e.show.Close()
	r := &e.figures
	printTable(out, r)
	printSamples(out, e.samples)
	fmt.Fprintf(out, "\n%d steps, %d rollouts (%d failed), %.0f s. Problems and checkpoints are in %s.\n",
		r.Steps, r.Rollouts, r.FailedRollouts, r.Seconds, e.folder)
	if e.role == roleAll {
		fmt.Fprintf(out, "Everything that was said is in %s: look at it with\n"+
			"  go run ./cmd/agl serve --db sqlite:%s\n  go run ./cmd/agl rollouts ls\n", e.DB, e.DB)
	}
	fmt.Fprintf(out, "Try next: --seed %d, --shuffle-rewards (the control), or your own agent: docs/write-an-agent.md\n", e.Seed+1)
	return lesson.Write(e.Report, r)
}
