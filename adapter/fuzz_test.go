package adapter_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	agl "agentlightning"
	"agentlightning/adapter"
)

// FuzzAdapters reads spans with any attributes by every adapter: each gives a
// result that can be written as JSON, or an error.
func FuzzAdapters(f *testing.F) {
	files, err := filepath.Glob("../testdata/vectors/adapters/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no vectors: %v", err)
	}
	others, err := filepath.Glob("testdata/sources/*.json")
	if err != nil || len(others) == 0 {
		f.Fatalf("no recordings of other tracers: %v", err)
	}
	files = append(files, others...)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var vector struct {
			Spans json.RawMessage `json:"spans"`
		}
		if err := json.Unmarshal(raw, &vector); err != nil {
			f.Fatal(err)
		}
		if len(vector.Spans) > 0 {
			f.Add([]byte(vector.Spans))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var spans []agl.Span
		if json.Unmarshal(raw, &spans) != nil || len(spans) > 50 {
			return
		}
		for name, read := range map[string]func() (any, error){
			"Calls":          func() (any, error) { return adapter.Calls(spans) },
			"Final":          func() (any, error) { return adapter.Final(spans) },
			"Messages":       func() (any, error) { return adapter.Messages(spans) },
			"ProxyTriplets":  func() (any, error) { return adapter.ProxyTriplets(spans) },
			"Conversations":  func() (any, error) { return adapter.Conversations(spans) },
			"Explain":        func() (any, error) { return explainAll(spans) },
			"TracerTriplets": func() (any, error) { return adapter.TracerTriplets(spans, adapter.TracerOptions{}) },
		} {
			got, err := read()
			if err != nil || name == "Calls" || name == "Final" { // which may hold NaN
				continue
			}
			if _, err := json.Marshal(got); err != nil {
				t.Errorf("%s of %s cannot be written: %v", name, raw, err)
			}
		}
		e, err := explainAll(spans)
		if err != nil {
			t.Errorf("explanation of %s: %v", raw, err)
		}
		left := 0
		for _, n := range e.Sums.Reasons {
			left += n
		}
		if e.Sums.CallsUsed+left != e.Sums.Calls || (e.Sums.Rows > 0) != (e.Sums.CallsUsed > 0) {
			t.Errorf("explanation of %s: sums are %+v", raw, e.Sums)
		}
	})
}

// explainAll explains an attempt, and fails when a call is used without a row.
func explainAll(spans []agl.Span) (adapter.Explanation, error) {
	var r adapter.Recording
	r.Add(spans...)
	a := r.Explain(adapter.Circumstances{Status: agl.AttemptSucceeded, Rollout: agl.RolloutSucceeded}, adapter.ExplainConfig{})
	for _, c := range a.Calls {
		if c.Used && c.Row == nil || c.Used == (c.Reason != "") {
			return adapter.Explanation{}, fmt.Errorf("call %+v is used without a row, or for no reason", c)
		}
	}
	return adapter.NewExplanation(agl.Rollout{}, nil, []adapter.ExplainedAttempt{a}, "http://proxy/v1"), nil
}
