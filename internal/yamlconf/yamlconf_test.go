package yamlconf_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentlightning/internal/yamlconf"
)

type rate struct {
	Peak, Final float64
	WarmUp      int
}

func (rate) ShortKey() string { return "peak" }

type limits struct {
	MaxTokens int           `json:"max_tok,omitempty"`
	Every     time.Duration `yaml:"often"`
}

type mode string

type settings struct {
	limits
	Limits
	Name     string
	Mode     mode
	Seed     int64
	Share    *float64
	On       bool
	Command  []string
	Rate     rate
	Prompts  map[string]prompt
	Parts    []part
	Any      *yamlconf.Node
	Internal func() `yaml:"-"`
}

// Limits is embedded and exported, so that its keys are those of settings.
type Limits struct{ MaxGradNorm float64 }

type prompt struct{ Text, Engine string }

func (prompt) ShortKey() string { return "text" }

type part struct {
	Name  string
	Count int
}

const text = `# a comment
name: first
mode: fast
seed: 7
share: 0.5
command: [python, agent.py]
rate: 0.01
max_grad_norm: 2
max_tok: 3
often: 1m30s
prompts:
  system: |
    Be {kind}.
    Always.
  user: {text: Go, engine: jinja}
parts:
  - name: a
    count: 1
  - {name: b}
any: {use: it, deep: [1, 2]}
`

func decode(t *testing.T, text string, sets ...string) (settings, *yamlconf.Node, error) {
	t.Helper()
	n, err := yamlconf.Parse("f.yaml", []byte(text))
	if err != nil {
		return settings{}, nil, err
	}
	for _, s := range sets {
		if err := n.Set(s); err != nil {
			return settings{}, nil, err
		}
	}
	s := settings{On: true, Parts: []part{{Count: 9}}}
	err = n.Decode(&s)
	return s, n, err
}

func TestDecode(t *testing.T) {
	t.Parallel()
	got, _, err := decode(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if got.Any.Key("use").Text() != "it" || got.Any.Origin != "f.yaml:20" {
		t.Errorf("any is %q from %s", got.Any.Key("use").Text(), got.Any.Origin)
	}
	got.Any = nil
	want := settings{
		Name: "first", Mode: "fast", Seed: 7, Share: new(0.5), On: true, Command: []string{"python", "agent.py"},
		Rate: rate{Peak: 0.01}, Limits: Limits{MaxGradNorm: 2}, limits: limits{3, 90 * time.Second},
		Prompts: map[string]prompt{"system": {Text: "Be {kind}.\nAlways.\n"}, "user": {"Go", "jinja"}},
		Parts:   []part{{"a", 1}, {"b", 0}},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(settings{})); d != "" {
		t.Errorf("decoded (-want +got):\n%s", d)
	}
}

func TestCommandLineIsTypedByTheField(t *testing.T) {
	t.Parallel()
	got, n, err := decode(t, text, "name=12", "seed=8", "on=false", "rate.warm_up=3", "parts.1.count=4", "parts.2.name=true", "command=[go, run, .]", "share=null")
	if err != nil {
		t.Fatal(err)
	}
	got.Any, got.Prompts = nil, nil
	want := settings{
		Name: "12", Mode: "fast", Seed: 8, Command: []string{"go", "run", "."}, Rate: rate{Peak: 0.01, WarmUp: 3}, Limits: Limits{MaxGradNorm: 2}, limits: limits{3, 90 * time.Second},
		Parts: []part{{"a", 1}, {"b", 4}, {"true", 0}},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(settings{})); d != "" {
		t.Errorf("decoded (-want +got):\n%s", d)
	}
	var lines []string
	for _, s := range yamlconf.Settings(n, got) {
		lines = append(lines, s.Path+" "+s.Value+" "+s.Origin)
	}
	const origins = `max_tok 3 f.yaml:9
often 1m30s f.yaml:10
max_grad_norm 2 f.yaml:8
name 12 command line
mode fast f.yaml:3
seed 8 command line
on false command line
command [go, run, .] command line
rate.peak 0.01 f.yaml:7
rate.warm_up 3 command line
parts.0.name a f.yaml:17
parts.0.count 1 f.yaml:18
parts.1.name b f.yaml:19
parts.1.count 4 command line
parts.2.name true command line`
	if got := strings.Join(lines, "\n"); got != origins {
		t.Errorf("settings are\n%s\nwant\n%s", got, origins)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		sets []string
		want string
	}{
		"near":            {text: "name: a\nsede: 1\n", want: "f.yaml:2: sede: there is no such key; did you mean seed?"},
		"swapped":         {text: "max_grad_nrom: 1\n", want: "f.yaml:1: max_grad_nrom: there is no such key; did you mean max_grad_norm?"},
		"far":             {text: "parts:\n- weight: 1\n", want: "f.yaml:2: parts.0.weight: there is no such key; those here are count, name"},
		"on command line": {sets: []string{"rate.peek=1"}, want: "command line: rate.peek: there is no such key; did you mean peak?"},
		"not a number":    {text: "seed: many\n", want: "f.yaml:1: seed: many: must be a whole number"},
		"not whole":       {text: "seed: 1.5\n", want: "f.yaml:1: seed: 1.5: must be a whole number"},
		"not text":        {text: "name: yes\nmode: 3\n", want: "f.yaml:2: mode: 3: must be text; put it between quotes"},
		"not a bool":      {sets: []string{"on=maybe"}, want: "command line: on: maybe: must be true or false"},
		"not a time":      {text: "often: 3\n", want: "f.yaml:1: often: 3: must be a time with a unit, as 90s or 10m"},
		"not a map":       {text: "rate: [1]\n", want: "f.yaml:1: rate: must be keys with values (peak, final, warm_up)"},
		"not a list":      {text: "command: {a: b}\n", want: "f.yaml:1: command: must be a list"},
		"twice":           {text: "name: a\nname: b\n", want: "f.yaml: not YAML: [2:1] mapping key \"name\" already defined at [1:1]"},
		"not YAML":        {text: "name: [a\n", want: "f.yaml: not YAML"},
		"not keys":        {text: "- a\n", want: "f.yaml:1: must be keys with values"},
		"merge":           {text: "rate:\n  <<: {peak: 1}\n", want: "f.yaml:2: the merge key << is not read here"},
		"no value":        {sets: []string{"seed"}, want: `"seed": must be dotted.key=VALUE`},
		"value with keys": {text: "seed: 1\nprompts: x\n", sets: []string{"prompts.a=y"}, want: "command line: prompts: must be names with values"},
		"item":            {text: "parts: [{name: a}]\n", sets: []string{"parts.5.name=x"}, want: `parts.5: "5": must be the number of an item, from 0 to 1`},
	} {
		_, _, err := decode(t, tt.text, tt.sets...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: err = %v, want %q", name, err, tt.want)
		}
	}
	_, _, err := decode(t, "sede: 1\nmode: 1\n")
	if !errors.Is(err, yamlconf.ErrInvalid) || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("err = %v, want both mistakes", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(text, "rate.peak=1")
	f.Add("a: &x [1]\nb: *x\n", "a.0=2")
	f.Add("", "a.b.c={x: y}")
	f.Fuzz(func(t *testing.T, text, set string) {
		n, err := yamlconf.Parse("f.yaml", []byte(text))
		if err != nil {
			return
		}
		if err := n.Set(set); err != nil {
			return
		}
		var s settings
		if n.Decode(&s) == nil {
			yamlconf.Settings(n, s)
		}
	})
}
