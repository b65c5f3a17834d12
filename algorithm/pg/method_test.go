package pg_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm/pg"
	"agentlightning/learner"
	"agentlightning/rl"
	"agentlightning/semconv"
)

// judge is a policy of arms that can score and value rows, as the built-in model
// does. Its critic is a value for each prompt.
type judge struct {
	*arms
	values [2]float64
	// drift is what its scores differ by from what was captured.
	drift float32
}

func (j *judge) Score(_ context.Context, rows []learner.Row) ([][]float32, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([][]float32, len(rows))
	for i, row := range rows {
		out[i] = make([]float32, len(row.IDs))
		for t := 1; t < len(row.IDs); t++ {
			if row.Mask[t] != 0 {
				out[i][t] = float32(j.logprob(row.IDs[t-1], row.IDs[t])) + j.drift
			}
		}
	}
	return out, nil
}

func (j *judge) Values(_ context.Context, rows []learner.Row) ([][]float32, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([][]float32, len(rows))
	for i, row := range rows {
		out[i] = make([]float32, len(row.IDs))
		for t := 1; t < len(row.IDs); t++ {
			if row.Mask[t] != 0 {
				out[i][t] = float32(j.values[row.IDs[t-1]])
			}
		}
	}
	return out, nil
}

func (j *judge) Update(ctx context.Context, b learner.Batch) (learner.Metrics, error) {
	m, err := j.arms.Update(ctx, b)
	if err != nil || b.Options.Critic.LearningRate == 0 {
		return m, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, row := range b.Rows {
		for t := 1; t < len(row.IDs); t++ {
			if row.Mask[t] != 0 {
				v := &j.values[row.IDs[t-1]]
				_, g := rl.ValueLoss(*v, float64(row.Values[t]), float64(row.Returns[t]), b.Options.Critic.Clip)
				*v -= b.Options.Critic.LearningRate * g
			}
		}
	}
	return m, nil
}

// Every preset teaches two prompts which of two tokens is right.
func TestPresetsLearn(t *testing.T) {
	t.Parallel()
	for _, name := range pg.Presets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			method, err := pg.Preset(name)
			if err != nil {
				t.Fatal(err)
			}
			b := setup(t)
			b.work.start(t)
			j := &judge{arms: b.policy}
			c := config(b, "")
			c.Learner, c.Method, c.Steps = j, method, 12
			// The bandit steps by the sum over rows, whatever the aggregation.
			c.LearningRate.Peak = 0.1
			if name == pg.PassK {
				// Only a group with one that is right has a best: begin where most are wrong.
				j.logits = [2][2]float64{{-2, 0}, {0, -2}}
				c.Steps, c.LearningRate.Peak = 40, 0.3
			}
			if err := train(t, c, b.env); err != nil {
				t.Fatal(err)
			}
			want := 0.8
			if name == pg.PassK {
				want = 0.35 // from 0.12
			}
			if got := right(b.policy); got < want {
				t.Errorf("probability of the right token = %.3f after training, want more than %v", got, want)
			}
		})
	}
	if _, err := pg.Preset("best"); err == nil || !strings.Contains(err.Error(), `"best"`) {
		t.Errorf("Preset(best) = %v, want an error", err)
	}
}

// What training puts on a row is what credit.Assign says, call for call.
func TestTrainsOnThePreviewedCredit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.start(t)
	c := config(b, "")
	// Half of the reward for everybody: the advantages must halve with it, and a
	// rollout in ten gets none.
	rule := credit.Func{Name: "half", Of: func(r credit.Rollout) ([]*float64, error) {
		out := make([]*float64, len(r.Calls))
		for i := range out {
			out[i] = new(*r.Final / 2)
		}
		return out, nil
	}}
	c.Steps, c.Method.Credit, c.Method.Advantages.WithoutStd = 1, rule, true
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	for i, row := range b.policy.batches[0].Rows {
		if a := math.Abs(float64(row.Advantages[1])); a == 0 || a > 0.5 {
			t.Errorf("row %d has advantage %v, want at most half of a reward", i, row.Advantages[1])
		}
	}
}

// With a correction old log-probabilities are the learner's, weights those of
// the difference, and a rollout that is rejected is in no baseline.
func TestCorrection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.start(t)
	j := &judge{arms: b.policy, drift: float32(math.Log(1.5))}
	c := config(b, "")
	c.Learner, c.Steps = j, 1
	c.Method.Correction = rl.Correction{Weights: rl.PerToken, Cap: 1.25}
	var metrics map[string]float64
	c.OnStep = func(s pg.Step) { metrics = s.Metrics }
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	for _, row := range b.policy.batches[0].Rows {
		if row.Correction[1] != 1.25 || math.Abs(float64(row.Logprobs[1])-math.Log(0.75)) > 1e-5 {
			t.Fatalf("row %+v, want weight 1.25 and the learner's log-probability", row)
		}
	}
	if metrics["correction_mean"] != 1.25 || metrics["rejected_rows"] != 0 {
		t.Errorf("metrics %v, want a mean weight of 1.25 and nothing rejected", metrics)
	}
	b = setup(t)
	b.work.start(t)
	c = config(b, "")
	c.Learner, c.Steps = &judge{arms: b.policy, drift: 5}, 1
	c.Method.Correction = rl.Correction{Reject: rl.Rejection{Over: rl.OverMean, Estimator: rl.K1, High: 2}}
	c.OnStep = func(s pg.Step) { metrics = s.Metrics }
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	if len(b.policy.batches) != 0 || metrics["rejected_rows"] != 32 || metrics["rows"] != 0 {
		t.Errorf("%d updates, metrics %v, want every row rejected and no update", len(b.policy.batches), metrics)
	}
}

// A reference policy holds the update back, in the loss and in the reward.
func TestReference(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*pg.Method){
		"loss":   func(m *pg.Method) { m.Loss.KL = rl.KL{Estimator: rl.K2, Coefficient: 5} },
		"reward": func(m *pg.Method) { m.RewardKL = rl.KL{Estimator: rl.K1, Coefficient: 5} },
	} {
		b := setup(t)
		b.work.start(t)
		c := config(b, "")
		change(&c.Method)
		c.Learner, c.Reference, c.LearningRate.Peak = &judge{arms: b.policy}, &judge{arms: &arms{}}, 0.02
		if err := train(t, c, b.env); err != nil {
			t.Fatal(err)
		}
		if got := right(b.policy); got > 0.65 {
			t.Errorf("%s: probability of the right token = %.3f, want it held near 0.5", name, got)
		}
	}
}

// Groups that failed members left short are filled up again.
func TestRefill(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.fails = func(member int) bool { return member < 3 }
	b.work.start(t)
	c := config(b, "")
	c.Steps, c.Method.Refill, c.Method.Advantages.KeepConstant = 2, 2, true
	var steps []pg.Step
	c.OnStep = func(s pg.Step) { steps = append(steps, s) }
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	for _, s := range steps[1:] {
		if s.Metrics["rows"] != 4*8 || s.Failed != 4*3 || s.Metrics["groups"] != 4 {
			t.Errorf("step %d: %v rows, %d failed, %v groups; want 32 rows in 4 groups after 12 failures", s.Number, s.Metrics["rows"], s.Failed, s.Metrics["groups"])
		}
	}
}

// Dynamic sampling draws new tasks for groups that agree, and the tasks of the
// steps after are those that come next.
func TestResample(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.policy.logits = [2][2]float64{{3, 0}, {0, 3}} // nearly always right: groups agree
	b.work.start(t)
	c := config(b, "")
	c.Steps, c.Method.Resample, c.LearningRate.Peak = 3, 4, 1e-9
	var steps []pg.Step
	c.OnStep = func(s pg.Step) { steps = append(steps, s) }
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	more := 0.0
	for _, s := range steps[1:] {
		used := s.Metrics["groups"] - s.Metrics["groups_constant"]
		if used > 4 {
			t.Errorf("step %d uses %v groups, want at most the 4 tasks that were asked for", s.Number, used)
		}
		more += s.Metrics["groups"] - 4
	}
	if more == 0 {
		t.Error("no group was drawn again, although nearly all agree")
	}
}

// A run with refills that is interrupted ends with the weights of one that was
// not.
func TestResumesWithResampling(t *testing.T) {
	t.Parallel()
	start := func() *bundle {
		b := setup(t)
		b.policy.logits = [2][2]float64{{1.5, 0}, {0, 1.5}}
		b.work.fails = func(member int) bool { return member == 1 }
		b.work.start(t)
		return b
	}
	method := pg.Method{Refill: 1, Resample: 3}
	whole := start()
	c := config(whole, "")
	c.Method = method
	if err := train(t, c, whole.env); err != nil {
		t.Fatal(err)
	}

	b, dir := start(), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	c = config(b, dir)
	c.Method = method
	c.OnProgress = func(step, _, of int) {
		if step == 4 && of != 32 { // in a round of more rollouts
			cancel()
		}
	}
	a, err := pg.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(ctx, b.env); !errors.Is(err, context.Canceled) {
		t.Fatalf("Run = %v, want it interrupted in a further round of step 4", err)
	}
	runs, err := b.store.Runs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	b.env.RunID = runs[0].RunID
	c = config(b, dir)
	c.Method = method
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	if whole.policy.logits != b.policy.logits {
		t.Errorf("weights %v after an interruption, %v without", b.policy.logits, whole.policy.logits)
	}
}

// Failed rollouts count as zero when that is what was asked for.
func TestZeroFailed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.fails = func(member int) bool { return member < 4 }
	b.work.start(t)
	c := config(b, "")
	c.Steps, c.Method.Advantages = 1, rl.AdvantageConfig{OnFailure: rl.ZeroFailed, WithoutStd: true, KeepConstant: true}
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	sum := float32(0)
	for _, row := range b.policy.batches[0].Rows {
		sum += row.Advantages[1]
	}
	if sum <= 0 {
		t.Errorf("advantages of the rollouts that ended sum to %v, want them above the zeros of the others", sum)
	}
}

// Failed rollouts that keep their rewards are not missing: they are trained on,
// and nobody asks for others in their place.
func TestKeepFailed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.failsLate = func(int) bool { return true }
	b.work.start(t)
	c := config(b, "")
	c.Steps, c.Method.Refill = 1, 2
	c.Method.Advantages = rl.AdvantageConfig{OnFailure: rl.KeepFailed, KeepConstant: true}
	var last pg.Step
	c.OnStep = func(s pg.Step) { last = s }
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	if n := len(b.policy.batches[0].Rows); n != 32 || last.Metrics["rows"] != 32 {
		t.Errorf("%d rows, metrics %v, want the 32 rollouts of the step and no more", n, last.Metrics)
	}
}

// A critic sees the rewards of steps also where a kept failure ends with 0.
func TestCriticKeepsStepRewards(t *testing.T) {
	t.Parallel()
	method, err := pg.Preset(pg.PPO)
	if err != nil {
		t.Fatal(err)
	}
	method.Credit, method.Advantages.OnFailure = credit.StepRewards{Gamma: 1}, rl.KeepFailed
	b := setup(t)
	b.work.failsLate = func(int) bool { return true }
	b.work.beside = []agl.SpanCore{{Name: semconv.SpanAnnotation, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{
		{Key: semconv.RewardName(0), Value: semconv.PrimaryReward}, {Key: semconv.RewardValue(0), Value: 4.0},
	}}}
	b.work.besideAt = 2
	b.work.start(t)
	c := config(b, "")
	c.Learner, c.Steps, c.Method = &judge{arms: b.policy}, 1, method
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	for i, row := range b.policy.batches[0].Rows {
		if r := row.Returns[1]; r != 4 && r != 5 {
			t.Errorf("row %d: return %v, want 4 on the way and 0 or 1 at the end", i, r)
		}
	}
}

// Answers that are too long pay for it.
func TestOverlong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.start(t)
	c := config(b, "")
	c.Steps, c.Method.Overlong = 1, pg.Overlong{Limit: 1, Cache: 1, Weight: 2}
	var reward float64
	c.OnStep = func(s pg.Step) {
		if s.Reward != nil {
			reward = *s.Reward
		}
	}
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	if reward < -2 || reward > -1 {
		t.Errorf("mean reward = %v, want 2 less than without the penalty", reward)
	}
}

func TestWholeMinibatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.start(t)
	c := config(b, "")
	c.Steps, c.Minibatch, c.WholeMinibatches, c.Method.Advantages.KeepConstant = 1, 7, true, true
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	if n := len(b.policy.batches[0].Rows); n != 28 {
		t.Errorf("%d of 32 rows in minibatches of 7, want 28", n)
	}
}

// Knobs that nothing would look at are errors.
func TestMethodRefuses(t *testing.T) {
	t.Parallel()
	ppo, err := pg.Preset(pg.PPO)
	if err != nil {
		t.Fatal(err)
	}
	able, plain := learner.Learner(&judge{arms: &arms{}}), learner.Learner(&arms{})
	tests := []struct {
		want    string
		learner learner.Learner
		method  pg.Method
		change  func(*pg.Config)
	}{
		{"cannot score", plain, pg.Method{Correction: rl.Correction{Weights: rl.PerToken}}, nil},
		{"Critic: the learner", plain, ppo, nil},
		{"Reference: must be set", able, pg.Method{RewardKL: rl.KL{Coefficient: 1}}, nil},
		{"neither Loss.KL nor RewardKL", able, pg.Method{}, func(c *pg.Config) { c.Reference = &judge{arms: &arms{}} }},
		{"Overlong", able, pg.Method{Overlong: pg.Overlong{Limit: 5, Cache: 9}}, nil},
		{"must not be negative", able, pg.Method{Refill: -1}, nil},
		{"no rollout is missing", able, pg.Method{Refill: 1, Advantages: rl.AdvantageConfig{OnFailure: rl.ZeroFailed}}, nil},
		{"Resample", able, pg.Method{Resample: 1, Advantages: rl.AdvantageConfig{KeepConstant: true}}, nil},
		{"reinforce_plus_plus drops no group", able, pg.Method{Resample: 1, Advantages: rl.AdvantageConfig{Estimator: rl.ReinforcePP}}, nil},
		{"identical or step-rewards", able, pg.Method{Critic: ppo.Critic, Credit: credit.LastCall{}}, nil},
		{"must be Critic.Gamma", able, pg.Method{Critic: ppo.Critic, Credit: credit.StepRewards{Gamma: 0.5}}, nil},
		{"only OnFailure", able, pg.Method{Critic: ppo.Critic, Advantages: rl.AdvantageConfig{Estimator: rl.RLOO}}, nil},
		{"Critic.LearningRate", able, pg.Method{Critic: &pg.Critic{Gamma: 1}}, nil},
		{"Critic.Gamma", able, pg.Method{Critic: &pg.Critic{LearningRate: 1}}, nil},
		{"Critic.Lambda", able, pg.Method{Critic: &pg.Critic{LearningRate: 1, Gamma: 1, Lambda: 2}}, nil},
		{"Critic.Clip", able, pg.Method{Critic: &pg.Critic{LearningRate: 1, Gamma: 1, Clip: -1}}, nil},
		{"groups of equal rewards too", able, pg.Method{Critic: ppo.Critic, Resample: 1}, nil},
		{"WholeMinibatches", able, pg.Method{}, func(c *pg.Config) { c.WholeMinibatches = true }},
		{"Correction", able, pg.Method{Correction: rl.Correction{Cap: 2}}, nil},
	}
	for _, tt := range tests {
		c := pg.Config{Learner: tt.learner, Steps: 1, LearningRate: learner.Schedule{Peak: 1}, Method: tt.method}
		if tt.change != nil {
			tt.change(&c)
		}
		if _, err := pg.New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New = %v, want an error that says %q", err, tt.want)
		}
	}
	alone := pg.Config{Learner: plain, Steps: 1, GroupSize: 1, LearningRate: learner.Schedule{Peak: 1}}
	alone.Method.Advantages.Estimator = rl.ReinforcePP
	if _, err := pg.New(alone); err != nil {
		t.Errorf("reinforce++ with one rollout a task: %v, want it allowed", err)
	}
}

// ReMax asks for one greedy rollout a task and compares the others with it. A
// group whose greedy rollout failed is left out.
func TestReMax(t *testing.T) {
	t.Parallel()
	method, err := pg.Preset(pg.ReMax)
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t)
	b.policy.logits = [2][2]float64{{1, 0}, {1, 0}} // greedily right for the first task only
	b.work.failsGreedy = func(step int) bool { return step == 2 }
	b.work.start(t)
	c := config(b, "")
	c.Method, c.Steps, c.ValidateEvery = method, 2, 0
	var steps []pg.Step
	c.OnStep = func(s pg.Step) { steps = append(steps, s) }
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	if asked := b.work.calls.Load(); asked != 2*4*(8+1)+2*2 {
		t.Errorf("%d rollouts, want 2 steps of 4 groups of 8 with a greedy one each, and 2 validations of 2", asked)
	}
	if s := steps[1]; s.Rollouts != 4*(8+1) || s.Failed != 0 {
		t.Errorf("first step: %d rollouts, %d failed, want 36 and the greedy ones among them", s.Rollouts, s.Failed)
	}
	if n := len(b.policy.batches); n != 1 {
		t.Fatalf("%d updates, want one: the second step has nothing to compare with", n)
	}
	if got := steps[2].Metrics["rollouts_without_baseline"]; got != 32 {
		t.Errorf("rollouts_without_baseline = %v in the step whose greedy rollouts failed, want 32", got)
	}
	for i, row := range b.policy.batches[0].Rows {
		task, token := row.IDs[0], row.IDs[1]
		want := float32(0)
		if task == 0 {
			want-- // the greedy answer is right
		}
		if token == task {
			want++
		}
		if row.Advantages[1] != want {
			t.Errorf("row %d: task %d, token %d: advantage %v, want %v", i, task, token, row.Advantages[1], want)
		}
	}
}
