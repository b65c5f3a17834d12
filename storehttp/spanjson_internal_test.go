package storehttp

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

// spanText is a span as a client sends it, with the given values in place of
// its own.
func spanText(replace ...string) string {
	text := `{"rollout_id": "ro-1", "attempt_id": "at-1", "sequence_id": 3, "trace_id": "0af7", "span_id": "b7ad", ` +
		`"parent_id": null, "name": "openai.chat", "status": {"status_code": "OK", "description": null}, ` +
		`"attributes": {"model": "m"}, "events": [], "links": [], "start_time": 1795962523.256626, "end_time": 5, ` +
		`"context": {"trace_id": "0af7", "span_id": "b7ad", "is_remote": false, "trace_state": {}}, "parent": null, ` +
		`"resource": {"attributes": {"service.name": "x"}, "schema_url": ""}}`
	return strings.NewReplacer(replace...).Replace(text)
}

// readSlowly reads a span by way of its value.
func readSlowly(raw []byte) (store.EncodedSpan, bool) {
	var f form
	span := spanReader{}.span(value{&f, raw, bodyPlace})
	return store.EncodeSpan(&span), len(f.problems) == 0
}

// TestEncodeSpan checks which spans are read the quick way, and that they come
// out as those that are not.
func TestEncodeSpan(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		quick      bool
	}{
		{"as clients send it", spanText(), true},
		{"text with escapes", spanText(`"model": "m"`, `"model": "a\"\\\n\r\t\b\f\u00e9\/\u0001 é \ud83d\ude00 \ud800"`), true},
		{"ints", spanText(`"model": "m"`, `"ids": [1, 2,-3, 9007199254740993]`), true},
		{"floats", spanText(`"model": "m"`, `"p": [-0.1, 2, 1e-7,0.30000000000000004], "q": 1.50, "r": 0.00001, "s": -0.0, "t": 123456789012345.6`), true},
		{"bools and texts", spanText(`"model": "m"`, `"b": [true,false], "s": ["a", "\u0041"], "e": [], "t": true`), true},
		{"parent", spanText(`"parent": null`, `"parent": {"span_id": "1", "trace_id": "2", "trace_state": {}, "is_remote": true}`), true},
		{"mixed list", spanText(`"model": "m"`, `"l": [1, "2"]`), false},
		{"null attribute", spanText(`"model": "m"`, `"l": null`), false},
		{"NaN attribute", spanText(`"model": "m"`, `"l": NaN`), false},
		{"infinite list", spanText(`"model": "m"`, `"l": [1.0, -Infinity]`), false},
		{"large integer", spanText(`"model": "m"`, `"l": 92233720368547758080`), false},
		{"name twice", spanText(`"model": "m"`, `"a": 1, "a": 2`), false},
		{"number as text", spanText(`"sequence_id": 3`, `"sequence_id": "3"`), false},
		{"member missing", spanText(`"parent": null, `, ``), false},
		{"member twice", spanText(`"parent": null`, `"parent": null, "parent": null`), false},
		{"one more member", spanText(`"parent": null`, `"parent": null, "more": 1`), false},
		{"event", spanText(`"events": []`, `"events": [{"name": "e", "attributes": {}, "timestamp": 1}]`), false},
		{"trace state", spanText(`"trace_state": {}`, `"trace_state": {"a": "b"}`), false},
		{"status of its own", spanText(`"OK"`, `"FINE"`), false},
		{"time without end", spanText(`"end_time": 5`, `"end_time": 1e999`), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, quick := encodeSpan([]byte(tt.text))
			if quick != tt.quick {
				t.Fatalf("encodeSpan(%s) is quick = %t, want %t", tt.text, quick, tt.quick)
			}
			want, ok := readSlowly([]byte(tt.text))
			if !quick {
				return
			}
			if diff := cmp.Diff(want, got); diff != "" || !ok {
				t.Errorf("encodeSpan(%s): right %t (-read slowly +got):\n%s", tt.text, ok, diff)
			}
		})
	}
}

// FuzzEncodeSpan compares the quick reading of a span with the other one.
func FuzzEncodeSpan(f *testing.F) {
	f.Add([]byte(spanText()))
	f.Add([]byte(spanText(`"model": "m"`, `"a": [1,2], "b": [1, 2.5], "c": "\u0041", "d": -0, "e": 1E5`)))
	f.Add([]byte(spanText(`"description": null`, `"description": "\/"`, `"sequence_id": 3`, `"sequence_id": 1.0`)))
	for _, text := range recordedSpans(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !utf8.Valid(raw) || jsonx.Check(raw) != nil {
			return // refused before
		}
		got, quick := encodeSpan(raw)
		if !quick {
			return
		}
		want, ok := readSlowly(raw)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("encodeSpan(%s): right %t (-read slowly +got):\n%s", raw, ok, diff)
		}
	})
}

// recordedSpans are the bodies with which spans were added in the transcripts.
func recordedSpans(f *testing.F) [][]byte {
	f.Helper()
	files, err := filepath.Glob("../testdata/vectors/store/*.json")
	if err != nil {
		f.Fatal(err)
	}
	var out [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var recorded struct {
			Steps []struct {
				Request struct {
					Path string          `json:"path"`
					Body json.RawMessage `json:"body"`
				} `json:"request"`
			} `json:"steps"`
		}
		if err := json.Unmarshal(text, &recorded); err != nil {
			f.Fatalf("%s: %v", file, err)
		}
		for _, s := range recorded.Steps {
			if s.Request.Path == Prefix+"/spans" && bytes.Contains(s.Request.Body, []byte("attempt_id")) {
				out = append(out, s.Request.Body)
			}
		}
	}
	return out
}

func BenchmarkReadSpan(b *testing.B) {
	text := []byte(spanText(`"model": "m"`, `"model": "m", "prompt": "`+strings.Repeat("word ", 200)+`"`))
	for _, bench := range []struct {
		name string
		read func([]byte) (store.EncodedSpan, bool)
	}{{"quick", encodeSpan}, {"slow", readSlowly}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, ok := bench.read(text); !ok {
					b.Fatal("not read")
				}
			}
		})
	}
}
