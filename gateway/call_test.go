package gateway_test

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
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/gateway"
	"agentlightning/llmproxy"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// backends answers in place of the network, so that hours pass in no time.
type backends func(r *http.Request) (*http.Response, error)

func (b backends) RoundTrip(r *http.Request) (*http.Response, error) { return b(r) }

func reply(status int, media, body string) (*http.Response, error) {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

const goodAnswer = `{"id":"c-1","prompt_token_ids":[1,2],"choices":[{"index":0,"message":{"role":"assistant","content":"4"},"finish_reason":"stop","token_ids":[3]}],` +
	`"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}}`

// bench is a handler over a store in memory, without a network.
type bench struct {
	t       *testing.T
	store   *engine.Store
	handler http.Handler
}

func newBench(t *testing.T, model backends, change func(*gateway.Config, *llmproxy.Config)) *bench {
	t.Helper()
	kept := engine.New(memory.New(), engine.Config{})
	calls := llmproxy.Config{Sink: kept, Attempts: kept, Models: kept, Transport: model}
	c := gateway.Config{Store: kept, Calls: gateway.DefaultCalls()}
	c.Calls.Model = "m"
	if change != nil {
		change(&c, &calls)
	}
	proxy, err := llmproxy.New(calls)
	if err != nil {
		t.Fatal(err)
	}
	c.Proxy = proxy
	h, err := gateway.NewHandler(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(proxy.Close(), kept.Close()); err != nil {
			t.Error(err)
		}
	})
	b := &bench{t, kept, h}
	b.want(http.MethodPost, "/api/models", `[{"model":"m","endpoint":"http://a/v1","version":7}]`, 201)
	b.want(http.MethodPost, "/api/rollouts", `[{"rollout_id":"r","input":1}]`, 201)
	return b
}

func (b *bench) send(ctx context.Context, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	return w
}

func (b *bench) want(method, path, body string, status int) string {
	b.t.Helper()
	w := b.send(b.t.Context(), method, path, body)
	if w.Code != status {
		b.t.Fatalf("%s %s = %d %s, want %d", method, path, w.Code, w.Body, status)
	}
	return w.Body.String()
}

const chatPath = "/proxy/rollout/r/attempt/0/mode/train/openai/v1/chat/completions"

// events returns the members of the data of the model requests of r.
func (b *bench) events() []map[string]json.RawMessage {
	b.t.Helper()
	var list []struct{ Data map[string]json.RawMessage }
	if err := json.Unmarshal([]byte(b.want(http.MethodGet, "/api/rollouts/r/events?event_type=model_request", "", 200)), &list); err != nil {
		b.t.Fatal(err)
	}
	out := []map[string]json.RawMessage{}
	for _, e := range list {
		out = append(out, e.Data)
	}
	return out
}

// canned is an answer, or a connection that breaks.
type canned struct {
	status int
	body   string
	err    error
}

func (c canned) answer() (*http.Response, error) {
	if c.err != nil {
		return nil, c.err
	}
	return reply(c.status, "application/json", c.body)
}

// script answers one after the other; the last one stays.
func script(answers ...canned) (backends, *int) {
	var mu sync.Mutex
	asked := new(int)
	return func(r *http.Request) (*http.Response, error) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		*asked++
		return answers[min(*asked, len(answers))-1].answer()
	}, asked
}

func status(code int) canned {
	return canned{status: code, body: fmt.Sprintf(`{"error":{"message":"status %d"}}`, code)}
}

func good() canned { return canned{status: http.StatusOK, body: goodAnswer} }

func broken() canned { return canned{err: errors.New("connection reset")} }

func TestCallsAreRetried(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		answers     []canned
		status      int
		body        string // empty: that of the last answer
		asked       int
		retries     string // of the event; empty: there is none
		least, most time.Duration
	}{
		{"at once", []canned{good()}, 200, goodAnswer, 1, "0", 0, 0},
		{"408", []canned{status(408), good()}, 200, goodAnswer, 2, "1", 375 * time.Millisecond, 625 * time.Millisecond},
		{"409", []canned{status(409), good()}, 200, goodAnswer, 2, "1", 375 * time.Millisecond, 625 * time.Millisecond},
		{"429", []canned{status(429), good()}, 200, goodAnswer, 2, "1", 375 * time.Millisecond, 625 * time.Millisecond},
		{"500 and 503", []canned{status(500), status(503), good()}, 200, goodAnswer, 3, "2", 1125 * time.Millisecond, 1875 * time.Millisecond},
		{"connection lost", []canned{broken(), broken(), broken(), good()}, 200, goodAnswer, 4, "3", 2625 * time.Millisecond, 4375 * time.Millisecond},
		{"six times 503", []canned{status(503)}, 503, `{"error":{"message":"status 503"}}`, 6, "5", 11625 * time.Millisecond, 19375 * time.Millisecond},
		{"six times nothing", []canned{broken()}, 502, `{"detail":"Upstream model server request failed"}`, 6, "", 11625 * time.Millisecond, 19375 * time.Millisecond},
		{"400 is final", []canned{status(400)}, 400, `{"error":{"message":"status 400"}}`, 1, "0", 0, 0},
		{"404 is final", []canned{status(404)}, 404, `{"error":{"message":"status 404"}}`, 1, "0", 0, 0},
		{"422 is final", []canned{status(422)}, 422, `{"error":{"message":"status 422"}}`, 1, "0", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				model, asked := script(tt.answers...)
				b := newBench(t, model, nil)
				began := time.Now()
				if body := b.want(http.MethodPost, chatPath, "{}", tt.status); body != tt.body {
					t.Errorf("body %s, want %s", body, tt.body)
				}
				if took := time.Since(began); took < tt.least || took > tt.most {
					t.Errorf("it took %s, want %s to %s", took, tt.least, tt.most)
				}
				if *asked != tt.asked {
					t.Errorf("the model was asked %d times, want %d", *asked, tt.asked)
				}
				events := b.events()
				switch {
				case tt.retries == "" && len(events) > 0:
					t.Errorf("events %s, want none", events)
				case tt.retries != "" && len(events) != 1:
					t.Errorf("%d events, want one", len(events))
				case tt.retries != "" && string(events[0]["retry_count"]) != tt.retries:
					t.Errorf("retry_count %s, want %s", events[0]["retry_count"], tt.retries)
				}
			})
		})
	}
}

func TestCallsTimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := backends(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		b := newBench(t, silent, func(_ *gateway.Config, c *llmproxy.Config) { c.UpstreamTimeout = 300 * time.Second })
		began := time.Now()
		if body, want := b.want(http.MethodPost, chatPath, "{}", 504), `{"detail":"Upstream model server timed out"}`; body != want {
			t.Errorf("body %s, want %s", body, want)
		}
		if took := time.Since(began); took < 6*300*time.Second || took > 6*300*time.Second+20*time.Second {
			t.Errorf("it took %s, want six times the limit and the waits in between", took)
		}
		if events := b.events(); len(events) != 0 {
			t.Errorf("events %s, want none", events)
		}
	})
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"array": `[1]`, "no JSON": `{"a":`, "text": `"x"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(*http.Request) (*http.Response, error) { return reply(200, "application/json", body) }, nil)
			if got, want := b.want(http.MethodPost, chatPath, "{}", 502), `{"detail":"Upstream model server request failed"}`; got != want {
				t.Errorf("body %s, want %s", got, want)
			}
			if events := b.events(); len(events) != 0 {
				t.Errorf("events %s, want none", events)
			}
		})
	}
}

// TestAgentHangsUp: the model is told at once, and there is no event.
func TestAgentHangsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := make(chan time.Time, 1)
		b := newBench(t, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			told <- time.Now()
			return nil, r.Context().Err()
		}, nil)
		ctx, hangUp := context.WithCancel(t.Context())
		gone := time.Now().Add(time.Minute)
		timer := time.AfterFunc(time.Minute, hangUp)
		defer timer.Stop()
		b.send(ctx, http.MethodPost, chatPath, "{}")
		if late := (<-told).Sub(gone); late > 100*time.Millisecond {
			t.Errorf("the model was told %s after the agent went away", late)
		}
		if events := b.events(); len(events) != 0 {
			t.Errorf("events %s, want none", events)
		}
	})
}

func TestRolloutDeletedDuringACall(t *testing.T) {
	t.Parallel()
	var b *bench
	b = newBench(t, func(r *http.Request) (*http.Response, error) {
		b.want(http.MethodDelete, "/api/rollouts/r", "", 204)
		return good().answer()
	}, nil)
	if got, want := b.want(http.MethodPost, chatPath, "{}", 404), `{"detail":"Rollout not found: r"}`; got != want {
		t.Errorf("body %s, want %s", got, want)
	}
}

// TestEndpointChoice checks the documented values of the choice.
func TestEndpointChoice(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rollout string
		index   map[int]int // by how many endpoints there are
	}{
		{"rollout-1", map[int]int{2: 1, 3: 1, 4: 3, 8: 3}},
		{"rollout-2", map[int]int{2: 0, 3: 0, 4: 2, 8: 6}},
		{"rollout-3", map[int]int{2: 1, 3: 1, 4: 3, 8: 3}},
		{"rollout-4", map[int]int{2: 0, 3: 1, 4: 0, 8: 0}},
		{"0123456789abcdef0123456789abcdef", map[int]int{2: 0, 3: 1, 4: 2, 8: 6}},
	} {
		for n, index := range tt.index {
			var asked []string
			b := newBench(t, func(r *http.Request) (*http.Response, error) {
				asked = append(asked, r.URL.Host)
				return good().answer()
			}, nil)
			b.want(http.MethodDelete, "/api/models", "", 200)
			var hosts []string
			for i := range n { // registered out of order, to be sorted as text
				hosts = append(hosts, fmt.Sprintf("h%d", (i*5+3)%n))
				b.want(http.MethodPost, "/api/models", fmt.Sprintf(`[{"model":"m","endpoint":"http://%s/v1"}]`, hosts[i]), 201)
			}
			slices.Sort(hosts)
			b.want(http.MethodPost, "/api/rollouts", `[{"rollout_id":"`+tt.rollout+`","input":1}]`, 201)
			for range 3 {
				b.want(http.MethodPost, strings.Replace(chatPath, "/r/", "/"+tt.rollout+"/", 1), "{}", 200)
			}
			if want := hosts[index]; !slices.Equal(asked, []string{want, want, want}) {
				t.Errorf("%s among %d goes to %v, want %s", tt.rollout, n, asked, want)
			}
		}
	}
}

func TestModelOfCalls(t *testing.T) {
	t.Parallel()
	var asked []string
	b := newBench(t, func(r *http.Request) (*http.Response, error) {
		var body struct{ Model string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return nil, err
		}
		asked = append(asked, body.Model)
		return good().answer()
	}, func(_ *gateway.Config, c *llmproxy.Config) { c.ModelsGap = -1 }) // of which TestModelsAreReplaced tells
	call := func(status int) string {
		t.Helper()
		return b.want(http.MethodPost, chatPath, `{"model":"other"}`, status)
	}
	call(200)
	b.want(http.MethodDelete, "/api/models", "", 200)
	if got, want := call(503), `{"detail":"No servers available for model 'm'"}`; got != want {
		t.Errorf("without a model: %s, want %s", got, want)
	}
	b.want(http.MethodPost, "/api/models", `[{"model":"only","endpoint":"http://a/v1","target":"target"}]`, 201)
	call(200)
	b.want(http.MethodPost, "/api/models", `[{"model":"second","endpoint":"http://a/v1"}]`, 201)
	call(503)
	b.want(http.MethodPut, "/api/models", `[{"model":"m","endpoint":"http://b/v1"}]`, 200)
	call(200)
	if diff := cmp.Diff([]string{"m", "target", "m"}, asked); diff != "" {
		t.Errorf("models asked for (-want +got):\n%s", diff)
	}
}

// TestModelsAreReplaced: a trainer withdraws all models and registers new ones;
// a call that comes in between waits for them.
func TestModelsAreReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(*http.Request) (*http.Response, error) { return good().answer() }, nil)
		b.want(http.MethodDelete, "/api/models", "", 200)
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.want(http.MethodPost, chatPath, "{}", 200)
		}()
		synctest.Wait()
		b.want(http.MethodPost, "/api/models", `[{"model":"m","endpoint":"http://b/v1"}]`, 201)
		<-done
		b.want(http.MethodDelete, "/api/models", "", 200)
		b.want(http.MethodPost, chatPath, "{}", 503)
	})
}

func TestPauseOfCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inside, release := make(chan struct{}, 1), make(chan struct{})
		b := newBench(t, func(*http.Request) (*http.Response, error) {
			inside <- struct{}{}
			<-release
			return good().answer()
		}, nil)
		state := func(want string) {
			t.Helper()
			if got := b.want(http.MethodGet, "/proxy/state", "", 200); got != want {
				t.Errorf("state %s, want %s", got, want)
			}
		}
		var calls sync.WaitGroup
		call := func(status int) {
			calls.Go(func() { b.want(http.MethodPost, chatPath, "{}", status) })
		}
		call(200)
		<-inside
		state(`{"paused":false,"retry_after_seconds":5,"reason":null,"inflight":1}`)
		b.want(http.MethodPost, "/proxy/pause", `{"owner":"trainer","lease_seconds":60,"hold":true,"retry_after_seconds":0}`, 200)
		call(200) // is held
		synctest.Wait()
		state(`{"paused":true,"retry_after_seconds":0,"reason":null,"inflight":1,"owner":"trainer","lease_seconds":60.0,"hold":true,"held":1}`)
		if got := b.want(http.MethodPost, "/proxy/resume", "", 409); !strings.Contains(got, "trainer") {
			t.Errorf("a resume of somebody else: %s, want the owner's name", got)
		}
		b.want(http.MethodPost, "/proxy/pause", `{}`, 409)
		// Draining waits for the call that is under way.
		drained := make(chan string, 1)
		go func() { drained <- b.want(http.MethodGet, "/proxy/state?wait=30", "", 200) }()
		time.Sleep(10 * time.Second) // of the bubble
		release <- struct{}{}
		if got, want := <-drained, `{"paused":true,"retry_after_seconds":0,"reason":null,"inflight":0,"owner":"trainer","lease_seconds":50.0,"hold":true,"held":1}`; got != want {
			t.Errorf("drained %s, want %s", got, want)
		}
		// The lease ends by itself, and the held call goes on.
		began := time.Now()
		<-inside
		if waited := time.Since(began); waited != 50*time.Second {
			t.Errorf("the held call went on after %s, want 50s", waited)
		}
		state(`{"paused":false,"retry_after_seconds":0,"reason":null,"inflight":1}`)
		if got := b.want(http.MethodGet, "/proxy/state?wait=1", "", 200); !strings.Contains(got, `"inflight":1`) {
			t.Errorf("a drain that is given up: %s", got)
		}
		release <- struct{}{}
		calls.Wait()
		b.want(http.MethodPost, "/proxy/pause", `{"owner":"trainer","retry_after_seconds":0}`, 200)
		w := b.send(t.Context(), http.MethodPost, chatPath, "{}")
		if w.Code != 429 || w.Header().Get("Retry-After") != "0" || w.Header().Get("X-Agl-Paused") != "true" {
			t.Errorf("a call while paused = %d %v", w.Code, w.Header())
		}
		b.want(http.MethodPost, "/proxy/resume", `{"owner":"trainer"}`, 200)
		if events := b.events(); len(events) != 2 {
			t.Errorf("%d events, want those of the two calls", len(events))
		}
		for _, bad := range []string{`{"lease_seconds":-1}`, `{"lease_seconds":"x"}`, `{"hold":"maybe"}`, `{"owner":1}`, `{"retry_after_seconds":-1}`, `[]`} {
			b.want(http.MethodPost, "/proxy/pause", bad, 422)
		}
		b.want(http.MethodPost, "/proxy/resume", `{"owner":1}`, 422)
		b.want(http.MethodPost, "/proxy/resume", `{`, 422)
		b.want(http.MethodGet, "/proxy/state?wait=x", "", 422)
	})
}

// TestPauseEndsRetries: a call that is being retried is not sent again once model
// calls are paused, so that draining does not wait for it.
func TestPauseEndsRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var b *bench
		b = newBench(t, func(*http.Request) (*http.Response, error) {
			asked++
			if asked == 2 {
				b.want(http.MethodPost, "/proxy/pause", "{}", 200)
			}
			return status(503).answer()
		}, nil)
		b.want(http.MethodPost, chatPath, "{}", 503)
		if asked != 2 {
			t.Errorf("the model was asked %d times, want 2", asked)
		}
	})
}

const streamed = "data: {\"id\":\"c-1\",\"model\":\"m\",\"prompt_token_ids\":[1,2],\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"4\"},\"token_ids\":[3],\"logprobs\":{\"content\":[{\"token\":\"4\",\"logprob\":-0.5}]}}]}\n\n" +
	"data: {\"id\":\"c-1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n" +
	"data: {\"id\":\"c-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1,\"total_tokens\":3}}\n\n" +
	"data: [DONE]\n\n"

func TestStreams(t *testing.T) {
	t.Parallel()
	var asked string
	stream := backends(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		asked = string(body)
		return reply(200, "text/event-stream", streamed)
	})
	b := newBench(t, stream, nil)
	w := b.send(t.Context(), http.MethodPost, chatPath, `{"messages":[{"role":"user","content":"2+2"}],"stream":true,"max_tokens":5}`)
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") || !strings.Contains(w.Body.String(), `"content":"4"`) || !strings.HasSuffix(w.Body.String(), "data: [DONE]\n\n") {
		t.Errorf("the stream is %d %s", w.Code, w.Body)
	}
	if want := `{"messages":[{"role":"user","content":"2+2"}],"stream":true,"max_tokens":5,"model":"m","temperature":1.0,` +
		`"return_token_ids":true,"logprobs":true,"stream_options":{"include_usage":true}}`; asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}
	got := b.want(http.MethodGet, "/api/rollouts/r/events?format=triplet", "", 200)
	want := `"data":{"prompt_token_ids":[1,2],"response_token_ids":[3],"response_log_probs":[-0.5],"server":{"model":"m","version":7},"http_status":200,"status":"ok"}}]`
	if !strings.HasSuffix(got, want) {
		t.Errorf("triplets %s, want them to end %s", got, want)
	}
	events := b.events()
	for name, want := range map[string]string{
		"model": `"m"`, "model_version": "7", "http_status": "200", "status": `"ok"`, "retry_count": "0", "finish_reason": `"stop"`,
		"usage":   `{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}`,
		"request": `{"model":"m","messages":[{"content":"2+2","role":"user"}],"stream":true,"max_tokens":5,"temperature":1.0}`,
		"server":  `{"model":"m","endpoint":"http://a/v1","version":7}`,
	} {
		if got := string(events[0][name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}

	strict := newBench(t, stream, func(c *gateway.Config, _ *llmproxy.Config) { c.Calls.RefuseStreams = true })
	if got, want := strict.want(http.MethodPost, chatPath, `{"stream":true}`, 400), `{"detail":"Streaming responses are not supported"}`; got != want {
		t.Errorf("refused with %s, want %s", got, want)
	}
	if events := strict.events(); len(events) != 0 {
		t.Errorf("events %s, want none", events)
	}
}

// TestOtherDialects calls in Anthropic's words; the ids are kept.
func TestOtherDialects(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(r *http.Request) (*http.Response, error) {
		if r.URL.Path != "/v1/chat/completions" {
			return status(404).answer()
		}
		return good().answer()
	}, nil)
	at := strings.Replace(chatPath, "chat/completions", "messages", 1)
	got := b.want(http.MethodPost, at, `{"model":"x","max_tokens":5,"messages":[{"role":"user","content":"2+2"}]}`, 200)
	if !strings.Contains(got, `"type":"message"`) || !strings.Contains(got, `"text":"4"`) {
		t.Errorf("answer %s, want a message", got)
	}
	triplets := b.want(http.MethodGet, "/api/rollouts/r/events?format=triplet", "", 200)
	if !strings.Contains(triplets, `{"prompt_token_ids":[1,2],"response_token_ids":[3],`) {
		t.Errorf("triplets %s, want the ids", triplets)
	}
	at = strings.Replace(chatPath, "chat/completions", "responses", 1)
	if got := b.want(http.MethodPost, at, `{"input":"2+2"}`, 200); !strings.Contains(got, `"object":"response"`) {
		t.Errorf("answer %s, want a response", got)
	}
	b.want(http.MethodPost, strings.Replace(chatPath, "chat/completions", "embeddings", 1), "{}", 404)
}

func TestCallConfigIsChecked(t *testing.T) {
	t.Parallel()
	kept := engine.New(memory.New(), engine.Config{})
	defer kept.Close()
	proxy, err := llmproxy.New(llmproxy.Config{Sink: kept, Attempts: kept, Static: []agl.Model{{Name: "m", Endpoint: "http://a/v1"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	for want, c := range map[string]gateway.Config{
		"Store and Proxy must be set": {},
		"TrainTemperature is -1":      {Store: kept, Proxy: proxy, Calls: gateway.CallConfig{TrainTemperature: -1}},
	} {
		if _, err := gateway.NewHandler(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewHandler = %v, want %q", err, want)
		}
	}
}
