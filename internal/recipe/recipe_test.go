package recipe_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentlightning/internal/recipe"
)

// load writes a recipe beside some tasks and reads it.
func load(t *testing.T, text string, assignments ...string) (*recipe.Recipe, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"train.jsonl": "{\"q\":\"one\"}\n{\"q\":\"two\"}\n",
		"val.csv":     "q\nthree\nfour\nfive\n",
		"bad.jsonl":   "{\"q\":\"one\"}\n[]\n",
		"pairs.jsonl": `{"prompt":[{"role":"user","content":"one?"}],"chosen":[{"role":"assistant","content":"1"}],"rejected":[{"role":"assistant","content":"2"}]}` + "\n",
		"demos.jsonl": `{"messages":[{"role":"user","content":"one?"},{"role":"assistant","content":"1"}]}` + "\n",
		"calls.jsonl": `{"messages":[{"role":"user","content":"one?"},{"role":"assistant","content":null,"tool_calls":[{}]}]}` + "\n",
		"r.yaml":      text,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return recipe.Load(filepath.Join(dir, "r.yaml"), assignments, recipe.Components())
}

const (
	head = "data: {train: train.jsonl, val: val.csv}\nagent: {use: program, command: [sh, -c, echo 1], reward: stdout}\n"

	weights = head + "learner: {use: native, dim: 32, heads: 2}\nalgorithm: {use: grpo, steps: 2, learning_rate: 0.01}\n"
	prompts = head + "prompts: {p: \"Answer {q}.\"}\nalgorithm: {use: gepa, model: m, base_url: \"http://127.0.0.1:1/v1\", max_evaluations: 40}\n"
	demos   = "learner: {use: native, dim: 32, heads: 2}\nalgorithm: {use: sft, data: demos.jsonl, steps: 2, learning_rate: 0.01}\n"
)

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		sets []string
		want []string
	}{
		"unknown key":          {text: weights + "sede: 1\n", want: []string{"r.yaml:5: sede: there is no such key; did you mean seed?"}},
		"unknown setting":      {text: weights, sets: []string{"algorithm.stepz=3"}, want: []string{"command line: algorithm.stepz: there is no such key; did you mean steps?"}},
		"of another":           {text: weights, sets: []string{"algorithm.minibatches=3", "algorithm.max_cost=3"}, want: []string{"did you mean minibatch?", "grpo would not look at max_cost; gepa does"}},
		"in two parts":         {text: weights + "sede: 1\n", sets: []string{"algorithm.epoch=1"}, want: []string{"did you mean seed?", "did you mean epochs?"}},
		"two mistakes":         {text: weights + "sede: 1\nrunner: 2\n", want: []string{"did you mean seed?", "did you mean runners?"}},
		"unknown algorithm":    {text: weights, sets: []string{"algorithm.use=grop"}, want: []string{`algorithm.use: "grop" is no component; did you mean grpo`}},
		"no algorithm":         {text: head, want: []string{"algorithm: must be set, to one of baseline, gepa, apo, finetune, sft, dpo, offline, grpo"}},
		"both":                 {text: weights + "stages: [{algorithm: baseline}]\n", want: []string{"algorithm and stages: give one of them"}},
		"no learner":           {text: head + "algorithm: {use: grpo, steps: 2, learning_rate: 0.01}\n", want: []string{"learner: must be set, to one of native, command: grpo changes weights"}},
		"learner for nothing":  {text: prompts + "learner: native\n", want: []string{"learner: nothing looks at it: gepa changes no weights"}},
		"no agent":             {text: "algorithm: baseline\ndata: {val: val.csv}\n", want: []string{"agent: must be set, to one of program, remote"}},
		"agent for nothing":    {text: demos + "agent: remote\nprompts: {p: x}\n", want: []string{"agent: nothing looks at it: sft runs no agent", "prompts: nothing looks at it: sft serves no agent"}},
		"no tasks":             {text: "agent: {use: program, command: [true]}\nalgorithm: baseline\n", want: []string{"data: stage 1, baseline, needs tasks"}},
		"runners elsewhere":    {text: "data: {train: train.jsonl}\nagent: remote\nrunners: 3\nport: 4750\nalgorithm: baseline\n", want: []string{"runners: nothing looks at it: the agent runs elsewhere"}},
		"no port":              {text: "data: {train: train.jsonl}\nagent: remote\nalgorithm: baseline\n", want: []string{"port: must be set, so that runners elsewhere know where to ask for work"}},
		"server and db":        {text: weights + "server: http://127.0.0.1:1\ndb: sqlite:x.db\n", want: []string{"db: nothing looks at it: the server http://127.0.0.1:1 has its own"}},
		"retries":              {text: weights + "rollout: {attempts: 3}\n", want: []string{"rollout: attempts: 3: say with retry_on"}},
		"prompt twice":         {text: prompts, sets: []string{"prompts.p.file=x.txt"}, want: []string{"prompts.p: give text or file, one of them"}},
		"engine":               {text: prompts, sets: []string{"prompts.p={text: x, engine: perl}"}, want: []string{`prompts.p.engine: "perl": must be one of f-string, jinja, poml`}},
		"follow has no tasks":  {text: weights, sets: []string{"algorithm.use=follow"}, want: []string{"data: nothing looks at it: follow runs no agent", "port: must be set, so that agents elsewhere know where to report"}},
		"offline runs nothing": {text: weights, sets: []string{"algorithm.use=offline", "data=null"}, want: []string{"agent: nothing looks at it: offline runs no agent"}},
		"same stages":          {text: head + "stages: [{algorithm: baseline}, {algorithm: baseline}]\n", want: []string{`stages.1: name "baseline": another stage has it`}},
	} {
		_, err := load(t, tt.text, tt.sets...)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: err = %v, want %q", name, err, want)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		sets []string
		want string // a line, or the error
	}{
		"weights":              {text: weights, want: "stage 1: grpo, 2 training tasks, 3 validation tasks"},
		"prompts":              {text: prompts, want: "budget 40 rollouts: 3 for the initial prompts"},
		"demos":                {text: demos, want: "stage 1: sft"},
		"pairs":                {text: demos, sets: []string{"algorithm.use=dpo", "algorithm.data=pairs.jsonl"}, want: "stage 1: dpo"},
		"apo":                  {text: head + "prompts: {p: x}\nalgorithm: {use: apo, base_url: \"http://127.0.0.1:1/v1\"}\n", want: "stage 1: apo"},
		"bad row":              {text: weights, sets: []string{"data.train=bad.jsonl"}, want: "bad.jsonl:2: a task must be a JSON object, this is a JSON array"},
		"bad demo":             {text: demos, sets: []string{"algorithm.data=calls.jsonl"}, want: "calls.jsonl:1: message 1: the built-in model is trained on texts"},
		"bad knob":             {text: weights, sets: []string{"algorithm.loss.clip.dual=0.5"}, want: "dual clip 0.5: must be above 1"},
		"ignored knob":         {text: weights, sets: []string{"algorithm.use=ppo", "algorithm.advantages.without_std=true"}, want: "Method."},
		"credit":               {text: weights, sets: []string{"algorithm.credit=last"}, want: `algorithm: credit: `},
		"small budget":         {text: prompts, sets: []string{"algorithm.max_evaluations=5"}, want: "MaxEvaluations: 5: must be at least"},
		"cost, no price":       {text: prompts, sets: []string{"algorithm.max_cost=3"}, want: "algorithm: max_cost: 3: nothing would come near it without a price"},
		"no key":               {text: prompts, sets: []string{"algorithm.base_url="}, want: "there is no key for OpenAI in OPENAI_API_KEY"},
		"no command":           {text: weights, sets: []string{"agent.command=[no-such-program]"}, want: `agent: command "no-such-program"`},
		"no such model":        {text: prompts, sets: []string{"llm=gpt"}, want: `llm: "gpt" is no model of the proxy`},
		"short":                {text: "data: {val: val.csv}\nagent: {use: program, command: [\"true\"]}\nalgorithm: baseline\n", sets: []string{"algorithm.epochs=2"}, want: "stage 1: baseline, 0 training tasks, 3 validation tasks"},
		"follow":               {text: demos, sets: []string{"algorithm={use: follow, steps: 1, learning_rate: 0.1, rollouts: 8}", "port=4799"}, want: "stage 1: follow"},
		"offline":              {text: demos, sets: []string{"algorithm={use: offline, steps: 1, learning_rate: 0.1, run: run-1}"}, want: "stage 1: offline"},
		"stored, sft":          {text: demos, sets: []string{"algorithm={use: sft, steps: 1, learning_rate: 0.1, stored: {mode: train}, select: {top: 0.5}}"}, want: "stage 1: sft"},
		"stored, dpo":          {text: demos, sets: []string{"algorithm={use: dpo, steps: 1, learning_rate: 0.1, stored: {}, margin: 0.5}"}, want: "stage 1: dpo"},
		"select of file":       {text: demos, sets: []string{"algorithm.select.top=0.5"}, want: "select: nothing looks at it"},
		"early stop":           {text: weights, sets: []string{"algorithm.early_stop.patience=2"}, want: "without ValidateEvery there is nothing to stop by"},
		"async":                {text: weights, sets: []string{"algorithm.async={groups: 32, max_staleness: 1}", "algorithm.restore_best=true"}, want: "stage 1: grpo"},
		"command":              {text: weights, sets: []string{"learner={use: command, command: [trainer], dir: work, endpoint: \"http://127.0.0.1:1/v1\", honours: [\"*\"]}"}, want: "stage 1: grpo"},
		"command, no endpoint": {text: weights, sets: []string{"learner={use: command, command: [trainer], dir: work}"}, want: "learner: endpoint: must be set"},
		"command, critic":      {text: weights, sets: []string{"learner={use: command, command: [trainer], dir: work, endpoint: \"http://127.0.0.1:1/v1\", honours: [\"*\"]}", "algorithm.use=ppo"}, want: "Critic: the learner"},
		"finetune":             {text: head + "algorithm: {use: finetune, tuner: {model: gpt, api_key_env: AN_API_KEY}, base: {endpoint: \"http://127.0.0.1:1/v1\", target: gpt}, select: {top: 0.5}}\n", want: "stage 1: finetune, 2 training tasks"},
		"finetune, no key":     {text: head + "algorithm: {use: finetune, tuner: {model: gpt, api_key_env: NO_API_KEY}, base: {endpoint: \"http://127.0.0.1:1/v1\"}}\n", want: "NO_API_KEY"},
		"bad shape":            {text: weights, sets: []string{"learner.dim=33"}, want: "learner: invalid model configuration: Dim is 33"},
	} {
		r, err := load(t, tt.text, tt.sets...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		none := func(name string) (string, bool) { return "x", name == "AN_API_KEY" }
		lines, err := r.Check(t.Context(), nil, none, slog.New(slog.DiscardHandler))
		got := strings.Join(lines, "\n")
		if err != nil {
			got += "\n" + err.Error()
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: checked: %s; want %q", name, got, tt.want)
		}
	}
}

func TestSettingsSayWhereTheyAreFrom(t *testing.T) {
	t.Parallel()
	r, err := load(t, weights, "algorithm.steps=7", "seed=4")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range r.Settings() {
		origin := s.Origin
		if i := strings.LastIndexByte(origin, '/'); i >= 0 {
			origin = origin[i+1:]
		}
		got[s.Path] = s.Value + " " + origin
	}
	for path, want := range map[string]string{
		"seed": "4 command line", "algorithm.steps": "7 command line", "algorithm.use": "grpo r.yaml:4",
		"algorithm.learning_rate.peak": "0.01 r.yaml:4", "algorithm.group_size": "8 default", "algorithm.loss.clip.low": "0.2 default",
		"learner.dim": "32 r.yaml:3", "learner.name": "policy default", "agent.command": "[sh, -c, echo 1] r.yaml:2",
		"data.train": "train.jsonl r.yaml:1", "db": "sqlite:agl.db default", "runners": "4 default",
	} {
		if got[path] != want {
			t.Errorf("%s is %q, want %q", path, got[path], want)
		}
	}
}
