package daemon_test

import (
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/gateway"
	"agentlightning/internal/daemon"
	"agentlightning/storehttp"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

type described struct {
	Paths map[string]map[string]struct {
		Summary     string
		OperationID string `json:"operationId"`
	}
	Components struct{ Schemas map[string]any }
}

func document(t *testing.T, url string) (text string, d described) {
	t.Helper()
	status, _, text := request(t, "GET", url+"/openapi.json", "")
	if err := json.Unmarshal([]byte(text), &d); err != nil || status != http.StatusOK {
		t.Fatalf("GET /openapi.json = %d, %v", status, err)
	}
	return text, d
}

func TestOpenAPIIsAsReviewed(t *testing.T) {
	t.Parallel()
	url, _ := start(t, daemon.Config{})
	got, _ := document(t, url)
	golden := filepath.Join("testdata", "openapi.json")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("/openapi.json has changed; review it and run this test with -update (-reviewed +now):\n%s", diff)
	}
}

// TestOpenAPIMissesNothing compares the document with the routes, in both
// directions: what is served is described, and what is described is served.
func TestOpenAPIMissesNothing(t *testing.T) {
	t.Parallel()
	url, _ := start(t, daemon.Config{})
	_, d := document(t, url)
	for _, r := range storehttp.Routes() {
		if r.Summary == "" || r.Status == 0 || r.Out == "" {
			t.Errorf("%s %s is not described: add it to descriptions in package storehttp", r.Method, r.Path)
		}
		if d.Paths[r.Path][strings.ToLower(r.Method)].Summary == "" {
			t.Errorf("%s %s is not in the document", r.Method, r.Path)
		}
	}
	for _, r := range gateway.Routes() {
		method, path, _ := strings.Cut(r, " ")
		if d.Paths[path][strings.ToLower(method)].Summary == "" && !(strings.HasSuffix(path, "/terminal") && method != "GET") {
			t.Errorf("%s is not in the document", r)
		}
	}
	ids := map[string]bool{}
	for path, methods := range d.Paths {
		for method, operation := range methods {
			if operation.Summary == "" || ids[operation.OperationID] {
				t.Errorf("%s %s: summary %q, id %q: want a summary and an id of its own", method, path, operation.Summary, operation.OperationID)
			}
			ids[operation.OperationID] = true
			concrete := strings.NewReplacer("{", "", "}", "").Replace(path)
			status, header, body := request(t, strings.ToUpper(method), url+concrete, "")
			if status == http.StatusMethodNotAllowed || body == `{"detail":"Not Found"}` || strings.Contains(body, "does not serve") ||
				strings.HasPrefix(header.Get("Content-Type"), "text/html") {
				t.Errorf("%s %s is described but not served: %d %.100s", method, path, status, body)
			}
		}
		if last := path[strings.LastIndex(path, "/")+1:]; last == "latest" || last == "search" || last == "terminal" || path == storehttp.Prefix+"/rollouts/explain" {
			continue // with other methods these words are ids, described as such
		}
		// Methods that are served but not described answer something else than 405.
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			if _, ok := methods[strings.ToLower(method)]; ok {
				continue
			}
			status, _, body := request(t, method, url+strings.NewReplacer("{", "", "}", "").Replace(path), "")
			if status != http.StatusMethodNotAllowed && status != http.StatusNotFound && path != "/metrics" && path != "/v1/prometheus" {
				t.Errorf("%s %s is served (%d %.100s) but not described", method, path, status, body)
			}
		}
	}
}

func TestOpenAPIReferences(t *testing.T) {
	t.Parallel()
	url, _ := start(t, daemon.Config{})
	text, d := document(t, url)
	used := map[string]bool{}
	for _, part := range strings.Split(text, `"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		used[name] = true
	}
	want := slices.Sorted(maps.Keys(d.Components.Schemas))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(used))); diff != "" {
		t.Errorf("schemas that are declared and those that are used differ (-declared +used):\n%s", diff)
	}
}
