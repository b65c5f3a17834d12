package finetune_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	oai "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"go.uber.org/goleak"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/finetune"
	"agentlightning/dataset"
	"agentlightning/internal/daemon"
	"agentlightning/learner"
	"agentlightning/learner/openai"
	"agentlightning/learner/openai/openaitest"
	"agentlightning/llmproxy"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/trainer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guess is a model that knows nothing: what it says follows from the question.
func guess(messages []openaitest.Message) string {
	n := 0
	for _, r := range messages[len(messages)-1].Content {
		n += int(r)
	}
	return []string{"even", "odd"}[n%2]
}

// remember makes a model that has learnt answers by heart.
func remember(_ string, conversations [][]openaitest.Message, _ int) (openaitest.Model, error) {
	known := map[string]string{}
	for _, c := range conversations {
		known[c[len(c)-2].Content] = c[len(c)-1].Content
	}
	return func(messages []openaitest.Message) string {
		if answer, ok := known[messages[len(messages)-1].Content]; ok {
			return answer
		}
		return guess(messages)
	}, nil
}

// site is a server, an agent and a service.
type site struct {
	service *openaitest.Service
	store   store.Store
	agent   agent.Agent
	config  finetune.Config
	tuner   *openai.Tuner
}

func newSite(t *testing.T, c openaitest.Config) *site {
	t.Helper()
	c.Base = map[string]openaitest.Model{"small": guess}
	if c.Train == nil {
		c.Train = remember
	}
	s := &site{service: openaitest.New(c), store: engine.New(memory.New(), engine.Config{})}
	upstream := httptest.NewServer(s.service)
	server, err := daemon.Listen(t.Context(), daemon.Config{
		Store: s.store, Proxy: llmproxy.Config{Environ: func(string) string { return "any" }},
	})
	if err != nil {
		t.Fatal(err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- server.Run(serving) }()
	kept := s.store
	s.store = server.Store() // so that new models are called at once
	transport, calls := &http.Transport{}, &http.Transport{}
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-served, kept.Close()); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		calls.CloseIdleConnections()
		upstream.Close()
	})
	client := &http.Client{Transport: calls}
	// The task is a number; the agent is rewarded for the right word of two.
	s.agent = agent.New(func(ctx context.Context, number int, c *agent.Call) (float64, error) {
		llm, err := c.LLM("")
		if err != nil {
			return 0, err
		}
		m := oai.NewChatCompletionService(option.WithBaseURL(llm.Endpoint), option.WithAPIKey("any"), option.WithHTTPClient(client), option.WithMaxRetries(0))
		got, err := m.New(ctx, oai.ChatCompletionNewParams{
			Model: llm.Model, Messages: []oai.ChatCompletionMessageParamUnion{oai.UserMessage(fmt.Sprintf("Is %d even or odd?", number))},
		})
		if err != nil {
			return 0, err
		}
		if got.Choices[0].Message.Content == []string{"even", "odd"}[number%2] {
			return 1, nil
		}
		return 0, nil
	}, agent.NeedLLM(""))
	s.tuner, err = openai.New(openai.Config{
		Model: "small", BaseURL: upstream.URL + "/v1", PollEvery: time.Millisecond, PricePerMillion: 1e6,
		Client: &http.Client{Transport: transport}, LookupEnv: func(string) (string, bool) { return "any", true },
	})
	if err != nil {
		t.Fatal(err)
	}
	one := 1.0
	s.config = finetune.Config{
		Tuner: s.tuner, Base: agl.Model{Endpoint: upstream.URL + "/v1", Target: "small"}, Iterations: 2, Seed: 5,
		Selection: dataset.Selection{Min: &one}, Proxy: server.URL() + "/v1",
	}
	return s
}

// numbers are tasks half of which the base model answers rightly.
func numbers(t *testing.T, from, to int) []json.RawMessage {
	t.Helper()
	var all []int
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	tasks, err := algorithm.Tasks(all)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

func (s *site) fit(ctx context.Context, t *testing.T, runID string) error {
	t.Helper()
	a, err := finetune.New(s.config)
	if err != nil {
		t.Fatal(err)
	}
	return trainer.Fit(ctx, trainer.Config{
		Agent: s.agent, Algorithm: a, Store: s.store, Concurrency: 4, RunID: runID, Logger: slog.New(slog.DiscardHandler),
	}, numbers(t, 10, 30), numbers(t, 15, 25))
}

func TestFinetune(t *testing.T) {
	t.Parallel()
	s := newSite(t, openaitest.Config{})
	var steps []finetune.Step
	var said []string
	s.config.OnStep = func(step finetune.Step) { steps = append(steps, step) }
	s.config.OnTuning = func(number int, p learner.TuningProgress) { said = append(said, fmt.Sprint(number, p.Status)) }
	if err := s.fit(t.Context(), t, ""); err != nil {
		t.Fatal(err)
	}
	jobs := s.service.Jobs()
	if len(jobs) != 2 || jobs[0].Model != "small" || jobs[1].Model != jobs[0].Tuned {
		t.Fatalf("jobs %+v, want two, the second of the first one's model", jobs)
	}
	if len(steps) != 3 || steps[0].Number != 0 || *steps[0].Accuracy >= 1 || steps[1].Model != jobs[0].Tuned || steps[2].Model != jobs[1].Tuned {
		t.Fatalf("steps %+v", steps)
	}
	// What was trained on are the conversations that were rewarded.
	rewarded := int(*steps[1].Reward*20 + .5)
	if steps[1].Examples != rewarded || strings.Count(string(jobs[0].Training), "\n") != rewarded || rewarded == 0 || rewarded == 20 {
		t.Errorf("%d examples, %d rewarded; trained on\n%s", steps[1].Examples, rewarded, jobs[0].Training)
	}
	if line, _, _ := strings.Cut(string(jobs[0].Training), "\n"); !strings.HasPrefix(line, `{"messages":[{`) || strings.Contains(line, "reward") {
		t.Errorf("first line %s", line)
	}
	if steps[1].TrainedTokens != jobs[0].TrainedTokens || steps[1].Cost != float64(jobs[0].TrainedTokens) || len(said) == 0 {
		t.Errorf("step %+v, want the tokens and cost of job %+v", steps[1], jobs[0])
	}
	models, err := s.store.Models(t.Context())
	if err != nil || len(models) != 1 || models[0].Name != "policy" || models[0].Target != jobs[1].Tuned || models[0].Version != 2 {
		t.Errorf("models %+v, %v, want the last one alone", models, err)
	}
	// Each validation ran with the newest model, from its first call on.
	for i, step := range steps {
		want := map[bool]string{true: "small", false: step.Model}[i == 0]
		for _, got := range s.validated(t, i) {
			if got != want {
				t.Errorf("validation %d called model %q, want %q", i, got, want)
			}
		}
	}
	latest, err := s.store.LatestResources(t.Context())
	if err != nil || latest.Resources.Get("main_llm") == nil {
		t.Errorf("resources %+v, %v", latest, err)
	}
	runs, err := s.store.Runs(t.Context(), 1)
	if err != nil || runs[0].Status != agl.RunSucceeded || runs[0].Algorithm != finetune.Name {
		t.Errorf("run %+v, %v", runs, err)
	}
	metrics, err := s.store.StepMetrics(t.Context(), runs[0].RunID, 0)
	if err != nil || len(metrics) != 2 {
		t.Fatalf("metrics %+v, %v", metrics, err)
	}
	found := false
	for name, v := range metrics[0].Values {
		found = found || strings.HasSuffix(name, "tuning_train_loss") && v == 0.5
	}
	if !found {
		t.Errorf("metrics %v, want the service's train_loss", metrics[0].Values)
	}
}

// validated returns the models that answered in the validation of an iteration.
func (s *site) validated(t *testing.T, iteration int) []string {
	t.Helper()
	page, err := s.store.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range page.Items {
		if string(r.MetadataValue("agl.step")) != fmt.Sprint(iteration) || r.Mode != agl.ModeVal {
			continue
		}
		spans, err := s.store.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID})
		if err != nil {
			t.Fatal(err)
		}
		for i := range spans.Items {
			for _, a := range spans.Items[i].Attributes {
				if a.Key == "gen_ai.response.model" {
					out = append(out, fmt.Sprint(a.Value))
				}
			}
		}
	}
	if len(out) != 10 {
		t.Errorf("%d calls in validation %d, want 10", len(out), iteration)
	}
	return out
}

// stopping ends the context at its n-th call, before the call or after it.
type stopping struct {
	learner.Tuner
	at    int
	after bool
	stop  context.CancelFunc
	calls int
}

func (s *stopping) call(f func()) {
	s.calls++
	if s.calls == s.at && !s.after {
		s.stop()
	}
	f()
	if s.calls == s.at && s.after {
		s.stop()
	}
}

func (s *stopping) Start(ctx context.Context, j learner.TuningJob) (ticket learner.Ticket, err error) {
	s.call(func() { ticket, err = s.Tuner.Start(ctx, j) })
	return ticket, err
}

func (s *stopping) Wait(ctx context.Context, ticket learner.Ticket, report func(learner.TuningProgress)) (tuned learner.Tuned, err error) {
	s.call(func() { tuned, err = s.Tuner.Wait(ctx, ticket, report) })
	return tuned, err
}

func TestResume(t *testing.T) {
	t.Parallel()
	whole := newSite(t, openaitest.Config{})
	if err := whole.fit(t.Context(), t, ""); err != nil {
		t.Fatal(err)
	}
	want := whole.service.Jobs()
	for at := 1; at <= 4; at++ { // each iteration starts a job and waits for it
		for _, after := range []bool{false, true} {
			s := newSite(t, openaitest.Config{})
			ctx, stop := context.WithCancel(t.Context())
			s.config.Tuner = &stopping{Tuner: s.tuner, at: at, after: after, stop: stop}
			err := s.fit(ctx, t, "")
			stop()
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("stopped at call %d: %v, want context.Canceled", at, err)
			}
			runs, err := s.store.Runs(t.Context(), 1)
			if err != nil || runs[0].Status != agl.RunInterrupted {
				t.Fatalf("runs %+v, %v", runs, err)
			}
			s.config.Tuner = s.tuner
			if err := s.fit(t.Context(), t, runs[0].RunID); err != nil {
				t.Fatalf("resumed after call %d: %v", at, err)
			}
			jobs := s.service.Jobs()
			if len(jobs) != len(want) {
				t.Fatalf("stopped at call %d (after %v): %d jobs, want %d", at, after, len(jobs), len(want))
			}
			for i := range jobs {
				if string(jobs[i].Training) != string(want[i].Training) {
					t.Errorf("stopped at call %d: job %d was trained on\n%s\nwant\n%s", at, i, jobs[i].Training, want[i].Training)
				}
			}
		}
	}
}

func TestJobsThatFail(t *testing.T) {
	t.Parallel()
	failures := 0
	fails := openaitest.Config{Train: func(base string, c [][]openaitest.Message, n int) (openaitest.Model, error) {
		if failures++; failures == 1 {
			return nil, errors.New("out of luck")
		}
		return remember(base, c, n)
	}}
	s := newSite(t, fails)
	err := s.fit(t.Context(), t, "")
	if failed, ok := errors.AsType[*learner.TuningError](err); !ok || failed.Message != "out of luck" || !strings.Contains(err.Error(), "iteration 1 of 2") {
		t.Fatalf("Fit = %v, want the service's failure", err)
	}
	// The run that is resumed with retries begins another job.
	runs, err := s.store.Runs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	s.config.Retries = 1
	if err := s.fit(t.Context(), t, runs[0].RunID); err != nil {
		t.Fatal(err)
	}
	if jobs := s.service.Jobs(); len(jobs) != 3 || jobs[0].Status != "failed" || jobs[2].Status != "succeeded" {
		t.Errorf("jobs %+v, want one that failed and two models", jobs)
	}
}

func TestNothingToTrainOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, openaitest.Config{})
	two := 2.0
	s.config.Selection.Min = &two
	if err := s.fit(t.Context(), t, ""); !errors.Is(err, finetune.ErrNothingChosen) || len(s.service.Jobs()) != 0 {
		t.Errorf("Fit = %v with %d jobs, want ErrNothingChosen and none", err, len(s.service.Jobs()))
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want   string
		change func(*finetune.Config)
	}{
		{"Tuner", func(c *finetune.Config) { c.Tuner = nil }},
		{"Base", func(c *finetune.Config) { c.Base.Endpoint = "" }},
		{"Iterations", func(c *finetune.Config) { c.Iterations = -1 }},
		{"Tasks", func(c *finetune.Config) { c.Tasks = -1 }},
		{"Rollouts", func(c *finetune.Config) { c.Rollouts = -1 }},
		{"Retries", func(c *finetune.Config) { c.Retries = -1 }},
		{"PerGroup", func(c *finetune.Config) { c.Selection = dataset.Selection{Top: .5, PerGroup: true} }},
		{"Selection", func(c *finetune.Config) { c.Selection.Top = 2 }},
	} {
		c := finetune.Config{Tuner: &openai.Tuner{}, Base: agl.Model{Endpoint: "http://127.0.0.1:1/v1"}}
		tt.change(&c)
		if _, err := finetune.New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New = %v, want an error that names %q", err, tt.want)
		}
	}
}
