package pg_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/pg"
	"agentlightning/execution"
	"agentlightning/internal/daemon"
	"agentlightning/learner"
	"agentlightning/learner/native"
	"agentlightning/llmproxy"
	"agentlightning/semconv"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
	"agentlightning/storehttp"
	"agentlightning/trainer"
)

// The environment of a process that trains and is killed for it.
const (
	childServer = "PG_TEST_SERVER" // URL of the store
	childRelay  = "PG_TEST_RELAY"  // URL that is told where the model is
	childFolder = "PG_TEST_FOLDER" // of the checkpoints
	// killsWanted says how many kills TestSIGKILL makes; 4 when it is not set.
	killsWanted = "PG_TEST_KILLS"
)

const (
	killSteps = 12
	killTasks = 6
)

// trainAndBeKilled is the program of that process: it goes on with the run that
// is there, or begins one, and prints what the weights are in the end.
func trainAndBeKilled() int {
	if err := trainOnce(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func trainOnce(ctx context.Context) error {
	st, err := storehttp.NewClient(os.Getenv(childServer))
	if err != nil {
		return err
	}
	model, err := native.New(native.Config{Dim: 16, Layers: 1, Heads: 1, Hidden: 32, Context: 16, Seed: 3}, native.NewTokenizer(nil))
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: native.NewServer(model, native.ServerConfig{Name: "policy"}), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	folder := os.Getenv(childFolder)
	a, err := pg.New(pg.Config{
		Learner: model, Steps: killSteps, Tasks: 3, GroupSize: 4, Epochs: 2, Minibatch: 5, Seed: 11,
		LearningRate: learner.Schedule{Peak: 3e-3, Final: 1e-3}, ValidateEvery: 3, Checkpoints: folder,
		Publish: func(ctx context.Context, _ int) (agl.NamedResources, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv(childRelay)+"/upstream", bytes.NewReader([]byte("http://"+listener.Addr().String())))
			if err != nil {
				return nil, err
			}
			res, err := (&http.Client{}).Do(req)
			if err != nil {
				return nil, err
			}
			return agl.NamedResources{{Name: "main_llm", Resource: agl.ProxyLLM{Endpoint: os.Getenv(childServer) + "/v1", Model: "policy"}}}, res.Body.Close()
		},
	})
	if err != nil {
		return err
	}
	runs, err := st.Runs(ctx, 1)
	if err != nil {
		return err
	}
	tasks, err := algorithm.Tasks([]int{0, 1, 2, 3, 4, 5}[:killTasks])
	if err != nil {
		return err
	}
	env := algorithm.Env{Store: st, Train: tasks, Val: tasks, Logger: slog.New(slog.DiscardHandler)}
	if len(runs) > 0 {
		env.RunID = runs[0].RunID
	}
	if err := a.Run(ctx, env); err != nil {
		return err
	}
	out := filepath.Join(folder, "final")
	if err := errors.Join(model.Save(ctx, out), server.Close(), model.Close()); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	weights, err := os.ReadFile(filepath.Join(out, "model.safetensors"))
	if err != nil {
		return err
	}
	digest := sha256.Sum256(weights)
	fmt.Println(hex.EncodeToString(digest[:]))
	return nil
}

// relay is the model backend as the proxy knows it, at an address that stays. It
// counts what is asked of the model behind it, and asks the next one when that
// is gone.
type relay struct {
	mu    sync.Mutex
	url   string
	gone  chan struct{} // closed when another url is known
	paid  map[int64]int // answers by seed of the rollout
	lost  map[int64]int // calls by seed that were in flight when the model went
	tries int
}

func newRelay() *relay {
	return &relay{gone: make(chan struct{}), paid: map[int64]int{}, lost: map[int64]int{}}
}

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if req.URL.Path == "/upstream" {
		r.mu.Lock()
		r.url = string(body)
		close(r.gone)
		r.gone = make(chan struct{})
		r.mu.Unlock()
		return
	}
	var asked struct {
		Seed int64 `json:"seed"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for {
		r.mu.Lock()
		url, gone := r.url, r.gone
		r.mu.Unlock()
		if url != "" {
			answer, err := forward(req.Context(), url+req.URL.Path, body)
			r.mu.Lock()
			r.tries++
			if err == nil {
				r.paid[asked.Seed]++
				r.mu.Unlock()
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(answer)
				return
			}
			r.lost[asked.Seed]++
			if r.url == url {
				r.url = ""
			}
			r.mu.Unlock()
		}
		select {
		case <-gone:
		case <-req.Context().Done():
			return
		}
	}
}

func forward(ctx context.Context, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, answer)
	}
	return answer, err
}

// guess is the agent: one call of the model, right when the first byte of the
// answer is even or odd as the task is.
func guess(ctx context.Context, task int, c *agent.Call) (float64, error) {
	llm, err := c.LLM("")
	if err != nil {
		return 0, err
	}
	seed, err := strconv.ParseInt(string(c.Rollout.MetadataValue(semconv.MetadataSeed)), 10, 64)
	if err != nil {
		return 0, err
	}
	temperature := 0.0
	if c.Training() {
		temperature = 1
	}
	body, err := json.Marshal(map[string]any{
		"model": llm.Model, "seed": seed, "temperature": temperature, "max_tokens": 2,
		"messages": []map[string]string{{"role": "user", "content": strconv.Itoa(task)}},
	})
	if err != nil {
		return 0, err
	}
	answer, err := forward(ctx, llm.Endpoint+"/chat/completions", body)
	if err != nil {
		return 0, err
	}
	var said struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(answer, &said); err != nil || len(said.Choices) != 1 {
		return 0, fmt.Errorf("%w: %s", cmp.Or(err, errors.New("not one choice")), answer)
	}
	text := said.Choices[0].Message.Content
	if text != "" && int(text[0])%2 == task%2 {
		return 1, nil
	}
	return 0, nil
}

// site is everything that is not killed: server, store, runner and relay.
type site struct {
	url, folder string
	relay       *relay
	relayURL    string
	store       *engine.Store
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{relay: newRelay(), folder: t.TempDir()}
	back := httptest.NewServer(s.relay)
	t.Cleanup(back.Close)
	s.relayURL = back.URL
	backend, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "agl.db")})
	if err != nil {
		t.Fatal(err)
	}
	s.store = engine.New(backend, engine.Config{})
	server, err := daemon.Listen(t.Context(), daemon.Config{
		Store: s.store, Proxy: llmproxy.Config{Static: []agl.Model{{Name: "policy", Endpoint: back.URL + "/v1"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.url = server.URL()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	working, stopWork := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		err := trainer.Fit(working, trainer.Config{Role: execution.RoleRunner, ServerURL: s.url, Agent: agent.New(guess), Concurrency: 4}, nil, nil)
		if err != nil && working.Err() == nil {
			t.Errorf("runner: %v", err)
		}
	})
	t.Cleanup(func() {
		stopWork()
		work.Wait()
		stop()
		running.Wait()
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start starts the process that trains.
func (s *site) start(t *testing.T) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childServer+"="+s.url, childRelay+"="+s.relayURL, childFolder+"="+s.folder)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

// end is what a run comes to, whatever happened to it on the way.
func (s *site) end(t *testing.T, hash string) map[string]any {
	t.Helper()
	runs, err := s.store.Runs(t.Context(), 10)
	if err != nil || len(runs) != 1 || runs[0].Status != agl.RunSucceeded {
		t.Fatalf("runs = %+v, %v, want one that succeeded", runs, err)
	}
	steps, err := s.store.StepMetrics(t.Context(), runs[0].RunID, -1)
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[int]map[string]float64{}
	for _, m := range steps {
		maps.DeleteFunc(m.Values, func(name string, _ float64) bool {
			return strings.HasPrefix(name, "timing") || strings.HasPrefix(name, "perf/") && name != "perf/total_num_tokens"
		})
		metrics[m.Step] = m.Values
	}
	counts, err := s.store.Statistics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.relay.mu.Lock()
	defer s.relay.mu.Unlock()
	paid := maps.Clone(s.relay.paid)
	return map[string]any{"weights": hash, "metrics": metrics, "rollouts": counts.TotalRollouts, "attempts": counts.TotalAttempts, "answers": paid}
}

// TestSIGKILL kills the process that trains, and with it the model, at random
// points of a synchronous GRPO run; the server goes on. Resumed each time, the
// run comes to the weights and metrics of one that nobody disturbed. Of the model
// calls only those are made again that were in flight.
func TestSIGKILL(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows: a process cannot be sent SIGKILL")
	}
	wanted := 4
	if text := os.Getenv(killsWanted); text != "" {
		var err error
		if wanted, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", killsWanted, err)
		}
	}
	whole := newSite(t)
	started := time.Now()
	cmd, out := whole.start(t)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("undisturbed run: %v: %s", err, out)
	}
	lasts := time.Since(started)
	want := whole.end(t, out.String())
	asked := killSteps*3*4 + (1+killSteps/3)*killTasks
	if whole.relay.tries != asked || len(whole.relay.paid) != asked {
		t.Fatalf("undisturbed run: %d model calls for %d rollouts, want %d", whole.relay.tries, len(whole.relay.paid), asked)
	}

	dice := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for round, kills, lost := 1, 0, 0; kills < wanted; round++ {
		s := newSite(t)
		for killed := true; killed; {
			cmd, out := s.start(t)
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			var after <-chan time.Time
			if kills < wanted {
				// Lives are short, so that the kills are spread over the whole run.
				after = time.After(time.Duration(dice.Int64N(int64(lasts) / 3)))
			}
			select {
			case <-after:
				if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Fatal(err)
				}
				killed = <-ended != nil
				if killed {
					kills++
				}
			case err := <-ended:
				if err != nil {
					t.Fatalf("after %d kills: %v: %s", kills, err, out)
				}
				killed = false
			}
			if !killed {
				if d := diff.Diff(want, s.end(t, out.String())); d != "" {
					t.Errorf("after %d kills (-undisturbed +killed):\n%s", kills, d)
				}
			}
		}
		if left, err := filepath.Glob(filepath.Join(s.folder, "*", ".*")); err != nil || len(left) != 0 {
			t.Errorf("checkpoints that were being saved are left: %v, %v", left, err)
		}
		for _, n := range s.relay.lost {
			lost += n
		}
		// Four agents work at a time, so no more than four calls were in flight.
		if s.relay.tries-asked > 4*kills {
			t.Errorf("%d model calls where %d are enough, after %d kills: want only those in flight again", s.relay.tries, asked, kills)
		}
		t.Logf("run %d, %d kills so far: %d model calls, of which %d were in flight at a kill; the undisturbed run took %v", round, kills, s.relay.tries, lost, lasts)
	}
}
