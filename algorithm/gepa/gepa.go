// Package gepa optimises several prompt templates together by reflection and
// Pareto fronts, after GEPA (arXiv:2507.19457).
//
// Each iteration draws a candidate among those that nobody surpasses on some
// validation task, runs it on a few training tasks, and shows a model what
// happened: rewards, and in words what tools, judges and the agent said. The model
// rewrites one component. A rewrite that does better on these tasks is scored on
// all validation tasks and joins the candidates. Now and then what two lineages
// learned apart is put together.
//
// Every answer and every rollout is recorded in the run before it is used, so a
// run goes on from where it was killed and pays again for the calls in flight
// alone. A rewrite that loses a placeholder is never run; see [prompt.Revise].
package gepa

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/internal/journal"
	"agentlightning/algorithm/prompt"
	"agentlightning/algorithm/stage"
)

// Name is the name of the algorithm in its runs.
const Name = "gepa"

// ErrFailures is returned when too many iterations failed one after another.
var ErrFailures = errors.New("too many iterations failed one after another")

// Result is what a run came to.
type Result struct {
	Best       Candidate
	Score      float64 // mean primary reward of Best on the validation tasks
	Candidates []Candidate
	Spent      Spent
	// Stopped says why the search ended.
	Stopped string
}

// Spent is what a run has taken.
type Spent struct {
	Evaluations int     `json:"evaluations"` // rollouts
	Calls       int     `json:"calls"`       // of the completer, those that failed too
	Tokens      int64   `json:"tokens"`      // of these calls, as far as they are known
	Cost        float64 `json:"cost"`
}

// Iteration is what one iteration did.
type Iteration struct {
	Number int // from 1
	// Parents are the candidates that were worked on, and Component is what was
	// rewritten; empty for a merge.
	Parents   []int
	Component string
	// Accepted is the new candidate; nil when there is none, for the reason why.
	Accepted *Candidate
	Reason   string
	Spent    Spent
	Best     float64 // score of the best candidate so far
}

// GEPA is an [algorithm.Algorithm]. Run may be called once at a time.
type GEPA struct {
	cfg    Config
	result *Result
}

var _ algorithm.Algorithm = (*GEPA)(nil)

// New returns the algorithm.
func New(c Config) (*GEPA, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &GEPA{cfg: c.withDefaults()}, nil
}

// Result returns what the last Run came to; false when it scored nothing.
func (g *GEPA) Result() (Result, bool) {
	if g.result == nil {
		return Result{}, false
	}
	return *g.result, true
}

// Run searches, and leaves the best candidate as the latest resources of the
// store. Without validation tasks the training tasks take their place.
func (g *GEPA) Run(ctx context.Context, env algorithm.Env) error {
	g.result = nil
	s := &search{Config: g.cfg, env: env}
	if len(s.env.Val) == 0 {
		s.env.Val = s.env.Train
	}
	if err := s.check(); err != nil {
		return err
	}
	plan, err := g.cfg.Plan(len(s.env.Val))
	if err != nil {
		return err
	}
	if s.run, err = algorithm.Begin(ctx, env, Name, s.summary(), s.Seed); err != nil {
		return err
	}
	s.env.Logger = s.run.Logger
	s.env.Logger.InfoContext(ctx, "plan of the search", "plan", plan.String())
	if err = s.search(ctx); err != nil {
		err = fmt.Errorf("gepa: %w", err)
	}
	if all := s.state.Candidates; len(all) > 0 {
		b := all[best(all)]
		score, _ := b.Score()
		g.result = &Result{b, score, all, s.state.Spent, s.state.Stopped}
	}
	return s.run.Finish(ctx, err)
}

// search is one execution.
type search struct {
	Config
	env     algorithm.Env
	run     *algorithm.Run
	journal *journal.Journal
	state   state
	asked   int // evaluations of the iteration in hand
}

// state is what an iteration begins with.
type state struct {
	Candidates []Candidate `json:"candidates"`
	// Cache holds what is known by candidate, task and seed.
	Cache    map[string]cached `json:"cache"`
	Spent    Spent             `json:"spent"`
	Drawn    int               `json:"drawn"` // minibatches
	Failures int               `json:"failures"`
	MergeDue bool              `json:"merge_due"`
	Merges   int               `json:"merges"`
	Tried    []string          `json:"tried"` // pairs that were merged
	Stopped  string            `json:"stopped"`
}

func (s *search) check() error {
	if len(s.env.Train) == 0 {
		return errors.New("gepa: there are no training tasks; prompts are rewritten in their light")
	}
	var names []string
	for _, r := range s.env.InitialResources {
		if _, ok := r.Resource.(agl.PromptTemplate); ok {
			names = append(names, r.Name)
		}
	}
	if len(names) == 0 {
		return errors.New("gepa: there is no prompt template among the initial resources")
	}
	if len(s.Components) == 0 {
		s.Components = names
	}
	for i, name := range s.Components {
		if !slices.Contains(names, name) || slices.Contains(s.Components[:i], name) {
			return fmt.Errorf("gepa: Components[%d]: %q: must be a prompt template of the initial resources, named once; those are %s", i, name, strings.Join(names, ", "))
		}
	}
	return nil
}

func (s *search) original(name string) agl.PromptTemplate {
	return s.env.InitialResources.Get(name).(agl.PromptTemplate)
}

func (s *search) search(ctx context.Context) error {
	var err error
	if s.journal, err = journal.Open(ctx, s.run, s.env.Store); err != nil {
		return err
	}
	resumed, err := s.journal.State(&s.state)
	if err != nil {
		return err
	}
	if s.state.Cache == nil {
		s.state.Cache = map[string]cached{}
	}
	if !resumed {
		if err := s.begin(ctx); err != nil {
			return fmt.Errorf("score the initial prompts: %w", err)
		}
	}
	for s.state.Stopped == "" {
		if why := s.spentUp(); why != "" {
			s.state.Stopped = why
			s.env.Logger.InfoContext(ctx, "search ended", "why", why)
			break
		}
		number := s.journal.Step()
		it, err := s.iteration(ctx, rand.New(rand.NewPCG(uint64(s.Seed), uint64(number))))
		if errors.Is(err, ErrFailures) {
			// Resumed, the run begins to count anew.
			s.state.Failures = 0
			if failed := s.complete(ctx, it); failed != nil {
				err = errors.Join(err, failed)
			}
		}
		if err != nil {
			return fmt.Errorf("iteration %d: %w", number, err)
		}
		it.Number = number
		if err := s.complete(ctx, it); err != nil {
			return err
		}
	}
	return s.publish(ctx, s.state.Candidates[best(s.state.Candidates)].Templates)
}

// spentUp says which limit is reached; an iteration that could not be ended is
// not begun.
func (s *search) spentUp() string {
	most := (2*s.Minibatch + len(s.env.Val)) * s.Repeats
	switch spent := s.state.Spent; {
	case s.MaxTokens > 0 && spent.Tokens >= s.MaxTokens:
		return fmt.Sprintf("%d of %d tokens are spent", spent.Tokens, s.MaxTokens)
	case s.MaxCost > 0 && spent.Cost >= s.MaxCost:
		return fmt.Sprintf("%v of %v of the money are spent", spent.Cost, s.MaxCost)
	case spent.Evaluations+most > s.MaxEvaluations:
		return fmt.Sprintf("%d of %d rollouts are spent and an iteration may take %d", spent.Evaluations, s.MaxEvaluations, most)
	case s.journal.Step() > s.MaxEvaluations:
		return fmt.Sprintf("there were %d iterations, as many as the budget has rollouts", s.MaxEvaluations)
	}
	return ""
}

func (s *search) begin(ctx context.Context) error {
	first := Candidate{Templates: map[string]agl.PromptTemplate{}}
	for _, name := range s.Components {
		first.Templates[name] = s.original(name)
	}
	if err := s.validate(ctx, &first); err != nil {
		return err
	}
	if _, n := first.Score(); n == 0 {
		return errors.New("no rollout has a reward; is the agent in order?")
	}
	return s.complete(ctx, Iteration{Accepted: &s.state.Candidates[0]})
}

// complete makes the iteration durable and reports it.
func (s *search) complete(ctx context.Context, it Iteration) error {
	it.Spent = s.state.Spent
	it.Best, _ = s.state.Candidates[best(s.state.Candidates)].Score()
	values := map[string]float64{
		"best_score": it.Best, "candidates": float64(len(s.state.Candidates)), "rollouts": float64(it.Spent.Evaluations),
		"calls": float64(it.Spent.Calls), "tokens": float64(it.Spent.Tokens), "cost": it.Spent.Cost,
	}
	if it.Accepted != nil {
		values["score"], _ = it.Accepted.Score()
	}
	if err := s.run.Record(ctx, s.journal.Step(), values); err != nil {
		return err
	}
	s.asked = 0
	if err := s.journal.Commit(ctx, s.state, &it.Best); err != nil {
		return err
	}
	s.env.Logger.InfoContext(ctx, "iteration", "number", it.Number, "parents", it.Parents, "component", it.Component,
		"accepted", it.Accepted != nil, "reason", it.Reason, "best_score", it.Best, "rollouts", it.Spent.Evaluations, "of", s.MaxEvaluations)
	if s.OnIteration != nil && it.Number > 0 {
		s.OnIteration(it)
	}
	return nil
}

func (s *search) iteration(ctx context.Context, r *rand.Rand) (Iteration, error) {
	if s.state.MergeDue {
		s.state.MergeDue = false
		if it, ok, err := s.merge(ctx, r); ok || err != nil {
			return it, err
		}
	}
	parent := s.state.Candidates[choose(s.state.Candidates, r)]
	component := s.Components[parent.Next%len(s.Components)]
	s.state.Candidates[parent.ID].Next++
	it := Iteration{Parents: []int{parent.ID}, Component: component}
	batch := s.minibatch()
	before, err := s.evaluate(ctx, parent.Templates, batch, agl.ModeTrain, true)
	if err != nil {
		return it, err
	}
	if s.perfect(before) {
		it.Reason = "the minibatch is perfect"
		return it, nil
	}
	revised, err := s.rewrite(ctx, &parent, component, before)
	if err != nil || revised == nil {
		it.Reason = "no usable rewrite"
		return it, err
	}
	after, err := s.evaluate(ctx, revised, batch, agl.ModeTrain, false)
	if err != nil {
		return it, err
	}
	if failed(after) == len(after) {
		it.Reason = "every rollout failed"
		return it, s.fail(fmt.Errorf("every rollout of a rewrite of %q failed: %s", component, after[0].failure()))
	}
	s.state.Failures = 0
	mine, theirs, common := compare(after, before)
	switch {
	case failed(after) > failed(before):
		it.Reason = fmt.Sprintf("%d of %d tasks failed, %d of the parent", failed(after), len(batch), failed(before))
	case common > 0 && mine <= theirs:
		it.Reason = fmt.Sprintf("reward %.4g on the minibatch, %.4g of the parent", mine, theirs)
	default:
		child := Candidate{Parents: it.Parents, Templates: revised, Next: parent.Next + 1}
		if err := s.validate(ctx, &child); err != nil {
			return it, err
		}
		it.Accepted = &s.state.Candidates[len(s.state.Candidates)-1]
		s.state.MergeDue = s.state.Merges < s.MaxMerges
	}
	return it, nil
}

// minibatch draws training tasks.
func (s *search) minibatch() []int {
	n := 0
	for batch := range algorithm.Batches(len(s.env.Train), s.Minibatch, s.Seed) {
		if n++; n > s.state.Drawn {
			s.state.Drawn++
			return batch
		}
	}
	return nil
}

// fail counts an iteration that came to nothing; too many of them end the run.
func (s *search) fail(cause error) error {
	if s.state.Failures++; s.state.Failures >= s.MaxFailures {
		return fmt.Errorf("%w, %d: the last for %w", ErrFailures, s.state.Failures, cause)
	}
	return nil
}

// rewrite asks for a new text of a component; nil when there is no usable one.
func (s *search) rewrite(ctx context.Context, parent *Candidate, component string, batch []trial) (map[string]agl.PromptTemplate, error) {
	// What a call took counts also when it failed; failures are not recorded.
	var got prompt.Answer
	err := s.run.Stage(ctx, stage.Reflect, func(ctx context.Context) (err error) {
		got, err = journal.Do(ctx, s.journal, "reflect", func(ctx context.Context) (prompt.Answer, error) {
			return s.Completer.Complete(ctx, s.request(parent, component, batch))
		})
		return err
	})
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if errors.Is(err, stage.ErrStuck) {
		return nil, err
	}
	s.state.Spent.Calls++
	s.state.Spent.Tokens += got.InputTokens + got.OutputTokens
	s.state.Spent.Cost += got.Cost
	if err != nil {
		return nil, s.unusable(ctx, component, err)
	}
	text, err := extract(got.Text)
	if err != nil {
		return nil, s.unusable(ctx, component, err)
	}
	revised, err := prompt.Revise(s.original(component), text)
	if err != nil {
		return nil, s.unusable(ctx, component, err)
	}
	out := maps.Clone(parent.Templates)
	out[component] = revised
	if c := s.known(out); c >= 0 {
		return nil, s.unusable(ctx, component, fmt.Errorf("the answer makes candidate %d once more", c))
	}
	return out, nil
}

func (s *search) unusable(ctx context.Context, component string, why error) error {
	s.env.Logger.WarnContext(ctx, "rewrite left out", "component", component, "err", why)
	return s.fail(why)
}

// known returns the candidate that has these templates, -1 when none has.
func (s *search) known(templates map[string]agl.PromptTemplate) int {
	return slices.IndexFunc(s.state.Candidates, func(c Candidate) bool { return identity(c.Templates) == identity(templates) })
}

// merge tries to put two candidates of the front together; ok is false when
// there are none that can be.
func (s *search) merge(ctx context.Context, r *rand.Rand) (it Iteration, ok bool, err error) {
	type pair struct {
		i, j      int
		templates map[string]agl.PromptTemplate
	}
	var pairs []pair
	all := s.state.Candidates
	wins := front(all)
	for i := range all {
		for j := range i {
			if wins[i] == 0 || wins[j] == 0 || slices.Contains(s.state.Tried, fmt.Sprint(i, j)) {
				continue
			}
			if m := merge(all, i, j); m != nil && s.known(m) < 0 {
				pairs = append(pairs, pair{i, j, m})
			}
		}
	}
	if len(pairs) == 0 {
		return it, false, nil
	}
	p := pairs[r.IntN(len(pairs))]
	s.state.Tried = append(s.state.Tried, fmt.Sprint(p.i, p.j))
	s.state.Merges++
	it.Parents = []int{p.i, p.j}
	sample := r.Perm(len(s.env.Val))[:min(2*s.Minibatch, len(s.env.Val))]
	merged, err := s.evaluate(ctx, p.templates, sample, agl.ModeVal, false)
	if err != nil {
		return it, false, err
	}
	for _, parent := range it.Parents {
		theirs, err := s.evaluate(ctx, all[parent].Templates, sample, agl.ModeVal, false)
		if err != nil {
			return it, false, err
		}
		if x, y, _ := compare(merged, theirs); x < y || failed(merged) > failed(theirs) {
			it.Reason = fmt.Sprintf("reward %.4g on the sample, %.4g of candidate %d", x, y, parent)
			return it, true, nil
		}
	}
	child := Candidate{Parents: it.Parents, Templates: p.templates, Next: max(all[p.i].Next, all[p.j].Next)}
	if err := s.validate(ctx, &child); err != nil {
		return it, false, err
	}
	it.Accepted = &s.state.Candidates[len(s.state.Candidates)-1]
	return it, true, nil
}

// stall is how long to wait for rollouts by default.
const stall = 5 * time.Minute
