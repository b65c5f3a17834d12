package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	agl "agentlightning"
	"agentlightning/learner"
	"agentlightning/learner/openai"
	"agentlightning/learner/openai/openaitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const data = `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"hello there"}]}` + "\n"

// job is what the tests train on.
func job() learner.TuningJob { return learner.TuningJob{Key: "run-1/1", Training: []byte(data)} }

// served is a service and a configuration that leads to it.
type served struct {
	*openaitest.Service
	config openai.Config
}

func serve(t *testing.T, c openaitest.Config) *served {
	t.Helper()
	c.Key = "secret"
	c.Base = map[string]openaitest.Model{"small": func([]openaitest.Message) string { return "?" }}
	s := &served{Service: openaitest.New(c)}
	server := httptest.NewServer(s)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	s.config = openai.Config{
		Model: "small", BaseURL: server.URL + "/v1", PollEvery: time.Millisecond, Outage: 10 * time.Second,
		Client: &http.Client{Transport: transport},
		LookupEnv: func(name string) (string, bool) {
			return "secret", name == "OPENAI_API_KEY" || name == "AZURE_OPENAI_API_KEY"
		},
	}
	return s
}

// azure makes the service Azure's.
func (s *served) azure() {
	root := strings.TrimSuffix(s.config.BaseURL, "/v1")
	s.config.BaseURL = root
	s.config.Azure = &openai.Azure{
		Subscription: "sub", ResourceGroup: "group", Account: "account", Deployment: "policy", ManagementURL: root,
		Token: func(context.Context) (string, error) { return "secret", nil },
	}
}

func newTuner(t *testing.T, c openai.Config) *openai.Tuner {
	t.Helper()
	tuner, err := openai.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tuner
}

// tune is the whole of a job.
func tune(ctx context.Context, tuner *openai.Tuner, j learner.TuningJob, report func(learner.TuningProgress)) (learner.Tuned, error) {
	ticket, err := tuner.Start(ctx, j)
	if err != nil {
		return learner.Tuned{}, err
	}
	return tuner.Wait(ctx, ticket, report)
}

func TestTune(t *testing.T) {
	t.Parallel()
	s := serve(t, openaitest.Config{Looks: 2})
	seed := int64(42)
	s.config.Epochs, s.config.BatchSize, s.config.LearningRateMultiplier, s.config.Seed = 2, 4, 0.5, &seed
	s.config.Suffix, s.config.PricePerMillion = "exam", 3
	var said []string
	got, err := tune(t.Context(), newTuner(t, s.config), job(), func(p learner.TuningProgress) {
		said = append(said, strings.TrimSpace(p.Status+" "+p.Message))
	})
	if err != nil {
		t.Fatal(err)
	}
	made := s.Jobs()
	if len(made) != 1 || string(made[0].Training) != data {
		t.Fatalf("jobs %+v, want one on the data", made)
	}
	if want := (agl.Model{Endpoint: s.config.BaseURL, Target: made[0].Tuned, APIKeyEnv: "OPENAI_API_KEY"}); got.Backend != want || got.Model != made[0].Tuned {
		t.Errorf("tuned %+v, want backend %+v", got, want)
	}
	if tokens := made[0].TrainedTokens; got.TrainedTokens != tokens || tokens == 0 || got.Cost != float64(tokens)/1e6*3 {
		t.Errorf("trained tokens %d at %v, want %d at 3 a million", got.TrainedTokens, got.Cost, tokens)
	}
	if got.Metrics["train_loss"] != 0.5 || got.Metrics["step"] != 2 {
		t.Errorf("metrics %v, want those of the service's events", got.Metrics)
	}
	// Events come once each, in order, among the states.
	want := []string{
		"Created fine-tuning job: ftjob-001", "Validating training file: file-001", "validating_files",
		"validating_files Files validated, moving job to queued state", "queued",
		"queued Fine-tuning job started", "running",
		"running Step 2/2: training loss=0.50", "running New fine-tuned model created", "running The job has successfully completed", "succeeded",
	}
	if !slices.Equal(said, want) {
		t.Errorf("progress\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	var sent struct {
		Model    string            `json:"model"`
		Seed     int64             `json:"seed"`
		Suffix   string            `json:"suffix"`
		Metadata map[string]string `json:"metadata"`
		Method   json.RawMessage   `json:"method"`
	}
	if err := json.Unmarshal(made[0].Request, &sent); err != nil {
		t.Fatal(err)
	}
	method := `{"type":"supervised","supervised":{"hyperparameters":{"batch_size":4,"learning_rate_multiplier":0.5,"n_epochs":2}}}`
	if sent.Model != "small" || sent.Seed != 42 || len(sent.Metadata) != 1 || !strings.HasPrefix(sent.Suffix, "exam-") || string(sent.Method) != method {
		t.Errorf("sent %s", made[0].Request)
	}
}

func TestHyperparametersAreLeftToTheService(t *testing.T) {
	t.Parallel()
	s := serve(t, openaitest.Config{})
	if _, err := newTuner(t, s.config).Start(t.Context(), job()); err != nil {
		t.Fatal(err)
	}
	request := string(s.Jobs()[0].Request)
	for _, name := range []string{"n_epochs", "batch_size", "learning_rate_multiplier", "seed", "validation_file"} {
		if strings.Contains(request, name) {
			t.Errorf("sent %s, want no %s", request, name)
		}
	}
}

func TestValidationFile(t *testing.T) {
	t.Parallel()
	s := serve(t, openaitest.Config{})
	j := job()
	j.Validation = []byte(strings.ReplaceAll(data, "hi", "hey"))
	if _, err := newTuner(t, s.config).Start(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if request := string(s.Jobs()[0].Request); !strings.Contains(request, `"validation_file":"file-002"`) {
		t.Errorf("sent %s, want the second file for validation", request)
	}
}

// dying loses the connection at the n-th call, before or after the service heard it.
type dying struct {
	http.RoundTripper
	at    int
	after bool
	die   context.CancelFunc
	calls int
}

func (d *dying) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.calls++; d.calls != d.at {
		return d.RoundTripper.RoundTrip(r)
	}
	if d.after {
		resp, err := d.RoundTripper.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	d.die()
	return nil, errors.New("the process was killed")
}

// Whatever dies at whichever call, the next process finds what there is.
func TestKilledAtAnyCall(t *testing.T) {
	t.Parallel()
	for _, azure := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			whole := false
			for at := 1; !whole; at++ {
				if at > 60 {
					t.Fatalf("a job takes more than %d calls", at)
				}
				s := serve(t, openaitest.Config{})
				if azure {
					s.azure()
				}
				ctx, die := context.WithCancel(t.Context())
				c := s.config
				d := &dying{RoundTripper: c.Client.Transport, at: at, after: after, die: die}
				c.Client = &http.Client{Transport: d}
				if _, err := tune(ctx, newTuner(t, c), job(), nil); err == nil {
					whole = true
				} else if ctx.Err() == nil {
					t.Fatalf("call %d: %v", at, err)
				}
				die()
				got, err := tune(t.Context(), newTuner(t, s.config), job(), nil)
				if err != nil {
					t.Fatalf("azure %v, killed at call %d (after %v): %v", azure, at, after, err)
				}
				if jobs := s.Jobs(); len(jobs) != 1 || s.Files() != 1 || got.Model != jobs[0].Tuned || azure && len(s.Deployments()) != 1 {
					t.Errorf("azure %v, killed at call %d (after %v): %d jobs, %d files, %d deployments, want one of each", azure, at, after, len(jobs), s.Files(), len(s.Deployments()))
				}
			}
		}
	}
}

func TestSameWorkOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, openaitest.Config{})
	tuner := newTuner(t, s.config)
	first, err := tuner.Start(t.Context(), job())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := tuner.Start(t.Context(), job()); err != nil || again != first {
		t.Errorf("Start again = %+v, %v, want %+v", again, err, first)
	}
	for name, change := range map[string]func(*learner.TuningJob, *openai.Config){
		"key":    func(j *learner.TuningJob, _ *openai.Config) { j.Key = "run-1/2" },
		"data":   func(j *learner.TuningJob, _ *openai.Config) { j.Training = append(j.Training, data...) },
		"epochs": func(_ *learner.TuningJob, c *openai.Config) { c.Epochs = 7 },
	} {
		j, c := job(), s.config
		change(&j, &c)
		if other, err := newTuner(t, c).Start(t.Context(), j); err != nil || other.ID == first.ID || other.Key == first.Key {
			t.Errorf("%s: Start = %+v, %v, want another job than %+v", name, other, err, first)
		}
	}
	// What failed is not found again.
	s.Fail(first.ID, "internal", "out of luck")
	if again, err := tuner.Start(t.Context(), job()); err != nil || again.ID == first.ID {
		t.Errorf("Start after a failure = %+v, %v, want a new job", again, err)
	}
}

// The job is behind more than a page of others.
func TestFindsOldJobs(t *testing.T) {
	t.Parallel()
	s := serve(t, openaitest.Config{})
	tuner := newTuner(t, s.config)
	first, err := tuner.Start(t.Context(), job())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 101 {
		j := job()
		j.Key = fmt.Sprint(i)
		if _, err := tuner.Start(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := tuner.Start(t.Context(), job()); err != nil || again != first {
		t.Errorf("Start = %+v, %v, want %+v", again, err, first)
	}
}

func TestTroublesPass(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(w http.ResponseWriter, r *http.Request){
		"429": func(w http.ResponseWriter, _ *http.Request) {
			openaitest.Refuse(w, http.StatusTooManyRequests, "rate_limit_exceeded", "Slow down.")
		},
		"500": func(w http.ResponseWriter, _ *http.Request) {
			openaitest.Refuse(w, http.StatusInternalServerError, "", "The server had an error.")
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "<html>bad gateway</html>")
		},
		"truncated": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"id":"ftjob-0`)
		},
		"empty object": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodGet && (strings.HasSuffix(r.URL.Path, "/jobs") || strings.HasSuffix(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, "/files")) {
				fmt.Fprint(w, `{"object":"list","data":[]`)
				return
			}
			fmt.Fprint(w, `{}`)
		},
		"slow": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // a server sees that a caller left once the body is read
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := map[string]int{}
			s := serve(t, openaitest.Config{Fault: func(w http.ResponseWriter, r *http.Request) bool {
				route := r.Method + r.URL.Path
				if calls[route]++; calls[route] != 1 && calls[route] != 3 {
					return false
				}
				fault(w, r)
				return true
			}})
			s.config.RequestTimeout = 100 * time.Millisecond
			if _, err := tune(t.Context(), newTuner(t, s.config), job(), nil); err != nil {
				t.Fatal(err)
			}
			if jobs := s.Jobs(); len(jobs) != 1 {
				t.Errorf("%d jobs, want 1", len(jobs))
			}
		})
	}
}

func TestFailuresInTheWordsOfTheService(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, want string
		calls      int
		change     func(*served, *learner.TuningJob)
	}{
		{"key", "401 invalid_api_key: Incorrect API key provided.; is the key that of this service?", 1, func(s *served, _ *learner.TuningJob) {
			s.config.LookupEnv = func(string) (string, bool) { return "wrong", true }
		}},
		{"model", "400 model_not_available: Model huge is not available", 4, func(_ *served, j *learner.TuningJob) { j.Model = "huge" }},
		{"file", "failed: The job failed due to an invalid training file. Line 1: Example must contain at least one message with role 'assistant' (invalid_training_file, training_file)", 0, func(_ *served, j *learner.TuningJob) {
			j.Training = []byte(`{"messages":[{"role":"user","content":"hi"}]}` + "\n")
		}},
	} {
		s := serve(t, openaitest.Config{})
		j := job()
		tt.change(s, &j)
		_, err := tune(t.Context(), newTuner(t, s.config), j, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), s.config.BaseURL) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestQuotaDoesNotPass(t *testing.T) {
	t.Parallel()
	calls := 0
	s := serve(t, openaitest.Config{Fault: func(w http.ResponseWriter, _ *http.Request) bool {
		calls++
		openaitest.Refuse(w, http.StatusTooManyRequests, "insufficient_quota", "You exceeded your current quota.")
		return true
	}})
	_, err := newTuner(t, s.config).Start(t.Context(), job())
	if refused, ok := errors.AsType[*openai.ServiceError](err); !ok || refused.Code != "insufficient_quota" || calls != 1 {
		t.Errorf("Start = %v after %d calls, want the refusal at once", err, calls)
	}
}

func TestOutage(t *testing.T) {
	t.Parallel()
	s := serve(t, openaitest.Config{Fault: func(w http.ResponseWriter, _ *http.Request) bool {
		openaitest.Refuse(w, http.StatusServiceUnavailable, "", "Overloaded.")
		return true
	}})
	s.config.Outage = 20 * time.Millisecond
	_, err := newTuner(t, s.config).Start(t.Context(), job())
	if err == nil || !strings.Contains(err.Error(), "Outage 20ms") || !strings.Contains(err.Error(), "503: Overloaded.") {
		t.Errorf("Start = %v, want the last answer and the limit", err)
	}
}

func TestJobFails(t *testing.T) {
	t.Parallel()
	s := serve(t, openaitest.Config{Train: func(string, [][]openaitest.Message, int) (openaitest.Model, error) {
		return nil, errors.New("loss went to NaN")
	}})
	_, err := tune(t.Context(), newTuner(t, s.config), job(), nil)
	failed, ok := errors.AsType[*learner.TuningError](err)
	if !ok || failed.Status != "failed" || failed.ID != "ftjob-001" || failed.Message != "loss went to NaN" {
		t.Errorf("Wait = %v, want the failure", err)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	for _, cancels := range []bool{false, true} {
		s := serve(t, openaitest.Config{Looks: 1000})
		s.config.CancelOnStop = cancels
		tuner := newTuner(t, s.config)
		ticket, err := tuner.Start(t.Context(), job())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		_, err = tuner.Wait(ctx, ticket, func(p learner.TuningProgress) {
			if p.Status == "validating_files" {
				stop()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Wait = %v, want context.Canceled", err)
		}
		want := map[bool]string{false: "validating_files", true: "cancelled"}[cancels]
		if got := s.Jobs()[0].Status; got != want {
			t.Errorf("CancelOnStop %v: the job is %s, want %s", cancels, got, want)
		}
		if cancels {
			_, err := tuner.Wait(t.Context(), ticket, nil)
			if ended, ok := errors.AsType[*learner.TuningError](err); !ok || ended.Status != "cancelled" {
				t.Errorf("Wait = %v, want that it was cancelled", err)
			}
		}
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	s := serve(t, openaitest.Config{Looks: 1_000_000})
	s.config.Limit = 20 * time.Millisecond
	_, err := tune(t.Context(), newTuner(t, s.config), job(), nil)
	if err == nil || !strings.Contains(err.Error(), "ftjob-001 is validating_files after 20ms (Limit)") || !strings.Contains(err.Error(), "Validating training file") {
		t.Errorf("Wait = %v, want the state, the limit and the last event", err)
	}
}

func TestAzure(t *testing.T) {
	t.Parallel()
	s := serve(t, openaitest.Config{})
	s.azure()
	s.config.Azure.TrainingType = "GlobalStandard"
	tuner := newTuner(t, s.config)
	var last learner.Tuned
	for i := range 3 {
		j := job()
		j.Key = fmt.Sprint(i)
		var err error
		if last, err = tune(t.Context(), tuner, j, nil); err != nil {
			t.Fatal(err)
		}
	}
	jobs, deployments := s.Jobs(), s.Deployments()
	if len(deployments) != 2 || deployments[0].Model != jobs[1].Tuned || deployments[1].Model != jobs[2].Tuned {
		t.Errorf("deployments %+v, want those of the last two models", deployments)
	}
	if deployments[1].SKU != "DeveloperTier" || deployments[1].Capacity != 250 || !strings.HasPrefix(deployments[1].Name, "policy-") {
		t.Errorf("deployment %+v", deployments[1])
	}
	want := agl.Model{
		Endpoint: s.config.BaseURL, Target: deployments[1].Name, Kind: agl.BackendAzure,
		APIVersion: "2025-04-01-preview", APIKeyEnv: "AZURE_OPENAI_API_KEY",
	}
	if last.Backend != want || last.Model != jobs[2].Tuned {
		t.Errorf("tuned %+v, want %+v", last, want)
	}
	if request := string(jobs[0].Request); !strings.Contains(request, `"trainingType":"GlobalStandard"`) {
		t.Errorf("sent %s, want the training type", request)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	good := serve(t, openaitest.Config{})
	for _, tt := range []struct {
		want   string
		change func(*openai.Config)
	}{
		{"Model", func(c *openai.Config) { c.Model = "" }},
		{"Epochs: -1", func(c *openai.Config) { c.Epochs = -1 }},
		{"BatchSize", func(c *openai.Config) { c.BatchSize = -1 }},
		{"LearningRateMultiplier", func(c *openai.Config) { c.LearningRateMultiplier = -1 }},
		{"PricePerMillion", func(c *openai.Config) { c.PricePerMillion = -1 }},
		{"Suffix", func(c *openai.Config) { c.Suffix = "a b" }},
		{"PollEvery", func(c *openai.Config) { c.PollEvery = -1 }},
		{"BaseURL", func(c *openai.Config) { c.BaseURL = "api.openai.com" }},
		{"APIKeyEnv", func(c *openai.Config) { c.APIKeyEnv = "HOME" }},
		{"set OTHER_API_KEY", func(c *openai.Config) { c.APIKeyEnv = "OTHER_API_KEY" }},
		{"Azure.Subscription", func(c *openai.Config) { c.Azure = &openai.Azure{} }},
		{"BaseURL: with Azure", func(c *openai.Config) {
			c.BaseURL = ""
			c.Azure = &openai.Azure{Subscription: "s", ResourceGroup: "g", Account: "a", Deployment: "d"}
		}},
	} {
		c := good.config
		tt.change(&c)
		if _, err := openai.New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New = %v, want an error that names %q", err, tt.want)
		}
	}
	if _, err := newTuner(t, good.config).Start(t.Context(), learner.TuningJob{}); err == nil || !strings.Contains(err.Error(), "Training") {
		t.Errorf("Start without data = %v", err)
	}
}
