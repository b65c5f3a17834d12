package cli_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// wordRecipe writes a recipe of the word agent and its tasks, and returns its
// path.
func wordRecipe(t *testing.T, models *wordModels, more string) string {
	t.Helper()
	dir := t.TempDir()
	words := func(from string) string {
		var b strings.Builder
		for w := range strings.FieldsSeq(from) {
			fmt.Fprintf(&b, "{\"word\": %q}\n", w)
		}
		return b.String()
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"train.jsonl": words("one two three four five six"),
		"val.jsonl":   words("one two three four five six"),
		"recipe.yaml": fmt.Sprintf(`seed: 3
db: sqlite:agl.db
data: {train: train.jsonl, val: val.jsonl}
runners: 2
agent:
  use: program
  command: [%q]
  env: {%s: agent, %s: ""}
  reward: stdout
models:
  - policy=%s/v1
  - writer=%[4]s/v1
llm: policy
prompts:
  rules: Say yes to these words
%s`, self, roleVariable, argsVariable, models.URL, more),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "recipe.yaml")
}

const gepaPart = `algorithm:
  use: gepa
  model: writer
  minibatch: 2
  max_evaluations: 100
  perfect: 1
`

func TestOptimize(t *testing.T) {
	t.Parallel()
	models := newWordModels(t)
	path := wordRecipe(t, models, gepaPart)
	status, out, errs := run(t, "optimize", path)
	t.Logf("%s\n%s", out, errs)
	if status != 0 {
		t.Fatalf("status %d", status)
	}
	for _, want := range []string{"did it learn: yes, validation reward of the best prompts 0 at step 0", "result: prompts rules in resources run-"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q", want)
		}
	}
}

// killPoints is how often TestOptimizeSurvivesKills kills; 20 with
// AGL_TEST_KILLS=20.
func killPoints(t *testing.T) int {
	t.Helper()
	text := os.Getenv("AGL_TEST_KILLS")
	if text == "" {
		return 3
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("AGL_TEST_KILLS=%s: must be a number from 1", text)
	}
	return n
}

// process starts agl as a process of its own.
func process(t *testing.T, args ...string) (*exec.Cmd, *syncBuffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), argsVariable+"="+string(text))
	out := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// found is what a search came to, without what differs between equal ones.
type found struct {
	Prompt, Summary string
	Metrics         map[string]float64
}

// searched reads what the latest run in the database of a recipe came to.
func searched(t *testing.T, recipe string) found {
	t.Helper()
	backend, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(filepath.Dir(recipe), "agl.db")})
	if err != nil {
		t.Fatal(err)
	}
	s := engine.New(backend, engine.Config{})
	defer s.Close()
	runs, err := s.Runs(t.Context(), 10)
	if err != nil || len(runs) != 1 || runs[0].Status != agl.RunSucceeded {
		t.Fatalf("runs %+v, %v; want one that succeeded", runs, err)
	}
	steps, err := s.StepMetrics(t.Context(), runs[0].RunID, -1)
	if err != nil || len(steps) == 0 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	latest, err := s.LatestResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, step := range steps {
		all = append(all, fmt.Sprintf("%d %v", step.Step, step.Values))
	}
	return found{latest.Resources.Get("rules").(agl.PromptTemplate).Template, strings.Join(all, "\n"), steps[len(steps)-1].Values}
}

// TestOptimizeSurvivesKills kills agl optimize with SIGKILL at random points, as
// often as killPoints says, and resumes it each time. The search comes to exactly
// what it comes to uninterrupted, and of the model calls only those in flight
// are paid again.
func TestOptimizeSurvivesKills(t *testing.T) {
	t.Parallel()
	const runners = 2
	models := newWordModels(t)
	quiet := wordRecipe(t, models, gepaPart)
	cmd, out := process(t, "optimize", quiet, "--log-level", "error")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := searched(t, quiet)
	total, once := models.counts()

	kills := killPoints(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	points := make([]int, kills) // calls of the models at which the process is killed
	for i := range points {
		points[i] = 1 + random.IntN(total-1)
	}
	slices.Sort(points)
	t.Logf("seed %d: kills at calls %v of %d", seed, points, total)

	other := newWordModels(t)
	reached := make(chan struct{}, total+kills*runners)
	var next atomic.Int64
	next.Store(int64(points[0]))
	other.before = func(call int) {
		if int64(call) >= next.Load() {
			select {
			case reached <- struct{}{}:
			default:
			}
		}
	}
	path := wordRecipe(t, other, gepaPart)
	args := []string{"optimize", path, "--log-level", "error"}
	killed, paid := 0, 0
	for i := 0; ; i++ {
		for len(reached) > 0 {
			<-reached
		}
		before, _ := other.counts()
		if i < kills {
			// Calls that are made again move the point on.
			next.Store(int64(max(points[i]+paid, before+1)))
		} else {
			next.Store(math.MaxInt64)
		}
		cmd, out := process(t, args...)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("after %d kills: %v\n%s", killed, err, out)
			}
			got := searched(t, path)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("after %d kills the search differs (-uninterrupted +resumed):\n%s", killed, d)
			}
			again, calls := other.counts()
			repeated := 0
			for key, n := range calls {
				repeated += max(0, n-once[key])
			}
			if again-total != repeated || len(calls) != len(once) {
				t.Errorf("%d calls, %d uninterrupted, %d repeated; %d different ones, %d uninterrupted", again, total, repeated, len(calls), len(once))
			}
			// Prompts are rewritten while no attempt is under way.
			if most := killed * runners; repeated > most {
				t.Errorf("%d calls were paid again after %d kills, more than the %d of attempts under way", repeated, killed, most)
			}
			t.Logf("%d kills of %d calls: %d paid again, the same result", killed, total, repeated)
			return
		case <-reached:
			// Not only in the middle of a call.
			pause := time.NewTimer(time.Duration(random.IntN(40)) * time.Millisecond)
			<-pause.C
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-ended
			killed++
			if i == 0 {
				args = append(args, "--resume", "last")
			}
			paid = 0
			_, calls := other.counts()
			for key, n := range calls {
				paid += max(0, n-once[key])
			}
		}
	}
}
