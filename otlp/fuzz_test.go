package otlp_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	agl "agentlightning"
	"agentlightning/otlp"
	"agentlightning/store"
)

// FuzzTraces sends arbitrary bodies: the handler answers, and what it hands to
// the store survives being written and read as JSON.
func FuzzTraces(f *testing.F) {
	raw, err := os.ReadFile("../testdata/vectors/store/otlp_traces.json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct {
		Steps []struct {
			Request struct {
				Body string `json:"body_base64"`
			} `json:"request"`
		} `json:"steps"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		f.Fatal(err)
	}
	for _, s := range file.Steps {
		body, err := base64.StdEncoding.DecodeString(s.Request.Body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body, false)
	}
	f.Add([]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":"agentlightning.rollout_id","value":{"stringValue":"a"}},`+
		`{"key":"agentlightning.attempt_id","value":{"intValue":"7"}}]}]}]}]}`), true)
	f.Fuzz(func(t *testing.T, body []byte, asJSON bool) {
		handler := otlp.NewHandler(writer{
			next: func(a []store.Attempted) ([]int64, error) { return make([]int64, len(a)), nil },
			add: func(spans []agl.Span) ([]store.AddedSpan, error) {
				for i := range spans {
					if raw := spans[i].AppendJSON(nil); !json.Valid(raw) {
						t.Errorf("span is not JSON: %s", raw)
					}
				}
				if _, err := otlp.Marshal(spans); err != nil {
					t.Errorf("Marshal: %v", err)
				}
				return make([]store.AddedSpan, len(spans)), nil
			},
		}, otlp.Config{MaxBody: 1 << 20})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, otlp.TracesPath, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/x-protobuf")
		if asJSON {
			r.Header.Set("Content-Type", "application/json")
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK, http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		default:
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	})
}
