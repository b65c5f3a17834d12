package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/algorithm/pg"
	"agentlightning/examples/internal/lesson"
	"agentlightning/examples/sql/library"
	"agentlightning/learner/native"
	"agentlightning/rl"
	"agentlightning/trainer"
)

// wantedSamples is how many conversations are shown at the end.
const wantedSamples = 3

// report holds the figures of a run as --report writes them.
type report struct {
	Seed           int64 `json:"seed"`
	ShuffleRewards bool  `json:"shuffle_rewards"`
	lesson.Report
	// Test is the share of right answers to questions whose templates occur in the
	// test only, FirstTry the share that the first query answered.
	Test           float64 `json:"test"`
	TestBefore     float64 `json:"test_before"`
	FirstTry       float64 `json:"first_try"`
	FirstTryBefore float64 `json:"first_try_before"`
}

// run is the whole example in one process.
func run(ctx context.Context, o lesson.Options, how plan, stdout, stderr io.Writer) (err error) {
	if o.Steps > 0 {
		how.steps = o.Steps
	}
	folder, err := os.MkdirTemp("", "agl-sql-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := library.Create(ctx, folder, uint64(o.Seed)); err != nil {
		return err
	}
	books, err := library.Open(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, books.Close()) }()
	questions, err := library.Generate(ctx, books, uint64(o.Seed), how.validation)
	if err != nil {
		return err
	}
	logger := o.Logger(stderr)
	site, err := lesson.OpenOver(ctx, &o, stdout, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	e := &experiment{Options: o, plan: how, library: books, questions: questions, show: lesson.NewDisplay(stdout)}
	defer e.show.Close()
	for _, m := range []struct {
		name   string
		config native.Config
		model  **native.Model
	}{{writer, how.writer, &e.writer}, {checker, how.checker, &e.checker}} {
		m.config.Seed = o.Seed
		if *m.model, err = site.StartPolicy(ctx, "sql-"+m.name, m.config, tokenizer()); err != nil {
			return err
		}
		e.resources = append(e.resources, lesson.Resource(m.name, site.URL, "sql-"+m.name))
	}
	train, err := algorithm.Tasks(questions.Train)
	if err != nil {
		return err
	}
	validation, err := algorithm.Tasks(questions.Validation)
	if err != nil {
		return err
	}
	worker := &clerk{library: books, http: lesson.Client(o.Agents), retries: 2}
	err = trainer.Fit(ctx, trainer.Config{
		Agent: worker.agent(), Algorithm: e, Store: site.Store, Concurrency: o.Agents, Logger: logger,
	}, train, validation)
	if err != nil {
		return err
	}
	e.show.Close()
	e.print(stdout)
	return lesson.Write(o.Report, &e.figures)
}

// experiment is the algorithm of the example: both models are warmed up, the
// writer is trained, and the test is looked at before and after.
type experiment struct {
	lesson.Options
	plan            plan
	library         *library.Library
	questions       library.Split
	writer, checker *native.Model
	resources       agl.NamedResources
	show            *lesson.Display

	figures report
	samples []sample
}

// sample is one question as it was worked on before and after the training.
type sample struct {
	question      library.Question
	before, after []lesson.Line
}

func (e *experiment) Run(ctx context.Context, env algorithm.Env) error {
	if err := e.warmup(ctx, env); err != nil {
		return err
	}
	if _, err := env.Store.AddResources(ctx, e.resources); err != nil {
		return fmt.Errorf("publish the models: %w", err)
	}
	before, err := lesson.Evaluate(ctx, env, limits(), "", "before", e.questions.Test)
	if err != nil {
		return err
	}
	p := e.plan
	figures, err := lesson.Train(ctx, env, "training", pg.Config{
		Learner: e.writer,
		// The calls of the checker earn nothing and are not trained on.
		Method: pg.Method{Credit: credit.ByRole{{Agent: regexp.MustCompile("^" + writer + "$"), Rule: p.credit}}, Loss: rl.Loss{Clip: p.clip}},
		Steps:  p.steps, Tasks: p.tasks, GroupSize: p.group, Epochs: p.epochs, Minibatch: p.minibatch, LearningRate: p.rate,
		Rollout: limits(), ValidateEvery: p.validateEvery, Seed: e.Seed, ShuffleRewards: e.Shuffle,
	}, e.show)
	if err != nil {
		return err
	}
	after, err := lesson.Evaluate(ctx, env, limits(), "", "after", e.questions.Test)
	if err != nil {
		return err
	}
	return e.conclude(figures, before, after)
}

// warmup teaches the writer the form of queries and the checker its work.
func (e *experiment) warmup(ctx context.Context, env algorithm.Env) error {
	p := e.plan
	var failed error
	demonstrate := func(random *rand.Rand) (library.Question, []library.Attempt) {
		q := e.questions.Train[random.IntN(len(e.questions.Train))]
		attempts, err := library.Demonstrate(ctx, e.library, q, p.care, random)
		failed = errors.Join(failed, err)
		return q, attempts
	}
	for _, w := range []struct {
		name  string
		model *native.Model
		how   lesson.Warmup
	}{
		{"warm-up of the writer ", e.writer, lesson.Warmup{
			Steps: p.warmupSteps, Rows: p.warmupRows, Rate: p.warmupRate, Demonstrate: func(random *rand.Rand) []native.Message {
				q, attempts := demonstrate(random)
				return writerMessages(q.Text, attempts)
			},
		}},
		{"warm-up of the checker", e.checker, lesson.Warmup{
			Steps: p.checkerSteps, Rows: p.warmupRows, Rate: p.warmupRate, Demonstrate: func(random *rand.Rand) []native.Message {
				q, attempts := demonstrate(random)
				a := attempts[random.IntN(len(attempts))]
				if random.IntN(2) == 0 {
					var err error
					a, err = library.Spoil(ctx, e.library, q, a, random)
					failed = errors.Join(failed, err)
				}
				return checkerMessages(a)
			},
		}},
	} {
		err := w.how.Run(ctx, env, w.name, w.model, e.Seed, e.show)
		if failed != nil {
			return fmt.Errorf("demonstrations: %w", failed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// conclude fills the report.
func (e *experiment) conclude(figures lesson.Report, before, after []algorithm.Outcome) (err error) {
	e.figures = report{Seed: e.Seed, ShuffleRewards: e.Shuffle, Report: figures}
	for _, part := range []struct {
		outcomes    []algorithm.Outcome
		right, once *float64
	}{
		{before, &e.figures.TestBefore, &e.figures.FirstTryBefore},
		{after, &e.figures.Test, &e.figures.FirstTry},
	} {
		if *part.right, err = lesson.Accuracy(part.outcomes); err != nil {
			return fmt.Errorf("test: %w", err)
		}
		for i := range part.outcomes {
			e.figures.Rollouts++
			if part.outcomes[i].Reward == nil {
				e.figures.FailedRollouts++
			}
			if rightAtOnce(&part.outcomes[i]) {
				*part.once += 1 / float64(len(part.outcomes))
			}
		}
	}
	e.samples = chooseSamples(e.questions.Test, before, after)
	return nil
}

func rightAtOnce(o *algorithm.Outcome) bool {
	return o.Reward != nil && *o.Reward == 1 && len(lesson.Conversation(o.Spans, writer)) == 2
}

// chooseSamples takes questions of different templates, those first that became
// right.
func chooseSamples(questions []library.Question, before, after []algorithm.Outcome) []sample {
	var out []sample
	shown := map[string]bool{}
	for _, improvedOnly := range []bool{true, false} {
		for i, q := range questions {
			b, a := before[i], after[i]
			improved := b.Reward != nil && *b.Reward == 0 && a.Reward != nil && *a.Reward == 1
			kind := q.Gold.Select + q.Gold.Order
			if len(out) == wantedSamples || shown[kind] || improvedOnly && !improved {
				continue
			}
			shown[kind] = true
			out = append(out, sample{q, lesson.Conversation(b.Spans, writer), lesson.Conversation(a.Spans, writer)})
		}
	}
	return out
}

// print shows how it went.
func (e *experiment) print(out io.Writer) {
	r := &e.figures
	fmt.Fprintf(out, "\n%-46s %8s %8s\n", "right answers", "before", "after")
	for _, row := range []struct {
		name          string
		before, after float64
	}{
		{"validation: known templates, new questions", r.Before, r.After},
		{"test: templates never trained on", r.TestBefore, r.Test},
		{"test: right with the first query", r.FirstTryBefore, r.FirstTry},
	} {
		fmt.Fprintf(out, "%-46s %7.1f%% %7.1f%%\n", row.name, 100*row.before, 100*row.after)
	}
	for _, s := range e.samples {
		fmt.Fprintf(out, "\n%s\n  right   %s\n  before  %s\n  after   %s\n", s.question.Text, s.question.Gold.SQL(), talk(s.before), talk(s.after))
	}
	fmt.Fprintf(out, "\n%d steps, %d rollouts (%d failed), %.0f s\n", r.Steps, r.Rollouts, r.FailedRollouts, r.Seconds)
}

// talk shows what the writer wrote and what it was told.
func talk(lines []lesson.Line) string {
	if len(lines) == 0 {
		return "(nothing)"
	}
	var text strings.Builder
	for _, l := range lines[1:] {
		if l.Role == "user" {
			text.WriteString("  → " + l.Text + "\n          ")
			continue
		}
		text.WriteString(l.Text)
	}
	return text.String()
}
