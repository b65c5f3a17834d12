package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/algorithm/pg"
	"agentlightning/examples/internal/lesson"
	"agentlightning/examples/rag/retriever"
	"agentlightning/examples/rag/world"
	"agentlightning/learner/native"
	"agentlightning/rl"
	"agentlightning/trainer"
)

const (
	// modelName is the name under which the proxy knows the model in training.
	modelName = "rag-policy"
	// previewed is how often a question is worked on for the table of credit.
	previewed = 4
	// wantedSamples is how many questions are shown at the end.
	wantedSamples = 2
)

// report holds the figures of a run as --report writes them.
type report struct {
	Seed           int64  `json:"seed"`
	ShuffleRewards bool   `json:"shuffle_rewards"`
	Rule           string `json:"rule"`
	lesson.Report
	Start means `json:"start"`
	End   means `json:"end"`
	// Preview is what the agents would be given for some tries at a question.
	PreviewQuestion string         `json:"preview_question"`
	Preview         []lesson.Share `json:"preview"`
	Samples         []sample       `json:"samples"`
}

// means are those of the parts of the reward on the validation questions, with the
// likeliest word every time.
type means struct {
	Answer   float64 `json:"answer"`
	F1       float64 `json:"f1"`
	Form     float64 `json:"form"` // share of answers in the form that is asked for
	Found    float64 `json:"found"`
	Searches float64 `json:"searches"`
}

// sample is one question as it was worked on before and after the training.
type sample struct {
	Question string   `json:"question"`
	Right    string   `json:"right"`
	Before   []string `json:"before"`
	After    []string `json:"after"`
}

// run is the whole example in one process, but for the retriever.
func run(ctx context.Context, o options, how plan, stdout, stderr io.Writer) (err error) {
	if o.Steps > 0 {
		how.steps = o.Steps
	}
	land := world.New(uint64(o.Seed))
	train, validation, err := land.Questions(uint64(o.Seed), how.train, how.validation)
	if err != nil {
		return err
	}
	trainTasks, err := algorithm.Tasks(train)
	if err != nil {
		return err
	}
	validationTasks, err := algorithm.Tasks(validation)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start the retriever: %w", err)
	}
	tools, err := retriever.Start(ctx, self, retrieverCommand, strconv.FormatInt(o.Seed, 10))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tools.Close()) }()
	logger := o.Logger(stderr)
	site, err := lesson.OpenOver(ctx, &o.Options, stdout, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	how.model.Seed = o.Seed
	model, err := site.StartPolicy(ctx, modelName, how.model, tokenizer())
	if err != nil {
		return err
	}
	e := &experiment{
		options: o, plan: how, land: land, train: train, validation: validation, model: model, show: lesson.NewDisplay(stdout),
		resources: agl.NamedResources{lesson.Resource("main_llm", site.URL, modelName)},
	}
	defer e.show.Close()
	work := &desk{tools: tools, http: lesson.Client(o.Agents), retries: 2}
	err = trainer.Fit(ctx, trainer.Config{
		Agent: work.agent(), Algorithm: e, Store: site.Store, Concurrency: o.Agents, Logger: logger,
	}, trainTasks, validationTasks)
	if err != nil {
		return err
	}
	e.show.Close()
	if err := e.figures.print(stdout); err != nil {
		return err
	}
	return lesson.Write(o.Report, &e.figures)
}

// experiment is the algorithm of the example: warm-up, a look at what the agents
// would be given for a question, training, and the validation questions before and
// after it.
type experiment struct {
	options
	plan              plan
	land              *world.World
	train, validation []world.Question
	model             *native.Model
	resources         agl.NamedResources
	show              *lesson.Display

	figures report
}

func (e *experiment) Run(ctx context.Context, env algorithm.Env) error {
	p := e.plan
	if err := e.warmup(ctx, env); err != nil {
		return err
	}
	if _, err := env.Store.AddResources(ctx, e.resources); err != nil {
		return fmt.Errorf("publish the model: %w", err)
	}
	before, err := lesson.Evaluate(ctx, env, limits(), "", "before", e.validation)
	if err != nil {
		return err
	}
	method := pg.Method{Credit: e.rule, Loss: rl.Loss{Clip: p.clip}}
	if err := e.preview(ctx, env, method); err != nil {
		return err
	}
	figures, err := lesson.Train(ctx, env, "training", pg.Config{
		Learner: e.model, Method: method,
		Steps: p.steps, Tasks: p.tasks, GroupSize: p.group, Epochs: p.epochs, Minibatch: p.minibatch, LearningRate: p.rate,
		Rollout: limits(), ValidateEvery: p.validateEvery, Seed: e.Seed, ShuffleRewards: e.Shuffle,
	}, e.show)
	if err != nil {
		return err
	}
	after, err := lesson.Evaluate(ctx, env, limits(), "", "after", e.validation)
	if err != nil {
		return err
	}
	return e.conclude(figures, before, after)
}

// warmup teaches the form of queries and answers. Its retriever is an index of its
// own: nothing is recorded.
func (e *experiment) warmup(ctx context.Context, env algorithm.Env) error {
	p := e.plan
	index := retriever.NewIndex(e.land.Articles)
	search := func(query string) (world.Article, bool) {
		found := index.Search(query, 1)
		if len(found) == 0 {
			return world.Article{}, false
		}
		return found[0], true
	}
	warmup := lesson.Warmup{Steps: p.warmupSteps, Rows: p.warmupRows, Rate: p.warmupRate, Demonstrate: func(random *rand.Rand) []native.Message {
		d := e.land.Demonstrate(e.train[random.IntN(len(e.train))], p.care, search, random)
		if random.IntN(2) == 0 {
			return answererMessages(d)
		}
		return writerMessages(d)
	}}
	return warmup.Run(ctx, env, "warm-up", e.model, e.Seed, e.show)
}

// previewable is how many questions are tried for a preview.
const previewable = 10

// preview works on a question some times as a training would and looks at what it
// would give the agents: on the first question that goes differently for both
// agents, if there is one among the first.
func (e *experiment) preview(ctx context.Context, env algorithm.Env, method pg.Method) error {
	at, shares, err := lesson.Preview(ctx, env, limits(), e.train[:min(previewable, len(e.train))], previewed, e.Seed, method, writer, answerer)
	if err != nil {
		return err
	}
	e.figures.Preview, e.figures.PreviewQuestion = shares, e.train[at].Text
	return nil
}

// conclude fills the report.
func (e *experiment) conclude(figures lesson.Report, before, after []algorithm.Outcome) (err error) {
	r := &e.figures
	r.Seed, r.ShuffleRewards, r.Rule, r.Report = e.Seed, e.Shuffle, e.rule.String(), figures
	if r.Start, err = meansOf(before); err != nil {
		return fmt.Errorf("before the training: %w", err)
	}
	if r.End, err = meansOf(after); err != nil {
		return fmt.Errorf("after the training: %w", err)
	}
	r.Samples = chooseSamples(e.validation, before, after)
	return nil
}

// meansOf are the means of what was rewarded; what failed says nothing about the
// model.
func meansOf(outcomes []algorithm.Outcome) (means, error) {
	var sum means
	n := 0.0
	for _, o := range outcomes {
		if o.Reward == nil {
			continue
		}
		n++
		parts := lesson.Parts(credit.Read(o.Rollout.RolloutID, "", o.Spans).Dimensions)
		sum.Answer += parts[partAnswer]
		sum.F1 += parts[partF1]
		sum.Found += parts[partFound]
		sum.Searches += parts[partSearches]
		if parts[partAnswer] == parts[partF1] {
			sum.Form++ // no penalty
		}
	}
	if n == 0 {
		return means{}, fmt.Errorf("none of %d rollouts was rewarded: %s", len(outcomes), outcomes[0].Failure)
	}
	return means{sum.Answer / n, sum.F1 / n, sum.Form / n, sum.Found / n, sum.Searches / n}, nil
}

// chooseSamples takes questions with different numbers of articles, those first
// that became right.
func chooseSamples(questions []world.Question, before, after []algorithm.Outcome) []sample {
	var out []sample
	shown := map[int]bool{}
	for _, improvedOnly := range []bool{true, false} {
		for i, q := range questions {
			improved := after[i].Reward != nil && *after[i].Reward == 1 && before[i].Reward != nil && *before[i].Reward < 1
			if len(out) == wantedSamples || shown[len(q.Evidence)] || improvedOnly && !improved {
				continue
			}
			shown[len(q.Evidence)] = true
			out = append(out, sample{q.Text, q.Answer, lesson.Remarks(before[i].Spans), lesson.Remarks(after[i].Spans)})
		}
	}
	return out
}

// print shows how it went.
func (r *report) print(out io.Writer) error {
	fmt.Fprintf(out, "\ncredit and advantage by %s\nof %d tries at %q\n", r.Rule, previewed, r.PreviewQuestion)
	if err := lesson.PrintShares(out, r.Preview); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%-42s %8s %8s\n", "questions that were not trained on", "before", "after")
	for _, row := range []struct {
		name          string
		before, after float64
	}{
		{"F1 of the answer, less the penalty", r.Start.Answer, r.End.Answer},
		{"F1 of the answer", r.Start.F1, r.End.F1},
		{"answers in the right form", r.Start.Form, r.End.Form},
		{"articles found that lead to the answer", r.Start.Found, r.End.Found},
		{"searches", r.Start.Searches, r.End.Searches},
	} {
		fmt.Fprintf(out, "%-42s %8.3f %8.3f\n", row.name, row.before, row.after)
	}
	for _, s := range r.Samples {
		fmt.Fprintf(out, "\n%s  (%s)\n", s.Question, s.Right)
		lesson.PrintRemarks(out, s.Before, s.After)
	}
	fmt.Fprintf(out, "\n%d steps, %d rollouts (%d failed), %.0f s\n", r.Steps, r.Rollouts, r.FailedRollouts, r.Seconds)
	return nil
}
