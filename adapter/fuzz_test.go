package adapter_test

import (
	"encoding/json"
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
	})
}
