package serving_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	agl "agentlightning"
	"agentlightning/learner/command"
	"agentlightning/learner/native"
	"agentlightning/learner/serving"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// TestMain lets the test binary be the engines that the tests start.
func TestMain(m *testing.M) {
	if kind := os.Getenv("TEST_ENGINE"); kind != "" {
		if err := serve(kind, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// serve is a small engine with the command line of vLLM: serve MODEL --port PORT.
func serve(kind string, args []string) error {
	if len(args) < 2 || args[0] != "serve" {
		return fmt.Errorf("usage: serve MODEL --port PORT, not %q", args)
	}
	path := args[1]
	flags := flag.NewFlagSet("engine", flag.ContinueOnError)
	port := flags.Int("port", 0, "")
	if err := flags.Parse(args[2:]); err != nil {
		return err
	}
	if strings.HasSuffix(path, "broken") || kind == "broken" {
		return errors.New("ValueError: cannot load " + path)
	}
	model, err := native.New(native.Config{Dim: 16, Layers: 1, Heads: 1, Hidden: 16, Context: 32, Seed: 1}, native.NewTokenizer(nil))
	if err != nil {
		return err
	}
	answers := native.NewServer(model, native.ServerConfig{Name: path})
	mux := http.NewServeMux()
	mux.Handle("/", answers)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"version":"0.9.1"}`) })
	mux.HandleFunc("GET /pid", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Getpid()) })
	mux.HandleFunc("POST /crash", func(http.ResponseWriter, *http.Request) {
		fmt.Fprintln(os.Stderr, "CUDA error: an illegal memory access was encountered")
		os.Exit(7)
	})
	switch kind {
	case "no-ids":
		mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"choices":[{"index":0,"finish_reason":"length","message":{"role":"assistant","content":"Hi"}}]}`)
		})
	case "slow":
		mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Println("loading weights")
			w.WriteHeader(http.StatusServiceUnavailable)
		})
	case "no-template":
		mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":{"message":"the model has no chat template"}}`)
		})
	case "lora":
		mux.HandleFunc("POST /v1/load_lora_adapter", func(_ http.ResponseWriter, r *http.Request) { fmt.Println("load", r.FormValue("x")) })
		mux.HandleFunc("POST /v1/unload_lora_adapter", func(w http.ResponseWriter, r *http.Request) {
			var asked map[string]string
			if json.NewDecoder(r.Body).Decode(&asked) != nil || asked["lora_name"] != "policy-v1" {
				w.WriteHeader(http.StatusBadRequest)
			}
			fmt.Println("unload", asked["lora_name"])
		})
	}
	server := &http.Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(*port)), Handler: mux, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

// supervised is an engine that runs, and the store that it is registered with.
type supervised struct {
	*serving.Engine
	store   store.Store
	serving chan agl.Model
	ended   chan error
	stop    context.CancelFunc
	client  *http.Client
}

func config(t *testing.T, kind string) serving.Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return serving.Config{
		Command: []string{self, "serve", "base"}, Name: "policy", Env: []string{"TEST_ENGINE=" + kind},
		Backoff: time.Millisecond, Grace: time.Second, Client: &http.Client{Transport: transport},
	}
}

func run(t *testing.T, c serving.Config) *supervised {
	t.Helper()
	st := engine.New(memory.New(), engine.Config{})
	s := &supervised{store: st, serving: make(chan agl.Model, 100), ended: make(chan error, 1), client: c.Client}
	c.Models = st
	c.OnServing = func(m agl.Model) { s.serving <- m }
	e, err := serving.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s.Engine = e
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() { s.ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// next waits until a model is served.
func (s *supervised) next(t *testing.T) agl.Model {
	t.Helper()
	select {
	case m := <-s.serving:
		return m
	case err := <-s.ended:
		s.ended <- err
		t.Fatalf("Run = %v, want that it serves", err)
		return agl.Model{}
	}
}

// call asks the engine behind a model.
func (s *supervised) call(t *testing.T, method string, m agl.Model, path string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(m.Endpoint, "/v1")+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	var text strings.Builder
	if err := resp.Write(&text); err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(text.String(), "\r\n\r\n")
	return body, nil
}

func (s *supervised) models(t *testing.T) []agl.Model {
	t.Helper()
	models, err := s.store.Models(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return models
}

// end stops the engine and makes sure that nothing is left of it.
func (s *supervised) end(t *testing.T, pid string) {
	t.Helper()
	s.stop()
	if err := <-s.ended; err != nil {
		t.Errorf("Run = %v, want nil when it is asked to stop", err)
	}
	if models := s.models(t); len(models) != 0 {
		t.Errorf("models %+v, want that the engine is withdrawn", models)
	}
	if runtime.GOOS == "linux" && pid != "" {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("process %s is still there", pid)
		}
	}
	if err := s.Serve(t.Context(), command.Model{}); !errors.Is(err, serving.ErrStopped) {
		t.Errorf("Serve = %v, want ErrStopped", err)
	}
}

func TestServesEachModel(t *testing.T) {
	t.Parallel()
	s := run(t, config(t, "native"))
	first := s.next(t)
	if first.Name != "policy" || first.Target != "base" || first.Version != 0 || len(s.models(t)) != 1 {
		t.Fatalf("serves %+v, registered %+v", first, s.models(t))
	}
	old, err := s.call(t, http.MethodGet, first, "/pid")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), command.Model{Version: 3, Path: "step-3"}); err != nil {
		t.Fatal(err)
	}
	second := s.next(t)
	if got := s.models(t); len(got) != 1 || got[0] != second || second.Target != "step-3" || second.Version != 3 {
		t.Fatalf("serves %+v, registered %+v, want the new model alone", second, got)
	}
	if _, err := os.Stat("/proc/" + old); err == nil && runtime.GOOS == "linux" {
		t.Errorf("process %s, which served the model before, is still there", old)
	}
	if err := serving.Await(t.Context(), s.store, "policy", 3); err != nil {
		t.Errorf("Await = %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := serving.Await(ctx, s.store, "policy", 4); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "version 4 of model policy is not served") {
		t.Errorf("Await = %v, want that it is not served", err)
	}
	pid, err := s.call(t, http.MethodGet, second, "/pid")
	if err != nil {
		t.Fatal(err)
	}
	s.end(t, pid)
}

func TestModelThatCannotBeServed(t *testing.T) {
	t.Parallel()
	s := run(t, config(t, "native"))
	s.next(t)
	err := s.Serve(t.Context(), command.Model{Version: 1, Path: "broken"})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "ValueError: cannot load broken") {
		t.Errorf("Serve = %v, want why the engine ended", err)
	}
	if again := s.next(t); again.Target != "base" {
		t.Errorf("serves %+v, want the model before", again)
	}
	s.end(t, "")
}

func TestRestartsAfterCrash(t *testing.T) {
	t.Parallel()
	c := config(t, "native")
	c.Restarts = 2
	var log atomic.Pointer[string]
	c.Log = writer(func(p []byte) {
		text := string(p)
		log.Store(&text)
	})
	s := run(t, c)
	for range 3 {
		m := s.next(t)
		if len(s.models(t)) != 1 {
			t.Errorf("registered %+v", s.models(t))
		}
		if _, err := s.call(t, http.MethodPost, m, "/crash"); err == nil {
			t.Fatal("the engine did not crash")
		}
	}
	err := <-s.ended
	if err == nil || !strings.Contains(err.Error(), "failed 3 times in a row (Restarts 2)") ||
		!strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "illegal memory access") {
		t.Errorf("Run = %v, want that it gave up, and the engine's last words", err)
	}
	if len(s.models(t)) != 0 {
		t.Errorf("registered %+v, want nothing", s.models(t))
	}
	if text := log.Load(); text == nil || !strings.Contains(*text, "illegal") {
		t.Errorf("log %v, want what the engine wrote", text)
	}
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

func TestRefusesEnginesWithoutTokenIDs(t *testing.T) {
	t.Parallel()
	s := run(t, config(t, "no-ids"))
	err := <-s.ended
	refused, ok := errors.AsType[*serving.TokenIDsError](err)
	if !ok || refused.Engine != "0.9.1" || !strings.Contains(err.Error(), "return_token_ids") || !strings.Contains(err.Error(), "0.10.2") {
		t.Errorf("Run = %v, want what the engine lacks and what has it", err)
	}
	if len(s.models(t)) != 0 {
		t.Errorf("registered %+v, want nothing", s.models(t))
	}
	c := config(t, "no-ids")
	c.WithoutTokenIDs = true
	s = run(t, c)
	s.next(t)
	s.end(t, "")
}

func TestModelWithoutChatTemplate(t *testing.T) {
	t.Parallel()
	s := run(t, config(t, "no-template"))
	s.next(t)
	s.end(t, "")
}

func TestStartsThatFail(t *testing.T) {
	t.Parallel()
	s := run(t, config(t, "broken"))
	if err := <-s.ended; err == nil || !strings.Contains(err.Error(), "ValueError: cannot load base") {
		t.Errorf("Run = %v, want why the engine ended", err)
	}
	c := config(t, "slow")
	c.StartLimit = 300 * time.Millisecond
	s = run(t, c)
	if err := <-s.ended; err == nil || !strings.Contains(err.Error(), "within 300ms (StartLimit); last it said: ") {
		t.Errorf("Run = %v, want the limit", err)
	}
	c = config(t, "native")
	c.Command[0] = "no-such-engine"
	s = run(t, c)
	if err := <-s.ended; err == nil || !strings.Contains(err.Error(), "no-such-engine") {
		t.Errorf("Run = %v, want that there is no such program", err)
	}
}

func TestAdapters(t *testing.T) {
	t.Parallel()
	adapter := func() string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	s := run(t, config(t, "lora"))
	first := s.next(t)
	for version := range int64(2) {
		if err := s.Serve(t.Context(), command.Model{Version: version + 1, Path: adapter()}); err != nil {
			t.Fatal(err)
		}
		m := s.next(t)
		if m.Target != fmt.Sprintf("policy-v%d", version+1) || m.Endpoint != first.Endpoint || m.Version != version+1 {
			t.Errorf("serves %+v, want the adapter on the engine that runs", m)
		}
	}
	// After a crash the adapter is there again.
	if _, err := s.call(t, http.MethodPost, first, "/crash"); err == nil {
		t.Fatal("the engine did not crash")
	}
	if m := s.next(t); m.Target != "policy-v2" || m.Endpoint == first.Endpoint || m.Version != 2 {
		t.Errorf("serves %+v, want the adapter", m)
	}
	s.end(t, "")

	s = run(t, config(t, "native"))
	s.next(t)
	if err := s.Serve(t.Context(), command.Model{Version: 1, Path: adapter()}); err == nil || !strings.Contains(err.Error(), "--enable-lora") {
		t.Errorf("Serve = %v, want what loads adapters", err)
	}
	s.end(t, "")
}

func TestEndpointOfATrainer(t *testing.T) {
	t.Parallel()
	s := run(t, config(t, "native"))
	s.next(t)
	if err := s.Serve(t.Context(), command.Model{Version: 2, Endpoint: "http://10.0.0.5:8000/v1", Target: "new"}); err != nil {
		t.Fatal(err)
	}
	if got := s.models(t); len(got) != 1 || got[0].Endpoint != "http://10.0.0.5:8000/v1" || got[0].Target != "new" || got[0].Version != 2 {
		t.Errorf("registered %+v", got)
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		command []string
		want    string // of the error; empty for none
	}{
		{[]string{"vllm", "serve", "m"}, ""},
		{[]string{"vllm", "serve", "--model", "m", "--port", "8000"}, ""},
		{[]string{"python", "-m", "sglang.launch_server", "--model-path=m"}, ""},
		{[]string{"./engine", "{model}", "{port}"}, "Model"},
		{[]string{"./engine"}, "names no model"},
		{[]string{"vllm", "serve", "m", "--port"}, "--port has no value"},
		{[]string{"vllm", "serve", "m", "--port", "x"}, "--port x"},
		{nil, "Command"},
	} {
		_, err := serving.New(serving.Config{Command: tt.command, Name: "policy", Models: engine.New(memory.New(), engine.Config{})})
		if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: New = %v, want an error of %q", tt.command, err, tt.want)
		}
	}
}
