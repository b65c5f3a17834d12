// Command rescore tries a new reward function on rollouts that are stored, and
// trains from them, without running an agent again; see the README in this folder.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/pg"
	"agentlightning/learner"
	"agentlightning/rescore"
	"agentlightning/rescore/expr"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// newReward is what is tried: an answer must be right, in four tokens at the most.
const newReward = `reward == 1.0 && response_tokens <= 4`

// newSet is the name of the reward set that it makes.
const newSet = "brief"

func main() { os.Exit(mainStatus(os.Args[1:], os.Stdout, os.Stderr)) }

func mainStatus(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := options{rollouts: 768, warmup: 300, steps: 96}
	f := flag.NewFlagSet("rescore", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Int64Var(&o.seed, "seed", 1, "where every random choice comes from; the same seed repeats a run")
	f.StringVar(&o.report, "report", "", "write the figures as JSON to this `FILE`")
	f.BoolVar(&o.shuffle, "shuffle-rewards", false, "permute the rewards of each step: a control that must not learn")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if f.NArg() > 0 {
		fmt.Fprintf(stderr, "rescore: unexpected argument %q\n", f.Arg(0))
		return 2
	}
	if err := run(ctx, o, stdout); err != nil {
		fmt.Fprintln(stderr, "rescore:", strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

// options are what the command line says.
type options struct {
	seed     int64
	report   string
	shuffle  bool
	rollouts int // that are in the store
	warmup   int // steps before them
	steps    int // of each training
}

// report are the figures of a run.
type report struct {
	Seed           int64           `json:"seed"`
	ShuffleRewards bool            `json:"shuffle_rewards"`
	Summary        rescore.Summary `json:"summary"`
	Before         figures         `json:"before"`
	Default        figures         `json:"default"` // trained on the rewards that agents gave
	Brief          figures         `json:"brief"`   // trained on the new ones
}

func run(ctx context.Context, o options, out io.Writer) error {
	s := engine.New(memory.New(), engine.Config{Now: clock()})
	r, err := o.try(ctx, s, out)
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	if o.report == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.report, append(text, '\n'), 0o600)
}

// clock counts seconds, so that rollouts are found in the same order each time.
func clock() func() time.Time {
	var seconds atomic.Int64
	return func() time.Time { return time.Unix(1_700_000_000+seconds.Add(1), 0) }
}

func (o options) try(ctx context.Context, s store.Store, out io.Writer) (*report, error) {
	r := &report{Seed: o.seed, ShuffleRewards: o.shuffle}
	p, err := newPolicy(o.seed)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.warmUp(ctx, o.warmup); err != nil {
		return nil, fmt.Errorf("warm-up: %w", err)
	}
	if err := p.keep(ctx); err != nil {
		return nil, err
	}
	if r.Before, err = p.measure(ctx); err != nil {
		return nil, err
	}
	if err := p.record(ctx, s, o.rollouts); err != nil {
		return nil, fmt.Errorf("record rollouts: %w", err)
	}
	fmt.Fprintf(out, "%d rollouts are in the store; their agents gave 1 for the right capital, 0 otherwise\n", o.rollouts)

	if r.Summary, err = rescored(ctx, s); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "set %s: %d rewards, mean %.3f; the old mean is %.3f, correlation %.3f\n\n",
		newSet, r.Summary.Scored, *r.Summary.MeanNew, *r.Summary.MeanOld, *r.Summary.Correlation)

	fmt.Fprintln(out, "                              right   right and brief   tokens an answer")
	show(out, "before", r.Before)
	for _, set := range []struct {
		name string
		got  *figures
	}{{agl.DefaultRewardSet, &r.Default}, {newSet, &r.Brief}} {
		if *set.got, err = o.learn(ctx, s, p, set.name); err != nil {
			return nil, fmt.Errorf("train on the set %s: %w", set.name, err)
		}
		show(out, "trained on the set "+set.name, *set.got)
	}
	page, err := s.QueryRollouts(ctx, store.RolloutQuery{Paging: store.Paging{Limit: 1}})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "\nrollouts run for this: %d\n", page.Total-o.rollouts)
	return r, nil
}

func show(out io.Writer, name string, f figures) {
	fmt.Fprintf(out, "%-28s %5.1f%%   %14.1f%%   %.1f\n", name, 100*f.Right, 100*f.Brief, f.Tokens)
}

// rescored computes the new rewards of everything that is stored, beside the old.
func rescored(ctx context.Context, s store.Store) (rescore.Summary, error) {
	scorer, err := expr.New(newReward)
	if err != nil {
		return rescore.Summary{}, err
	}
	return rescore.Run(ctx, rescore.Config{
		Store: s, Scorer: scorer, Set: newSet,
		Each: func(ctx context.Context, visit func(*agl.AttemptedRollout) error) error {
			page, err := s.QueryRollouts(ctx, store.RolloutQuery{})
			if err != nil {
				return err
			}
			for i := range page.Items {
				if err := visit(&page.Items[i]); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// learn trains the policy as it was when the rollouts were recorded, from them
// alone, with the rewards of a set, and measures what it says then.
func (o options) learn(ctx context.Context, s store.Store, p *policy, set string) (figures, error) {
	if err := p.back(ctx); err != nil {
		return figures{}, err
	}
	method, err := pg.Preset(pg.GRPO)
	if err != nil {
		return figures{}, err
	}
	a, err := pg.New(pg.Config{
		Learner: p.model, Method: method, Seed: o.seed, Steps: o.steps, Tasks: 8,
		LearningRate:   learner.Schedule{Peak: 0.001},
		Stored:         &algorithm.Stored{RewardSet: set},
		ShuffleRewards: o.shuffle,
	})
	if err != nil {
		return figures{}, err
	}
	if err := a.Run(ctx, algorithm.Env{Store: s, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return figures{}, err
	}
	return p.measure(ctx)
}
