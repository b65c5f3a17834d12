package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/algorithm/sft"
	"agentlightning/dataset"
	"agentlightning/examples/grid/walker"
	"agentlightning/examples/grid/world"
	"agentlightning/examples/internal/lesson"
	"agentlightning/learner"
	"agentlightning/learner/native"
	"agentlightning/semconv"
	"agentlightning/store"
)

// experiment is the algorithm of the example.
type experiment struct {
	lesson.Options
	plan              plan
	train, validation []world.Task
	model             *native.Model
	resources         agl.NamedResources
	out               io.Writer
	show              *lesson.Display

	figures report
}

func (e *experiment) Run(ctx context.Context, env algorithm.Env) error {
	warmup := lesson.Warmup{
		Steps: e.plan.warmupSteps, Rows: e.plan.warmupRows, Rate: e.plan.warmupRate, Demonstrate: e.demonstrate,
	}
	if err := warmup.Run(ctx, env, "warm-up", e.model, e.Seed, e.show); err != nil {
		return err
	}
	e.show.Close()
	if _, err := env.Store.AddResources(ctx, e.resources); err != nil {
		return fmt.Errorf("publish the model: %w", err)
	}
	e.figures = report{Seed: e.Seed, ShuffleRewards: e.Shuffle}
	for round := range e.plan.rounds + 1 {
		if err := e.round(ctx, env, round); err != nil {
			return fmt.Errorf("round %d of %d: %w", round, e.plan.rounds, err)
		}
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

// round samples, selects and imitates, and then looks at the validation tasks;
// round 0 only looks.
func (e *experiment) round(ctx context.Context, env algorithm.Env, round int) error {
	started := time.Now()
	metrics := map[string]float64{}
	kept := 0
	if round > 0 {
		walks, err := e.sample(ctx, env, round)
		if err != nil {
			return err
		}
		mean, n := algorithm.MeanReward(walks)
		metrics[algorithm.MetricReward] = mean
		metrics[algorithm.MetricRollouts] = float64(len(walks))
		metrics[algorithm.MetricFailed] = float64(len(walks) - n)
		if kept, err = e.imitate(ctx, env, walks, round); err != nil {
			return err
		}
		e.figures.Kept = append(e.figures.Kept, kept)
	}
	looked, err := lesson.Evaluate(ctx, env, limits(), "", fmt.Sprintf("after round %d", round), e.validation)
	if err != nil {
		return err
	}
	accuracy, err := lesson.Accuracy(looked)
	if err != nil {
		return err
	}
	metrics[algorithm.MetricValidationReward] = accuracy
	metrics[algorithm.MetricRollouts] += float64(len(looked))
	for i := range looked {
		if looked[i].Reward == nil {
			metrics[algorithm.MetricFailed]++
		}
	}
	metrics[algorithm.MetricStepSeconds] = time.Since(started).Seconds()
	e.figures.AddStep(round, metrics)
	if round == 0 {
		fmt.Fprintf(e.out, "round  0/%d  validation %.2f\n", e.plan.rounds, accuracy)
		return nil
	}
	fmt.Fprintf(e.out, "round %2d/%d  validation %.2f  %.2f of the walks rewarded, %d imitated\n",
		round, e.plan.rounds, accuracy, metrics[algorithm.MetricReward], kept)
	return nil
}

// limits are those of every rollout.
func limits() agl.RolloutConfig {
	return agl.RolloutConfig{
		TimeoutSeconds: new(60.0), MaxAttempts: 3,
		RetryCondition: []agl.AttemptStatus{agl.AttemptFailed, agl.AttemptTimeout},
	}
}

// sample lets some tasks be tried by a group each.
func (e *experiment) sample(ctx context.Context, env algorithm.Env, round int) ([]algorithm.Outcome, error) {
	random := rand.New(rand.NewPCG(uint64(e.Seed), uint64(round)))
	config := limits()
	var asked []store.EnqueueRequest
	for _, task := range random.Perm(len(env.Train))[:e.plan.tasks] {
		for range e.plan.group {
			metadata, err := json.Marshal(map[string]int64{semconv.MetadataSeed: 1 + random.Int64N(1<<40)})
			if err != nil {
				return nil, err
			}
			asked = append(asked, store.EnqueueRequest{Input: env.Train[task], Mode: agl.ModeTrain, Config: &config, Metadata: metadata})
		}
	}
	ids, err := algorithm.Ask(ctx, env.Store, asked)
	if err != nil {
		return nil, err
	}
	return algorithm.Collect(ctx, env.Store, ids, algorithm.Collecting{})
}

// imitate selects walks by their reward and trains on their own token ids.
func (e *experiment) imitate(ctx context.Context, env algorithm.Env, walks []algorithm.Outcome, round int) (kept int, err error) {
	var rollouts []credit.Rollout
	for i, w := range walks {
		r := credit.Read(w.Rollout.RolloutID, strconv.Itoa(i/e.plan.group), w.Spans)
		r.Failed = w.Failure != ""
		if w.Reward != nil {
			rollouts = append(rollouts, r)
		}
	}
	if e.Shuffle {
		from := append([]credit.Rollout(nil), rollouts...)
		for i, j := range rand.New(rand.NewPCG(uint64(e.Seed), uint64(round)^0x5eed)).Perm(len(rollouts)) {
			rollouts[i].TakeRewards(&from[j])
		}
	}
	rows, err := dataset.Demonstrations(rollouts, e.plan.keep)
	if err != nil {
		return 0, err
	}
	names := map[string]bool{}
	for _, row := range rows {
		names[row.Rollout] = true
	}
	if len(rows) == 0 {
		return 0, nil // nothing was rewarded: the next round samples anew
	}
	train, err := sft.New(sft.Config{
		Learner: e.model, Rows: sft.Draw(rows, min(e.plan.rows, len(rows)), false, e.Seed+int64(round)), Steps: e.plan.updates,
		LearningRate: learner.Schedule{Peak: e.plan.rate}, Seed: e.Seed + int64(round),
	})
	if err != nil {
		return 0, err
	}
	return len(names), train.Run(ctx, env)
}
