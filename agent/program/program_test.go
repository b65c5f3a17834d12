package program_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/agent/program"
	"agentlightning/emit"
	"agentlightning/semconv"
	"agentlightning/tracer"
)

func unixOnly(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("windows: commands are refused, see TestConfig")
	}
}

func newAgent(t *testing.T, cfg program.Config) *program.Agent {
	t.Helper()
	unixOnly(t)
	a, err := program.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func call(input string, resources ...agl.NamedResource) *agent.Call {
	return &agent.Call{
		Rollout: agl.AttemptedRollout{
			Rollout: agl.Rollout{RolloutID: "ro-1", Input: json.RawMessage(input), Mode: agl.ModeTrain},
			Attempt: &agl.Attempt{RolloutID: "ro-1", AttemptID: "at-1"},
		},
		Resources: resources,
	}
}

// outcome runs an agent inside a trace and returns what it recorded by stream.
func outcome(ctx context.Context, t *testing.T, a agent.Agent, c *agent.Call) (agent.Result, map[string]string, error) {
	t.Helper()
	traced, trace := tracer.New(tracer.Config{}).Start(ctx, "", "")
	result, err := a.Run(traced, c)
	spans, failed := trace.End(context.WithoutCancel(ctx))
	if failed != nil {
		t.Fatal(failed)
	}
	streams := map[string]string{}
	for i := range spans {
		stream, _ := spans[i].Attributes.String(semconv.ProgramStream)
		text, _, failed := emit.MessageOf(&spans[i])
		if failed != nil {
			t.Fatal(failed)
		}
		streams[stream] = text
	}
	return result, streams, err
}

func TestRewards(t *testing.T) {
	t.Parallel()
	unixOnly(t)
	tests := []struct {
		name, script string
		cfg          program.Config
		want         string // the reward, or part of the error
	}{
		{"exit 0", "exit 0", program.Config{Reward: program.RewardExit}, "1"},
		{"exit 1", "exit 1", program.Config{Reward: program.RewardExit}, "0"},
		{"exit 2 is a fault", "echo oh no >&2; exit 2", program.Config{Reward: program.RewardExit}, `program "sh": exit status 2: oh no`},
		{"a signal is a fault", "kill -KILL $$", program.Config{Reward: program.RewardExit}, `program "sh": killed by SIGKILL`},
		{"another wrong status", "exit 9", program.Config{Reward: program.RewardExit, WrongStatus: 9}, "0"},
		{"then 1 is a fault", "exit 1", program.Config{Reward: program.RewardExit, WrongStatus: 9}, "exit status 1"},
		{"number", "echo thinking; echo 0.25", program.Config{Reward: program.RewardStdout}, "0.25"},
		{"object", `echo '{"answer": 4, "reward": -1.5}'; echo; echo '  '`, program.Config{Reward: program.RewardStdout}, "-1.5"},
		{"no newline at the end", `printf 7`, program.Config{Reward: program.RewardStdout}, "7"},
		{"after much", `i=0; while [ $i -lt 3000 ]; do echo "line $i of very many lines"; i=$((i+1)); done; echo 3`, program.Config{Reward: program.RewardStdout, Output: 1024}, "3"},
		{"a line too long", `head -c 5000 /dev/zero | tr '\0' 7`, program.Config{Reward: program.RewardStdout, Output: 1024}, "longer than what is kept"},
		{"no number", "echo well done", program.Config{Reward: program.RewardStdout}, `standard output, "well done": a reward is a number`},
		{"null", "echo null", program.Config{Reward: program.RewardStdout}, "a reward is a number"},
		{"not a number", `echo '{"reward": "high"}'`, program.Config{Reward: program.RewardStdout}, "a reward is a number"},
		{"silence", "true", program.Config{Reward: program.RewardStdout}, "nothing was written"},
		{"a reward before a fault", "echo 1; exit 3", program.Config{Reward: program.RewardStdout}, "exit status 3"},
		{"none", "echo 1", program.Config{}, "none"},
		{"none, a fault", "exit 1", program.Config{}, "exit status 1"},
		{"event", "echo 1", program.Config{Reward: program.RewardEvent, Server: "http://h"}, "none"},
		{"grader", "echo 42", program.Config{Grader: sh(`grep -q '"stdout":"42' && echo 1 || echo 0`)}, "1"},
		{"grader says no", "echo 41", program.Config{Grader: sh(`grep -q '"stdout":"42' && echo 1 || echo 0`)}, "0"},
		{"grader breaks", "echo 41", program.Config{Grader: sh(`echo Traceback >&2; exit 1`)}, `grader: program "sh": exit status 1: Traceback`},
		{"grader says nothing", "echo 41", program.Config{Grader: sh(`true`)}, "grader: nothing was written"},
		{"no grade of a fault", "exit 1", program.Config{Grader: sh(`echo 1`)}, `program "sh": exit status 1`},
		{"time", "sleep 600", program.Config{Timeout: 50 * time.Millisecond}, "longer than the limit of 50ms"},
		{"no program", "", program.Config{Command: []string{"./missing"}}, `start program "./missing"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.cfg.Command == nil {
				tt.cfg.Command = sh(tt.script)
			}
			result, _, err := outcome(t.Context(), t, newAgent(t, tt.cfg), call(`{"q":1}`))
			got := "none"
			if err != nil {
				got = err.Error()
			} else if result.Reward != nil {
				text, _ := json.Marshal(*result.Reward)
				got = string(text)
			}
			if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// TestWhatAProgramIsGiven compares the whole environment that the package sets.
func TestWhatAProgramIsGiven(t *testing.T) {
	t.Setenv("AGL_AUTH_TOKEN", "of the whole server")
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "of somebody")
	unixOnly(t)
	own := "sk-own"
	proxied := agl.NamedResource{Name: "policy", Resource: agl.ProxyLLM{Endpoint: "http://s:1/v1", Model: "m"}}
	direct := agl.NamedResource{Name: "judge", Resource: agl.LLM{Endpoint: "http://j/v1", Model: "j", APIKey: &own}}
	prompt := agl.NamedResource{Name: "say", Resource: agl.PromptTemplate{Template: "Say <{x}>", Engine: "f-string"}}
	const routed = "http://s:1/rollout/ro-1/attempt/at-1"
	tests := []struct {
		name      string
		cfg       program.Config
		resources agl.NamedResources
		token     string
		want      map[string]string // "" means that it is not set
	}{
		{
			"a model behind the proxy",
			program.Config{Server: "http://s:1/"},
			agl.NamedResources{prompt, proxied, direct},
			"tok en",
			map[string]string{
				"AGL_TASK": `{"q": "é"}`, "AGL_ROLLOUT_ID": "ro-1", "AGL_ATTEMPT_ID": "at-1", "AGL_MODE": "train",
				"AGL_OPENAI_BASE_URL": routed + "/v1", "OPENAI_BASE_URL": routed + "/v1", "ANTHROPIC_BASE_URL": routed,
				"AGL_MODEL": "m", "AGL_KEY": "tok en", "OPENAI_API_KEY": "tok en", "ANTHROPIC_API_KEY": "tok en",
				"AGL_EVENT_URL":                      "http://s:1/api/rollouts/ro-1/attempt/at-1/events",
				"OTEL_EXPORTER_OTLP_ENDPOINT":        "http://s:1",
				"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://s:1/v1/traces",
				"OTEL_EXPORTER_OTLP_HEADERS":         "Authorization=Bearer%20tok%20en",
				"OTEL_RESOURCE_ATTRIBUTES":           "agentlightning.rollout_id=ro-1,agentlightning.attempt_id=at-1",
				"OTEL_METRICS_EXPORTER":              "none",
				"AGL_PROMPT":                         "Say <{x}>",
				"AGL_AUTH_TOKEN":                     "", "ANTHROPIC_AUTH_TOKEN": "",
			},
		},
		{
			"no resources",
			program.Config{Server: "http://s:1"},
			nil, "",
			map[string]string{"OPENAI_BASE_URL": routed + "/v1", "AGL_KEY": program.NoKey, "OPENAI_API_KEY": program.NoKey, "AGL_MODEL": "", "AGL_PROMPT": "", "AGL_RESOURCES": "{}"},
		},
		{
			"a model by name, of another service",
			program.Config{Server: "http://s:1", Model: "judge"},
			agl.NamedResources{proxied, direct},
			"t",
			map[string]string{"OPENAI_BASE_URL": "http://j/v1", "ANTHROPIC_BASE_URL": "http://j", "OPENAI_API_KEY": own, "AGL_KEY": "t"},
		},
		{
			"no server",
			program.Config{Env: []string{"MORE=1", "AGL_MODE=mine"}},
			nil, "",
			map[string]string{"AGL_EVENT_URL": "", "AGL_OPENAI_BASE_URL": "", "OTEL_EXPORTER_OTLP_ENDPOINT": "", "AGL_KEY": program.NoKey, "MORE": "1", "AGL_MODE": "mine"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "env")
			tt.cfg.Command = sh(`env -0 > ` + file + `; cat`)
			c := call(`{"q": "é"}`, tt.resources...)
			c.Token = tt.token
			_, streams, err := outcome(t.Context(), t, newAgent(t, tt.cfg), c)
			if err != nil {
				t.Fatal(err)
			}
			if streams["stdout"] != `{"q": "é"}`+"\n" {
				t.Errorf("standard input is %q", streams["stdout"])
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			env := strings.Split(string(text), "\x00")
			for name, value := range tt.want {
				i := slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
				switch {
				case value == "" && i >= 0:
					t.Errorf("%s is set", env[i])
				case value != "" && i < 0:
					t.Errorf("%s is not set", name)
				case value != "" && env[i] != name+"="+value:
					t.Errorf("%s, want %s", env[i], value)
				}
			}
		})
	}
	a := newAgent(t, program.Config{Command: sh("true"), Server: "http://s:1"})
	if !agent.UsesToken(agent.Requiring(a, agent.NeedLLM("")), "") || agent.UsesToken(newAgent(t, program.Config{Command: sh("true")}), "") {
		t.Error("a program asks for the token of its attempt when it has a server, and only then")
	}
	if _, err := newAgent(t, program.Config{Command: sh("true"), Model: "missing"}).Run(t.Context(), call("1", direct)); err == nil || !strings.Contains(err.Error(), `a model named "missing"`) {
		t.Errorf("a model that is not there: %v", err)
	}
}

func TestLargeTask(t *testing.T) {
	t.Parallel()
	text, _ := json.Marshal(strings.Repeat("x", 300<<10))
	a := newAgent(t, program.Config{Command: sh(`[ -z "$AGL_TASK" ] && wc -c`), Reward: program.RewardStdout})
	result, _, err := outcome(t.Context(), t, a, call(string(text)))
	if err != nil || *result.Reward != float64(len(text)+1) {
		t.Errorf("%+v, %v, want %d bytes on standard input", result, err, len(text)+1)
	}
	big := agl.NamedResource{Name: "p", Resource: agl.PromptTemplate{Template: string(text)}}
	if _, _, err := outcome(t.Context(), t, a, call("1", big)); err == nil || !strings.Contains(err.Error(), "AGL_RESOURCES") {
		t.Errorf("resources that do not fit: %v", err)
	}
}

func TestOutputIsKept(t *testing.T) {
	t.Parallel()
	a := newAgent(t, program.Config{Command: sh(`echo first; head -c 100000 /dev/zero | tr '\0' .; echo; echo last; printf 'bad \377 byte' >&2; exit 5`), Output: 2048})
	_, streams, err := outcome(t.Context(), t, a, call("1"))
	var exit *program.ExitError
	if !errors.As(err, &exit) || exit.Code != 5 || exit.Said != "bad \uFFFD byte" {
		t.Errorf("error %v, want status 5 and the last words", err)
	}
	out := streams["stdout"]
	if !strings.HasPrefix(out, "first\n...") || !strings.HasSuffix(out, "...\nlast\n") || !strings.Contains(out, "bytes left out") || len(out) > 2200 {
		t.Errorf("stdout of %d bytes begins %.20q and ends %q", len(out), out, out[len(out)-20:])
	}
	if streams["stderr"] != "bad \uFFFD byte" {
		t.Errorf("stderr is %q", streams["stderr"])
	}
}

// TestCancel: the program ends with its attempt, after a chance to clean up, and
// what it wrote is kept.
func TestCancel(t *testing.T) {
	t.Parallel()
	cause := errors.New("somebody cancelled it")
	for _, pool := range []bool{false, true} {
		ctx, cancel := context.WithCancelCause(t.Context())
		started := filepath.Join(t.TempDir(), "started")
		a := newAgent(t, program.Config{
			Command: sh(`trap 'echo cleaned; exit 0' TERM; read line; echo begun; touch ` + started + `; while :; do sleep 0.02; done`),
			Grace:   10 * time.Second, Pool: pool,
		})
		go func() {
			defer cancel(cause)
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for ; t.Context().Err() == nil; <-tick.C {
				if _, err := os.Stat(started); err == nil {
					return
				}
			}
		}()
		_, streams, err := outcome(ctx, t, a, call("1"))
		if !errors.Is(err, cause) || streams["stdout"] != "begun\ncleaned\n" {
			t.Errorf("pool %v: %v, %q, want the cause and all output", pool, err, streams)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	unixOnly(t)
	if runtime.GOOS != "linux" {
		if _, err := program.New(program.Config{Command: sh("true"), Memory: 1}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a memory limit: %v, want a refusal", err)
		}
		return
	}
	a := newAgent(t, program.Config{Command: sh("tail /dev/zero"), Memory: 32 << 20, Reward: program.RewardExit})
	if _, _, err := outcome(t.Context(), t, a, call("1")); err == nil || !strings.Contains(err.Error(), "more than the limit of 32 MiB") {
		t.Errorf("memory: %v", err)
	}
	a = newAgent(t, program.Config{Command: sh("for i in 1 2 3 4; do sleep 600 & done; wait"), Processes: 3, Pool: true})
	if _, _, err := outcome(t.Context(), t, a, call("1")); err == nil || !strings.Contains(err.Error(), "more than the limit of 3") {
		t.Errorf("processes: %v", err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	unsupported := runtime.GOOS == "windows"
	for want, cfg := range map[string]program.Config{
		"Config.Command is empty":      {},
		"no-such-program":              {Command: []string{"no-such-program"}},
		"Config.Reward \"often\"":      {Command: sh(""), Reward: "often"},
		"needs Config.Server":          {Command: sh(""), Reward: program.RewardEvent},
		"Config.Grader is empty":       {Command: sh(""), Grader: []string{}},
		"one of them gives the reward": {Command: sh(""), Grader: sh(""), Reward: program.RewardExit},
		"does not go with Config.Pool": {Command: sh(""), Pool: true, Reward: program.RewardExit},
		"Config.WrongStatus 256":       {Command: sh(""), WrongStatus: 256},
		"Config.Timeout":               {Command: sh(""), Timeout: -1},
		"Config.Output":                {Command: sh(""), Output: -1},
		"Config.Server \"h:1\"":        {Command: sh(""), Server: "h:1"},
		"Config.Env \"X\"":             {Command: sh(""), Env: []string{"X"}},
		"memory limit of -1":           {Command: sh(""), Memory: -1},
	} {
		_, err := program.New(cfg)
		if unsupported {
			if err == nil {
				t.Errorf("New(%+v) is accepted on %s", cfg, runtime.GOOS)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v) = %v, want %q", cfg, err, want)
		}
	}
}
