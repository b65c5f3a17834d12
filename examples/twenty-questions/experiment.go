package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/algorithm/pg"
	"agentlightning/examples/internal/lesson"
	"agentlightning/examples/twenty-questions/game"
	"agentlightning/learner/native"
	"agentlightning/rl"
	"agentlightning/trainer"
)

const (
	// modelName is the name under which the proxy knows the model in training.
	modelName = "questions-policy"
	// previewed is how many games are played for the table of credit.
	previewed = 4
)

// shown are the things of the games that are printed.
var shown = []string{"whale", "bell"}

// report holds the figures of a run as --report writes them.
type report struct {
	Seed           int64  `json:"seed"`
	ShuffleRewards bool   `json:"shuffle_rewards"`
	Rule           string `json:"rule"`
	lesson.Report
	Start play `json:"start"`
	End   play `json:"end"`
	// Preview is what the agents would be given for some games about a thing.
	PreviewThing string         `json:"preview_thing"`
	Preview      []lesson.Share `json:"preview"`
	Games        []gameTwice    `json:"games"`
}

// play are the means over one game about each thing, with the likeliest word at
// every turn.
type play struct {
	Solved    float64 `json:"solved"`
	Questions float64 `json:"questions"`
	// Truths is the share of true answers; nil when nothing was asked.
	Truths *float64 `json:"truths"`
}

// gameTwice is a game before and after the training.
type gameTwice struct {
	Thing  string   `json:"thing"`
	Before []string `json:"before"`
	After  []string `json:"after"`
}

// run is the whole example in one process.
func run(ctx context.Context, o options, how plan, stdout, stderr io.Writer) (err error) {
	if o.Steps > 0 {
		how.steps = o.Steps
	}
	tasks, err := algorithm.Tasks(game.Tasks())
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
	model, err := site.StartPolicy(ctx, modelName, how.model, tokenizer())
	if err != nil {
		return err
	}
	e := &experiment{
		options: o, plan: how, model: model, show: lesson.NewDisplay(stdout),
		resources: agl.NamedResources{lesson.Resource("main_llm", site.URL, modelName)},
	}
	defer e.show.Close()
	players := &table{http: lesson.Client(o.Agents), retries: 2}
	// The asker never sees the thing, so games about the same things tell how well
	// it plays.
	err = trainer.Fit(ctx, trainer.Config{
		Agent: players.agent(), Algorithm: e, Store: site.Store, Concurrency: o.Agents, Logger: logger,
	}, tasks, tasks)
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
// would be given for a few games, training, and all games before and after it.
type experiment struct {
	options
	plan      plan
	model     *native.Model
	resources agl.NamedResources
	show      *lesson.Display

	figures report
}

func (e *experiment) Run(ctx context.Context, env algorithm.Env) error {
	p := e.plan
	warmup := lesson.Warmup{Steps: p.warmupSteps, Rows: p.warmupRows, Rate: p.warmupRate, Demonstrate: func(random *rand.Rand) []native.Message {
		if random.IntN(2) == 0 {
			return messages(game.DemonstrateAnswerer(p.care, random))
		}
		return messages(game.DemonstrateAsker(p.care, random))
	}}
	if err := warmup.Run(ctx, env, "warm-up", e.model, e.Seed, e.show); err != nil {
		return err
	}
	if _, err := env.Store.AddResources(ctx, e.resources); err != nil {
		return fmt.Errorf("publish the model: %w", err)
	}
	method := pg.Method{Credit: e.rule, Advantages: rl.AdvantageConfig{WithoutStd: true}, Loss: rl.Loss{Clip: p.clip}}
	before, err := lesson.Evaluate(ctx, env, limits(), "", "before", game.Tasks())
	if err != nil {
		return err
	}
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
	after, err := lesson.Evaluate(ctx, env, limits(), "", "after", game.Tasks())
	if err != nil {
		return err
	}
	return e.conclude(figures, before, after)
}

// preview plays some games about one thing as a training would and looks at what
// it would give the agents: about the first thing whose games differ for both
// agents, if there is one.
func (e *experiment) preview(ctx context.Context, env algorithm.Env, method pg.Method) error {
	tasks := game.Tasks()
	at, shares, err := lesson.Preview(ctx, env, limits(), tasks, previewed, e.Seed, method, asker, answerer)
	if err != nil {
		return err
	}
	e.figures.Preview, e.figures.PreviewThing = shares, tasks[at].Thing
	return nil
}

// conclude fills the report.
func (e *experiment) conclude(figures lesson.Report, before, after []algorithm.Outcome) (err error) {
	r := &e.figures
	r.Seed, r.ShuffleRewards, r.Rule, r.Report = e.Seed, e.Shuffle, e.rule.String(), figures
	if r.Start, err = played(before); err != nil {
		return fmt.Errorf("before the training: %w", err)
	}
	if r.End, err = played(after); err != nil {
		return fmt.Errorf("after the training: %w", err)
	}
	for i, t := range game.Tasks() {
		for _, thing := range shown {
			if t.Thing == thing {
				r.Games = append(r.Games, gameTwice{thing, lesson.Remarks(before[i].Spans), lesson.Remarks(after[i].Spans)})
			}
		}
	}
	return nil
}

// played are the means of what games were rewarded with. A game that failed says
// nothing about the model, one without a question nothing about the answerer.
func played(outcomes []algorithm.Outcome) (play, error) {
	var sum play
	var truths, n, asked float64
	for _, o := range outcomes {
		if o.Reward == nil {
			continue
		}
		parts := lesson.Parts(credit.Read(o.Rollout.RolloutID, "", o.Spans).Dimensions)
		n++
		sum.Solved += parts[solved]
		sum.Questions += parts[questions]
		if parts[questions] > 0 {
			asked++
			truths += parts[answerer]
		}
	}
	if n == 0 {
		return play{}, fmt.Errorf("none of %d games was rewarded: %s", len(outcomes), outcomes[0].Failure)
	}
	sum.Solved /= n
	sum.Questions /= n
	if asked > 0 {
		truths /= asked
		sum.Truths = &truths
	}
	return sum, nil
}

// percent shows a share, or that there is none.
func percent(share *float64) string {
	if share == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f", 100**share)
}

// print shows how it went.
func (r *report) print(out io.Writer) error {
	fmt.Fprintf(out, "\ncredit and advantage by %s of %d games about the %s\n", r.Rule, previewed, r.PreviewThing)
	if err := lesson.PrintShares(out, r.Preview); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%-40s %8s %8s\n", fmt.Sprintf("one game about each of %d things", len(game.Tasks())), "before", "after")
	fmt.Fprintf(out, "%-40s %7.1f%% %7.1f%%\n", "guessed", 100*r.Start.Solved, 100*r.End.Solved)
	fmt.Fprintf(out, "%-40s %8.2f %8.2f\n", "questions a game", r.Start.Questions, r.End.Questions)
	fmt.Fprintf(out, "%-40s %7s%% %7s%%\n", "true answers", percent(r.Start.Truths), percent(r.End.Truths))
	for _, g := range r.Games {
		fmt.Fprintf(out, "\nthe %s\n", g.Thing)
		lesson.PrintRemarks(out, g.Before, g.After)
	}
	fmt.Fprintf(out, "\n%d steps, %d rollouts (%d failed), %.0f s\n", r.Steps, r.Rollouts, r.FailedRollouts, r.Seconds)
	return nil
}
