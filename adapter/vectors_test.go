package adapter

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
)

// vector is a recorded run of one of the adapters of the Python implementation.
type vector struct {
	Name    string     `json:"name"`
	Adapter string     `json:"adapter"`
	Spans   []agl.Span `json:"spans"`
	Options struct {
		CallMatch     string `json:"llm_call_match"`
		AgentMatch    string `json:"agent_match"`
		ExcludeReward *bool  `json:"exclude_llm_call_in_reward"`
		Repair        *bool  `json:"repair_hierarchy"`
		RewardMatch   string `json:"reward_match"`
		SkipEmpty     bool   `json:"_skip_empty_token_spans"`
	} `json:"options"`
	Output json.RawMessage `json:"output"`
	Error  *struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	Before    json.RawMessage `json:"tree_before_repair"`
	After     json.RawMessage `json:"tree_after_repair"`
	TreeError string          `json:"tree_error"`
}

func (v *vector) options() TracerOptions {
	o := TracerOptions{
		CallMatch: v.Options.CallMatch, AgentMatch: v.Options.AgentMatch, SkipEmpty: v.Options.SkipEmpty,
		NoRepair:             v.Options.Repair != nil && !*v.Options.Repair,
		IncludeCallsInReward: v.Options.ExcludeReward != nil && !*v.Options.ExcludeReward,
	}
	if v.Options.RewardMatch == "first_sibling" {
		o.RewardMatch = FirstSibling
	}
	return o
}

func (v *vector) run() (any, error) {
	switch v.Adapter {
	case "TracerTraceToTriplet":
		return TracerTriplets(v.Spans, v.options())
	case "LlmProxyTraceToTriplet":
		return ProxyTriplets(v.Spans)
	}
	return Messages(v.Spans)
}

func TestVectors(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../testdata/vectors/adapters/*.json")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "_") {
			continue
		}
		ran++
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var v vector
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			got, err := v.run()
			if (err != nil) != (v.Error != nil) {
				t.Fatalf("error is %v, want %v", err, v.Error)
			}
			if err == nil {
				text, err := json.Marshal(got)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(value(t, v.Output), value(t, text)); diff != "" {
					t.Errorf("output (-want +got):\n%s", diff)
				}
			}
			if v.Adapter == "TracerTraceToTriplet" {
				compareTrees(t, &v)
			}
		})
	}
	if ran != 151 {
		t.Errorf("%d vectors ran, want 151", ran)
	}
}

func compareTrees(t *testing.T, v *vector) {
	t.Helper()
	root, err := buildTree(v.Spans)
	if err != nil {
		if v.Before != nil {
			t.Errorf("tree: %v", err)
		}
		return
	}
	if v.Before != nil {
		if diff := cmp.Diff(value(t, v.Before), value(t, shape(root))); diff != "" {
			t.Errorf("tree (-want +got):\n%s", diff)
		}
	}
	if err := root.repair(); err != nil {
		if v.After != nil {
			t.Errorf("repair: %v", err)
		}
		return
	}
	if v.After != nil {
		if diff := cmp.Diff(value(t, v.After), value(t, shape(root))); diff != "" {
			t.Errorf("repaired tree (-want +got):\n%s", diff)
		}
	}
}

// shape writes a tree as the vectors do: [id, [kids…]].
func shape(t *tree) []byte {
	kids := make([]json.RawMessage, len(t.kids))
	for i, k := range t.kids {
		kids[i] = shape(k)
	}
	out, _ := json.Marshal([]any{t.id, kids})
	return out
}

// value reads JSON so that 1 and 1.0 differ, except for rewards, which are
// floats however they are spelled.
func value(t *testing.T, raw []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	list, _ := v.([]any)
	for _, e := range list {
		if triplet, ok := e.(map[string]any); ok {
			if n, ok := triplet["reward"].(json.Number); ok {
				triplet["reward"], _ = n.Float64()
			}
		}
	}
	return v
}
