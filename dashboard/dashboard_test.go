package dashboard_test

import (
	"fmt"
	"net/http/httptest"
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

func TestHandler(t *testing.T) {
	t.Parallel()
	tests := []struct {
		method, path string
		status       int
		contains     string
	}{
		{"GET", "/", 200, "<title>Agent Lightning</title>"},
		{"GET", "/rollouts/ro-1", 200, "<title>Agent Lightning</title>"},
		{"GET", "/../dashboard.go", 400, "invalid URL path"},
		{"POST", "/", 405, "Method Not Allowed"},
	}
	for _, tt := range tests {
		rec := httptest.NewRecorder()
		dashboard.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, nil))
		if rec.Code != tt.status || !strings.Contains(rec.Body.String(), tt.contains) {
			t.Errorf("%s %s = %d %.80q, want %d with %q", tt.method, tt.path, rec.Code, rec.Body, tt.status, tt.contains)
		}
	}
}

func TestPageLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	dashboard.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	for _, mark := range []string{`src="http`, `href="http`, "@import", "//cdn"} {
		if strings.Contains(rec.Body.String(), mark) {
			t.Errorf("the page contains %q: it must work without a network", mark)
		}
	}
}
