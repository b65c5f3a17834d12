package dashboard_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"agentlightning/dashboard"
)

func Example() {
	server := httptest.NewServer(dashboard.Handler())
	defer server.Close()
	res, err := server.Client().Get(server.URL + "/runs/any")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close()
	fmt.Println(res.Status, res.Header.Get("Content-Type"))
	// Output: 200 OK text/html; charset=utf-8
}

func request(t *testing.T, method, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	dashboard.Handler().ServeHTTP(rec, r)
	return rec
}

func TestHandler(t *testing.T) {
	t.Parallel()
	tests := []struct {
		method, path string
		status       int
		contains     string
	}{
		{"GET", "/", 200, "<title>Agent Lightning</title>"},
		{"GET", "/rollouts/ro-1", 200, "<title>Agent Lightning</title>"},
		{"GET", "/../dashboard.go", 200, "<title>Agent Lightning</title>"},
		{"GET", "/assets/nothing.js", 404, "Not Found"},
		{"GET", "/rollouts/assets/nothing.js", 404, "Not Found"},
		{"HEAD", "/", 200, ""},
		{"POST", "/", 405, "Method Not Allowed"},
	}
	for _, tt := range tests {
		rec := request(t, tt.method, tt.path)
		if rec.Code != tt.status || !strings.Contains(rec.Body.String(), tt.contains) {
			t.Errorf("%s %s = %d %.80q, want %d with %q", tt.method, tt.path, rec.Code, rec.Body, tt.status, tt.contains)
		}
	}
}

func TestPageLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	rec := request(t, "GET", "/")
	for _, mark := range []string{`src="http`, `href="http`, "@import", `"//`} {
		if strings.Contains(rec.Body.String(), mark) {
			t.Errorf("the page contains %q: it must work without a network", mark)
		}
	}
	if policy := rec.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'self'") {
		t.Errorf("Content-Security-Policy = %q, want one that keeps the browser on this server", policy)
	}
}

// TestAssets follows the page to what it loads, as a browser does, and adds up
// what comes before the first page is there.
func TestAssets(t *testing.T) {
	t.Parallel()
	index := request(t, "GET", "/").Body.String()
	assets := regexp.MustCompile(`\./(assets/[^"]+)`).FindAllStringSubmatch(index, -1)
	if len(assets) == 0 {
		t.Skip("built without the interface")
	}
	for _, m := range assets {
		plain := request(t, "GET", "/"+m[1])
		if plain.Code != http.StatusOK || !strings.Contains(plain.Header().Get("Cache-Control"), "immutable") {
			t.Fatalf("GET /%s = %d with Cache-Control %q, want 200 and immutable", m[1], plain.Code, plain.Header().Get("Cache-Control"))
		}
		packed := request(t, "GET", "/"+m[1], "Accept-Encoding", "gzip")
		if packed.Header().Get("Content-Encoding") != "gzip" {
			t.Fatalf("GET /%s: not packed", m[1])
		}
		z, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, plain.Body.Bytes()) {
			t.Errorf("GET /%s: packed and plain differ (%v)", m[1], err)
		}
		again := request(t, "GET", "/"+m[1], "If-None-Match", plain.Header().Get("Etag"))
		if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("GET /%s again = %d with %d bytes, want 304 and none", m[1], again.Code, again.Body.Len())
		}
	}
}

func TestPagesFurtherDownLoadTheSameFiles(t *testing.T) {
	t.Parallel()
	for path, base := range map[string]string{"/": "./", "/rollouts": "./", "/rollouts/": "../", "/rollouts/ro-1": "../", "/a/b/c": "../../"} {
		if body := request(t, "GET", path).Body.String(); strings.Contains(body, "<base") && !strings.Contains(body, `<base href="`+base+`">`) {
			t.Errorf("GET %s has another base than %q", path, base)
		}
	}
}
