// Package finetune makes better models by a service that tunes them on
// conversations: reward-ranked fine-tuning, also known as rejection sampling.
//
// Each iteration runs tasks with the newest model, keeps the best conversations
// by reward, has a [learner.Tuner] make a model of them, and registers it with
// the proxy under the same name, so that agents notice nothing. The next iteration
// tunes the new model. Rollouts that failed or were not rewarded are left out.
//
// The run goes on after an interruption at any point, in the middle of a job too:
// what was asked for is recorded before it is waited for, and a job that was
// handed over and not recorded is found at the service by its key.
package finetune

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/internal/journal"
	"agentlightning/algorithm/stage"
	"agentlightning/dataset"
	"agentlightning/learner"
)

// Name is the name of the algorithm in its runs.
const Name = "finetune"

// ErrNothingChosen is returned when no conversation of an iteration is worth
// training on.
var ErrNothingChosen = errors.New("there is nothing to train on")

// New returns the algorithm.
func New(c Config) (algorithm.Algorithm, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	return algorithm.Func(func(ctx context.Context, env algorithm.Env) error {
		if len(env.Train) == 0 {
			return errors.New("finetune: there are no training tasks")
		}
		run, err := algorithm.Begin(ctx, env, Name, c.summary(), c.Seed)
		if err != nil {
			return err
		}
		env.Logger = run.Logger
		if err = (&training{Config: c, env: env, run: run}).train(ctx); err != nil {
			err = fmt.Errorf("finetune: %w", err)
		}
		return run.Finish(ctx, err)
	}), nil
}

// training is one execution.
type training struct {
	Config
	env     algorithm.Env
	run     *algorithm.Run
	journal *journal.Journal
	state   state
}

// state is what an iteration begins with.
type state struct {
	Model     string    `json:"model"`
	Backend   agl.Model `json:"backend"`
	Resources string    `json:"resources"` // id of their version
}

func (t *training) train(ctx context.Context) (err error) {
	if t.journal, err = journal.Open(ctx, t.run, t.env.Store); err != nil {
		return err
	}
	begun, err := t.journal.State(&t.state)
	if err != nil {
		return err
	}
	if !begun {
		t.state = state{Model: t.Model, Backend: t.Base}
	}
	// The server may have forgotten, or have been told otherwise.
	if err := t.serve(ctx); err != nil {
		return err
	}
	if !begun {
		if err := t.begin(ctx); err != nil {
			return fmt.Errorf("before the first iteration: %w", err)
		}
	}
	for t.journal.Step() <= t.Iterations {
		number := t.journal.Step()
		if err := t.iterate(ctx, number); err != nil {
			return fmt.Errorf("iteration %d of %d: %w", number, t.Iterations, err)
		}
	}
	return nil
}

// serve makes the proxy call the newest model under its name.
func (t *training) serve(ctx context.Context) error {
	m := t.state.Backend
	if m.Endpoint == t.Base.Endpoint && m.APIKey == "" {
		m.APIKey = t.Base.APIKey // it is not kept with the state
		if m.APIKey != "" {
			m.APIKeyEnv = ""
		}
	}
	if err := t.env.Store.ReplaceModels(ctx, []agl.Model{m}); err != nil {
		return fmt.Errorf("register model %s: %w", m.Target, err)
	}
	return nil
}

// publish gives agents the model under its name, as a version of the resources
// of its own, and returns its id.
func (t *training) publish(ctx context.Context) (string, error) {
	return journal.Do(ctx, t.journal, "publish", func(ctx context.Context) (string, error) {
		resources := agl.NamedResources{{Name: t.Resource, Resource: agl.ProxyLLM{Endpoint: t.Proxy, Model: t.Base.Name}}}
		for _, r := range t.env.InitialResources {
			if r.Name != t.Resource {
				resources = append(resources, r)
			}
		}
		u, err := t.env.Store.AddResources(ctx, resources)
		if err != nil {
			return "", fmt.Errorf("publish resources: %w", err)
		}
		return u.ResourcesID, nil
	})
}

// begin measures the model as it is.
func (t *training) begin(ctx context.Context) (err error) {
	if t.state.Resources, err = t.publish(ctx); err != nil {
		return err
	}
	s := Step{Of: t.Iterations, Model: t.state.Model, Metrics: map[string]float64{}}
	if err := t.validate(ctx, &s); err != nil {
		return err
	}
	return t.complete(ctx, s)
}

func (t *training) iterate(ctx context.Context, number int) error {
	s := Step{Number: number, Of: t.Iterations, Metrics: map[string]float64{}}
	outcomes, groups, err := t.rollouts(ctx, number)
	if err != nil {
		return err
	}
	why := s.count(outcomes)
	reward, rewarded := algorithm.MeanReward(outcomes)
	if rewarded == 0 {
		return fmt.Errorf("%w: no rollout was rewarded: %s", ErrNothingChosen, why)
	}
	s.Reward = &reward
	s.Metrics["reward"], s.Metrics["rewarded"] = reward, float64(rewarded)
	conversations, err := t.choose(outcomes, groups)
	if err != nil {
		return err
	}
	s.Examples = len(conversations)
	var training bytes.Buffer
	if err := dataset.WriteOpenAI(&training, conversations); err != nil {
		return err
	}
	tuned, err := t.tune(ctx, number, training.Bytes())
	if err != nil {
		return err
	}
	t.state.Model = tuned.Model
	tuned.Backend.Name, tuned.Backend.Version = t.Base.Name, int64(number)
	t.state.Backend = t.options(tuned.Backend)
	s.Model, s.TrainedTokens, s.Cost = tuned.Model, tuned.TrainedTokens, tuned.Cost
	for name, v := range tuned.Metrics {
		s.Metrics["tuning_"+name] = v
	}
	if err := t.serve(ctx); err != nil {
		return err
	}
	if t.state.Resources, err = t.publish(ctx); err != nil {
		return err
	}
	if err := t.validate(ctx, &s); err != nil {
		return err
	}
	return t.complete(ctx, s)
}

// options puts what the base model was registered with on a new one.
func (t *training) options(m agl.Model) agl.Model {
	m.Weight, m.Retries, m.Concurrency, m.RPM, m.TPM = t.Base.Weight, t.Base.Retries, t.Base.Concurrency, t.Base.RPM, t.Base.TPM
	return m
}

// rollouts runs the tasks of an iteration.
func (t *training) rollouts(ctx context.Context, number int) ([]algorithm.Outcome, []string, error) {
	n := len(t.env.Train)
	count := t.Tasks
	if count == 0 {
		count = n
	}
	var wanted []journal.Request
	var groups []string
	for k := range count {
		drawn := (number-1)*count + k
		// Every pass over the tasks takes each of them once, in an order of its own.
		order := rand.New(rand.NewPCG(uint64(t.Seed), uint64(drawn/n))).Perm(n)
		for m := range t.Rollouts {
			wanted = append(wanted, journal.Request{
				Input: t.env.Train[order[drawn%n]], Mode: agl.ModeTrain, ResourcesID: t.state.Resources, Config: t.Rollout,
				Seed: t.seed(number, k, m),
			})
			groups = append(groups, strconv.Itoa(k))
		}
	}
	outcomes, err := t.gather(ctx, stage.Collect, wanted)
	return outcomes, groups, err
}

// seed is what the agent of one rollout derives its randomness from.
func (t *training) seed(number, task, member int) int64 {
	r := rand.New(rand.NewPCG(uint64(t.Seed), uint64(number)<<40|uint64(task)<<10|uint64(member)<<1|1))
	return r.Int64N(1 << 31)
}

// gather asks for rollouts and waits for them, as the stage of that name.
func (t *training) gather(ctx context.Context, name string, wanted []journal.Request) (outcomes []algorithm.Outcome, err error) {
	ids, err := t.journal.Ask(ctx, name, wanted)
	if err != nil {
		return nil, err
	}
	err = t.run.Stage(ctx, name, func(ctx context.Context) error {
		outcomes, err = algorithm.Collect(ctx, t.env.Store, ids, algorithm.Collecting{Stall: t.Stall})
		return err
	})
	return outcomes, err
}

// choose returns the conversations of the best rollouts.
func (t *training) choose(outcomes []algorithm.Outcome, groups []string) ([]dataset.Conversation, error) {
	scored := make([]dataset.Scored, len(outcomes))
	for i := range outcomes {
		scored[i] = dataset.Scored{ID: outcomes[i].Rollout.RolloutID, Group: groups[i], Reward: outcomes[i].Reward}
	}
	chosen, err := t.Selection.Select(scored)
	if err != nil {
		return nil, err
	}
	var out []dataset.Conversation
	for _, i := range chosen {
		conversations, err := dataset.Conversations(outcomes[i].Spans)
		if err != nil {
			return nil, fmt.Errorf("rollout %s: %w", scored[i].ID, err)
		}
		out = append(out, conversations...)
	}
	switch {
	case len(chosen) == 0:
		return nil, fmt.Errorf("%w: the selection takes none of %d rollouts", ErrNothingChosen, len(outcomes))
	case len(out) == 0:
		return nil, fmt.Errorf("%w: the %d rollouts that were chosen hold no answer of a model; do agents call it at the address that they are given?", ErrNothingChosen, len(chosen))
	}
	return out, nil
}

// attempt is what became of one job.
type attempt struct {
	Tuned  learner.Tuned        `json:"tuned"`
	Failed *learner.TuningError `json:"failed,omitempty"`
}

// tune has the service make a model.
func (t *training) tune(ctx context.Context, number int, training []byte) (learner.Tuned, error) {
	for n := 0; ; n++ {
		job := learner.TuningJob{Key: fmt.Sprintf("%s/%d/%d", t.run.RunID, number, n), Model: t.state.Model, Training: training}
		ticket, err := journal.Do(ctx, t.journal, fmt.Sprintf("job %d", n), func(ctx context.Context) (learner.Ticket, error) {
			return t.Tuner.Start(ctx, job)
		})
		if err != nil {
			return learner.Tuned{}, err
		}
		made, err := journal.Do(ctx, t.journal, fmt.Sprintf("model %d", n), func(ctx context.Context) (attempt, error) {
			var tuned learner.Tuned
			err := t.run.Stage(ctx, stage.Update, func(ctx context.Context) (err error) {
				tuned, err = t.Tuner.Wait(ctx, ticket, func(p learner.TuningProgress) {
					stage.Progress(ctx, "job %s is %s %s", ticket.ID, p.Status, p.Message)
					if t.OnTuning != nil {
						t.OnTuning(number, p)
					}
				})
				return err
			})
			failed, ended := errors.AsType[*learner.TuningError](err)
			if ended {
				err = nil
			}
			return attempt{tuned, failed}, err
		})
		if err != nil {
			return learner.Tuned{}, err
		}
		if made.Failed == nil {
			return made.Tuned, nil
		}
		if n >= t.Retries {
			return learner.Tuned{}, fmt.Errorf("%w; %d of %d jobs failed (Retries %d)", made.Failed, n+1, n+1, t.Retries)
		}
		t.env.Logger.WarnContext(ctx, "fine-tuning job failed; another begins", "run_id", t.run.RunID, "step", number, "err", made.Failed)
	}
}

func (t *training) validate(ctx context.Context, s *Step) error {
	if len(t.env.Val) == 0 {
		return nil
	}
	wanted := make([]journal.Request, len(t.env.Val))
	for i, task := range t.env.Val {
		// The seed of a task is the same each time, so that models are compared on equal terms.
		wanted[i] = journal.Request{Input: task, Mode: agl.ModeVal, ResourcesID: t.state.Resources, Config: t.Rollout, Seed: t.seed(0, i, 0)}
	}
	outcomes, err := t.gather(ctx, stage.Validate, wanted)
	if err != nil {
		return fmt.Errorf("validation: %w", err)
	}
	why := s.count(outcomes)
	accuracy, rewarded := algorithm.MeanReward(outcomes)
	if rewarded == 0 {
		return fmt.Errorf("validation: no rollout was rewarded: %s", why)
	}
	s.Accuracy = &accuracy
	s.Metrics["accuracy"], s.Metrics["validation_failed"] = accuracy, float64(len(outcomes)-rewarded)
	return nil
}

// count adds outcomes and returns why the last that failed did.
func (s *Step) count(outcomes []algorithm.Outcome) (why string) {
	s.Rollouts += len(outcomes)
	for _, o := range outcomes {
		if o.Reward != nil {
			continue
		}
		s.Failed++
		if why = o.Failure; why == "" {
			why = "rollout " + o.Rollout.RolloutID + " succeeded without a reward"
		}
	}
	return why
}

// complete makes the iteration durable and reports it.
func (t *training) complete(ctx context.Context, s Step) error {
	s.Metrics["rollouts"], s.Metrics["rollouts_failed"] = float64(s.Rollouts), float64(s.Failed)
	s.Metrics["examples"], s.Metrics["trained_tokens"], s.Metrics["cost"] = float64(s.Examples), float64(s.TrainedTokens), s.Cost
	if err := t.run.Record(ctx, s.Number, s.Metrics); err != nil {
		return err
	}
	kept := t.state
	kept.Backend.APIKey = "" // never written down
	if err := t.journal.Commit(ctx, kept, s.Accuracy); err != nil {
		return err
	}
	if t.OnStep != nil {
		t.OnStep(s)
	}
	return nil
}
