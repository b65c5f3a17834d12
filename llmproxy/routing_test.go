package llmproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/llmproxy"
	"agentlightning/semconv"
)

// setModels changes the list that the store has.
func (f *fixture) setModels(t *testing.T, models ...agl.Model) {
	t.Helper()
	f.store.mu.Lock()
	f.store.models = models
	f.store.mu.Unlock()
	if err := f.proxy.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// gated is a backend that holds calls until it is told to go on.
type gated struct {
	entered chan string // the model that was asked for
	release chan struct{}
	calls   atomic.Int64
}

func newGated(t *testing.T) *gated {
	g := &gated{entered: make(chan string, 100), release: make(chan struct{})}
	t.Cleanup(func() { close(g.release) })
	return g
}

func (g *gated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	g.calls.Add(1)
	g.entered <- r.URL.Path
	select {
	case <-g.release:
	case <-r.Context().Done():
		return
	}
	_, _ = io.WriteString(w, wholeAnswer)
}

// next lets one call go on, once one has come.
func (g *gated) next(t *testing.T) {
	t.Helper()
	select {
	case g.release <- struct{}{}:
	case <-time.After(10 * time.Second):
		t.Fatal("no call waits at the backend")
	}
}

func TestWeights(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer), answers(wholeAnswer))
	models := f.store.models
	models[0].Weight = 3
	f.setModels(t, models...)
	count := map[string]int{}
	for i := range 40 {
		f.post(t, fmt.Sprintf("/rollout/ro-%d/attempt/a1/v1/chat/completions", i), ask)
	}
	for _, s := range f.store.stored() {
		count[backendOf(s)]++
	}
	if want := map[string]int{models[0].Endpoint: 30, models[1].Endpoint: 10}; !cmp.Equal(count, want) {
		t.Errorf("rollouts by backend are %v, want %v", count, want)
	}
	// One that joins begins where the others are.
	third := httptest.NewServer(answers(wholeAnswer))
	t.Cleanup(third.Close)
	f.setModels(t, append(models, agl.Model{Name: "m", Endpoint: third.URL + "/v1"})...)
	for i := range 10 {
		f.post(t, fmt.Sprintf("/rollout/ro-%d/attempt/a1/v1/chat/completions", 50+i), ask)
	}
	count = map[string]int{}
	for _, s := range f.store.stored()[40:] {
		count[backendOf(s)]++
	}
	if count[third.URL+"/v1"] != 2 {
		t.Errorf("the backend that joined took %d of 10 rollouts, want 2", count[third.URL+"/v1"])
	}
}

func TestAliases(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	at := f.store.models[0].Endpoint
	f.setModels(
		t,
		agl.Model{Name: "/models/Qwen/Qwen3-8B/", Endpoint: at},
		agl.Model{Name: "org/policy", Endpoint: at},
		agl.Model{Name: "other/policy", Endpoint: at},
		agl.Model{Name: "policy-2", Endpoint: at},
	)
	for _, tt := range []struct{ ask, missing string }{
		{"/models/Qwen/Qwen3-8B/", ""},
		{"/models/Qwen/Qwen3-8B", ""},
		{"Qwen/Qwen3-8B", ""},
		{"Qwen3-8B", ""},
		{"hosted_vllm/Qwen/Qwen3-8B", ""},
		{"other-place/Qwen3-8B", ""},
		{"org/policy", ""},
		{"hosted_vllm/org/policy", ""},
		{"policy-2", ""},
		{"policy", `model "policy" could be any of org/policy, other/policy; write the whole name`},
		{"qwen3-8b", `model "qwen3-8b" is not registered; registered: /models/Qwen/Qwen3-8B/, org/policy, other/policy, policy-2`},
		{"/", `model "/" is not registered; registered: /models/Qwen/Qwen3-8B/, org/policy, other/policy, policy-2`},
	} {
		status, _, body := f.chat(t, fmt.Sprintf(`{"model":%q}`, tt.ask))
		if tt.missing == "" {
			if status != http.StatusOK {
				t.Errorf("%q is answered %d %s", tt.ask, status, body)
			}
			continue
		}
		if message, code := errorOf(t, body); status != http.StatusNotFound || code != "model_not_found" || message != tt.missing {
			t.Errorf("%q is answered %d %q, want 404 %q", tt.ask, status, message, tt.missing)
		}
	}
}

func TestLimitOfABackend(t *testing.T) {
	t.Parallel()
	slow := newGated(t)
	f := setup(t, llmproxy.Config{UpstreamQueueTimeout: 200 * time.Millisecond}, slow.ServeHTTP)
	m := f.store.models[0]
	m.Concurrency = 1
	f.setModels(t, m)
	var wg sync.WaitGroup
	wg.Go(func() { f.chat(t, ask) })
	<-slow.entered
	status, header, body := f.chat(t, ask)
	message, code := errorOf(t, body)
	if status != http.StatusTooManyRequests || header.Get("Retry-After") != "1" || code != "backend_limit" ||
		!strings.Contains(message, "concurrency=1") || !strings.Contains(message, "--upstream-queue-timeout") {
		t.Errorf("call over the limit is answered %d %v %s", status, header, body)
	}
	if s := f.store.stored()[0]; problem(s) != semconv.ProblemUpstreamError {
		t.Errorf("problem is %q", problem(s))
	}
	// The place is free again once the call has ended.
	slow.next(t)
	wg.Wait()
	wg.Go(func() {
		if status, _, body := f.chat(t, ask); status != http.StatusOK {
			t.Errorf("call within the limit is answered %d %s", status, body)
		}
	})
	slow.next(t)
	wg.Wait()
	if n := slow.calls.Load(); n != 2 {
		t.Errorf("the backend was called %d times, want 2", n)
	}
}

func TestFullBackendIsPassedOver(t *testing.T) {
	t.Parallel()
	slow := newGated(t)
	f := setup(t, llmproxy.Config{}, slow.ServeHTTP, answers(wholeAnswer))
	models := f.store.models
	models[0].Concurrency, models[0].Weight = 1, 1000
	f.setModels(t, models...)
	var wg sync.WaitGroup
	wg.Go(func() { f.post(t, "/rollout/ro-0/attempt/a1/v1/chat/completions", ask) })
	<-slow.entered
	for i := range 3 {
		if status, _, body := f.post(t, fmt.Sprintf("/rollout/ro-%d/attempt/a1/v1/chat/completions", 1+i), ask); status != http.StatusOK {
			t.Errorf("answer is %d %s", status, body)
		}
	}
	slow.next(t)
	wg.Wait()
	if n := slow.calls.Load(); n != 1 {
		t.Errorf("the full backend was called %d times, want once", n)
	}
}

// A backend that is taken away ends what it has, and those that wait for it go
// elsewhere.
func TestRemovalDrains(t *testing.T) {
	t.Parallel()
	slow := newGated(t)
	f := setup(t, llmproxy.Config{}, slow.ServeHTTP, answers(wholeAnswer))
	old, fresh := f.store.models[0], f.store.models[1]
	old.Concurrency = 1
	f.setModels(t, old)
	got := make(chan int, 2)
	call := func() {
		status, _, _ := f.chat(t, ask)
		got <- status
	}
	go call()
	<-slow.entered
	go call()
	waitFor(t, func() bool { return f.proxy.Gate().State().InFlight == 2 })
	f.setModels(t, fresh)
	if status := <-got; status != http.StatusOK {
		t.Errorf("the call that waited is answered %d", status)
	}
	slow.next(t)
	if status := <-got; status != http.StatusOK {
		t.Errorf("the call that was under way is answered %d", status)
	}
	count := map[string]int{}
	for _, s := range f.store.stored() {
		count[backendOf(s)]++
	}
	if want := map[string]int{old.Endpoint: 1, fresh.Endpoint: 1}; !cmp.Equal(count, want) {
		t.Errorf("calls by backend are %v, want %v", count, want)
	}
}

// Trainers replace a list by deleting it first. Calls in between wait.
func TestGapOfAReplacement(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	m := f.store.models[0]
	f.chat(t, ask)
	f.setModels(t)
	got := make(chan int, 1)
	go func() {
		status, _, _ := f.chat(t, ask)
		got <- status
	}()
	waitFor(t, func() bool { f.store.mu.Lock(); defer f.store.mu.Unlock(); return f.store.listed >= 3 })
	f.setModels(t, m)
	if status := <-got; status != http.StatusOK {
		t.Errorf("the call in the gap is answered %d", status)
	}
	// A name that was never there is not waited for, and none for ever.
	f.start(t, llmproxy.Config{ModelsGap: 50 * time.Millisecond})
	f.chat(t, ask)
	f.setModels(t)
	if status, _, body := f.chat(t, ask); status != http.StatusNotFound {
		t.Errorf("the call after the gap is answered %d %s", status, body)
	}
}

// No call may fail while a list is replaced over and over.
func TestReplacementUnderLoad(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer), answers(wholeAnswer))
	a, b := f.store.models[0], f.store.models[1]
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if status, _, body := f.post(t, fmt.Sprintf("/rollout/ro-%d/attempt/a1/v1/chat/completions", i), ask); status != http.StatusOK {
					t.Errorf("answer is %d %s", status, body)
					return
				}
			}
		})
	}
	for i := range 100 {
		a.Version, b.Version = int64(i), int64(i)
		f.setModels(t, []agl.Model{a, b}[i%2])
	}
	close(stop)
	wg.Wait()
}

func TestRetries(t *testing.T) {
	t.Parallel()
	const busy, broken = `{"error":{"message":"busy"}}`, `{"error":{"message":"This model's maximum context length is 8 tokens","code":"context_length_exceeded"}}`
	for _, tt := range []struct {
		name    string
		retries int64
		replies []int // in turn; the last for all that follow
		body    string
		status  int
		calls   int64
		retried string
	}{
		{"none unless configured", 0, []int{503, 200}, busy, 503, 1, ""},
		{"success after a failure", 2, []int{503, 200}, busy, 200, 2, "status 503"},
		{"too many requests", 1, []int{429, 200}, busy, 200, 2, "status 429"},
		{"failure after all tries", 1, []int{500}, busy, 500, 2, "status 500"},
		{"what callers do wrong", 2, []int{400, 200}, busy, 400, 1, ""},
		{"context overflow", 2, []int{500, 200}, broken, 500, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				n := int(calls.Add(1))
				if status := tt.replies[min(n, len(tt.replies))-1]; status != 200 {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, tt.body)
					return
				}
				_, _ = io.WriteString(w, wholeAnswer)
			})
			m := f.store.models[0]
			m.Retries = tt.retries
			f.setModels(t, m)
			start := time.Now()
			status, _, body := f.chat(t, ask)
			if status != tt.status || calls.Load() != tt.calls {
				t.Fatalf("answer is %d %s after %d calls, want %d after %d", status, body, calls.Load(), tt.status, tt.calls)
			}
			if status != 200 && body != tt.body {
				t.Errorf("answer is %s, want the backend's %s", body, tt.body)
			}
			if took := time.Since(start); tt.calls > 1 && took < 375*time.Millisecond {
				t.Errorf("tried again after %s, want about half a second", took)
			}
			s := f.store.span(t)
			n, _ := s.Attributes.Get(semconv.CallRetries)
			why, _ := s.Attributes.String(semconv.CallRetried)
			if tt.calls > 1 && n != tt.calls-1 || tt.calls == 1 && n != nil || why != tt.retried {
				t.Errorf("span says %v retries because of %q, want %d because of %q", n, why, tt.calls-1, tt.retried)
			}
			if tt.status == 200 && (problem(s) != "" || len(ints(s, semconv.ResponseTokenIDs)) != 3) {
				t.Errorf("the successful try is recorded with problem %q, ids %v", problem(s), ints(s, semconv.ResponseTokenIDs))
			}
		})
	}
}

// A stream that has begun is not begun again.
func TestNoRetryAfterTheFirstByte(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}]}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	m := f.store.models[0]
	m.Retries = 3
	f.setModels(t, m)
	_, _, body := f.chat(t, `{"model":"m","stream":true}`)
	if !strings.Contains(body, "stream_broken") || calls.Load() != 1 {
		t.Errorf("stream is %q after %d calls", body, calls.Load())
	}
	if s := f.store.span(t); problem(s) != semconv.ProblemTruncated {
		t.Errorf("problem is %q", problem(s))
	}
}

func TestHealthByOutcome(t *testing.T) {
	t.Parallel()
	fail := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(status)
		}
	}
	// Failures that a backend answers with do not rest it.
	f := setup(t, llmproxy.Config{}, fail(404), fail(401))
	for i := range 4 {
		f.post(t, fmt.Sprintf("/rollout/ro-%d/attempt/a1/v1/chat/completions", i), ask)
	}
	count := map[string]int{}
	for _, s := range f.store.stored() {
		count[backendOf(s)]++
	}
	for at, n := range count {
		if n != 2 || len(count) != 2 {
			t.Errorf("backend %s took %d of 4 calls, want 2", at, n)
		}
	}
}

// A rollout leaves its backend while that cannot be reached, at once.
func TestFailoverOfManyBackends(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	up := f.store.models[0]
	var models []agl.Model
	for range 3 {
		models = append(models, agl.Model{Name: "m", Endpoint: "http://" + freeAddress(t) + "/v1"})
	}
	f.setModels(t, append(models, up)...)
	for range 2 {
		if status, _, body := f.chat(t, ask); status != http.StatusOK {
			t.Fatalf("answer is %d %s", status, body)
		}
	}
}

func TestRefusalIsForgotten(t *testing.T) {
	t.Parallel()
	var refuse atomic.Bool
	refuse.Store(true)
	var calls atomic.Int64
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if body := readBody(t, r); refuse.Load() && body["return_token_ids"] != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"detail":"Extra inputs are not permitted"}`) // which ones, it does not say
			return
		}
		_, _ = io.WriteString(w, wholeAnswer)
	})
	refused := func() []string {
		spans := f.store.stored()
		v, _ := spans[len(spans)-1].Attributes.Get(semconv.CallRefused)
		fields, _ := v.([]string)
		return fields
	}
	for _, want := range []int64{2, 3} {
		if status, _, body := f.chat(t, ask); status != http.StatusOK || calls.Load() != want || len(refused()) != 2 {
			t.Errorf("answer is %d %s after %d calls in all, spared %v, want %d calls", status, body, calls.Load(), refused(), want)
		}
	}
	refuse.Store(false)
	m := f.store.models[0]
	m.Version++
	f.setModels(t, m)
	if status, _, _ := f.chat(t, ask); status != http.StatusOK || calls.Load() != 4 || refused() != nil {
		t.Errorf("answer is %d after %d calls in all, spared %v, want all fields asked for again", status, calls.Load(), refused())
	}
}

// A mistake of the caller that reads like a refusal is answered as it was, and
// once it is known that the fields are accepted, at once.
func TestMistakeThatLooksLikeARefusal(t *testing.T) {
	t.Parallel()
	const mistake = `{"error":{"message":"unknown role"}}`
	var calls atomic.Int64
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if body := readBody(t, r); body["messages"] == nil {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, mistake)
			return
		}
		_, _ = io.WriteString(w, wholeAnswer)
	})
	for i, want := range []int64{2, 3, 4} {
		body := `{"model":"m"}`
		if i == 1 {
			body = ask
		}
		_, _, got := f.chat(t, body)
		if calls.Load() != want || i != 1 && got != mistake {
			t.Errorf("call %d is answered %s after %d calls in all, want %d", i, got, calls.Load(), want)
		}
	}
}

func TestKindsOfBackends(t *testing.T) {
	t.Parallel()
	type seen struct {
		Path, Authorization, APIKey, XAPIKey string
		Model                                any
		IDs                                  bool
	}
	var got seen
	f := setup(t, llmproxy.Config{Environ: func(name string) string {
		return map[string]string{"TEST_API_KEY": "from-env"}[name]
	}}, func(w http.ResponseWriter, r *http.Request) {
		body := readBody(t, r)
		got = seen{r.URL.RequestURI(), r.Header.Get("Authorization"), r.Header.Get("Api-Key"), r.Header.Get("X-Api-Key"), body["model"], body["return_token_ids"] == true}
		_, _ = io.WriteString(w, wholeAnswer)
	})
	at := strings.TrimSuffix(f.store.models[0].Endpoint, "/v1")
	for _, tt := range []struct {
		name  string
		model agl.Model
		want  seen
	}{
		{"compatible", agl.Model{Endpoint: at + "/v1", APIKey: "k"}, seen{"/v1/chat/completions", "Bearer k", "", "", "m", true}},
		{"address with a query", agl.Model{Endpoint: at + "/v1/?region=a%20b"}, seen{"/v1/chat/completions?region=a%20b", "", "", "", "m", true}},
		{"no key", agl.Model{Endpoint: at + "/v1/"}, seen{"/v1/chat/completions", "", "", "", "m", true}},
		{"key of the environment", agl.Model{Endpoint: at + "/v1", APIKeyEnv: "TEST_API_KEY"}, seen{"/v1/chat/completions", "Bearer from-env", "", "", "m", true}},
		{"openai", agl.Model{Endpoint: at + "/v1", Kind: agl.BackendOpenAI, APIKey: "k", Target: "gpt"}, seen{"/v1/chat/completions", "Bearer k", "", "", "gpt", false}},
		{
			"azure",
			agl.Model{Endpoint: at, Kind: agl.BackendAzure, APIKey: "k", Target: "my gpt", APIVersion: "2024-10-21"},
			seen{"/openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21", "", "k", "", "my gpt", false},
		},
		{
			"azure with the deployment in the address",
			agl.Model{Endpoint: at + "/openai/deployments/d", Kind: agl.BackendAzure, APIKey: "k"},
			seen{"/openai/deployments/d/chat/completions", "", "k", "", "m", false},
		},
		{
			"azure of the newer kind",
			agl.Model{Endpoint: at + "/openai/v1", Kind: agl.BackendAzure, APIKey: "k", Target: "d"},
			seen{"/openai/v1/chat/completions", "", "k", "", "d", false},
		},
	} {
		tt.model.Name = "m"
		f.setModels(t, tt.model)
		status, _, body := f.post(t, attempt+"/v1/chat/completions", ask, "Authorization", "Bearer of-the-caller", "Api-Key", "of-the-caller", "X-Api-Key", "of-the-caller")
		if status != http.StatusOK {
			t.Errorf("%s: answer is %d %s", tt.name, status, body)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: request (-want +got):\n%s", tt.name, diff)
		}
	}
	for _, m := range []agl.Model{{APIKeyEnv: "UNSET_API_KEY"}, {KeyGiven: true}} {
		m.Name, m.Endpoint = "m", at+"/v1"
		f.setModels(t, m)
		status, _, body := f.chat(t, ask)
		if message, code := errorOf(t, body); status != http.StatusServiceUnavailable || code != "backend_key_missing" || !strings.Contains(message, "key") {
			t.Errorf("backend without its key is answered %d %s", status, body)
		}
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	at := f.store.models[0].Endpoint
	static := []agl.Model{{Name: "s", Endpoint: at}, {Name: "t", Endpoint: at}}
	f.start(t, llmproxy.Config{Static: static, ModelsGap: -1})
	if err := f.proxy.Forget(t.Context(), func(m agl.Model) bool { return m.Name == "s" }); err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]int{"s": 404, "t": 200, "m": 200} {
		if status, _, body := f.chat(t, `{"model":"`+model+`"}`); status != want {
			t.Errorf("model %s is answered %d %s, want %d", model, status, body, want)
		}
	}
	if got := f.proxy.Static(); len(got) != 1 || got[0].Name != "t" || static[0].Name != "s" {
		t.Errorf("static backends are %v", got)
	}
	// A proxy may have nothing but static ones.
	f.startWith(t, llmproxy.Config{Sink: f.store, Attempts: f.store, Static: static, ModelsGap: -1})
	if err := f.proxy.Forget(t.Context(), func(agl.Model) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if status, _, body := f.chat(t, `{"model":"s"}`); status != 404 || !strings.Contains(body, "no model is") {
		t.Errorf("answer is %d %s", status, body)
	}
}
