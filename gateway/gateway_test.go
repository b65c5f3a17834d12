package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	agl "agentlightning"
	"agentlightning/gateway"
)

// models is the part of a store that the handler calls.
type models struct {
	mu   sync.Mutex
	list []agl.Model
}

func (m *models) PutModels(_ context.Context, list []agl.Model) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, list...)
	return nil
}

func (m *models) ReplaceModels(_ context.Context, list []agl.Model) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = list
	return nil
}

func (m *models) DeleteModels(_ context.Context, name string, _ ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var kept []agl.Model
	for _, one := range m.list {
		if name != "" && one.Name != name {
			kept = append(kept, one)
		}
	}
	m.list = kept
	return nil
}

func (m *models) Models(context.Context) ([]agl.Model, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]agl.Model(nil), m.list...), nil
}

func Example() {
	server := httptest.NewServer(gateway.NewHandler(&models{}, nil))
	defer server.Close()

	client := &gateway.Client{BaseURL: server.URL}
	err := client.PutModels(context.Background(), agl.Model{Name: "policy", Endpoint: "http://127.0.0.1:8000/v1"})
	fmt.Println(err)
	// Output: <nil>
}

func TestModels(t *testing.T) {
	t.Parallel()
	kept := &models{}
	h := gateway.NewHandler(kept, nil)
	tests := []struct {
		name, method, path, body string
		status                   int
		want                     string
	}{
		{
			"put", "POST", "/api/models", `[{"model":"a","endpoint":"http://x/v1","api_key":"secret"}]`, 201,
			`[{"model":"a","endpoint":"http://x/v1","version":0}]`,
		},
		{"list hides keys", "GET", "/api/models", ``, 200, `[{"model":"a","endpoint":"http://x/v1","version":0}]`},
		{
			"member missing", "POST", "/api/models", `[{"model":"a"}]`, 422,
			`{"detail":[{"type":"missing","loc":["body",0,"endpoint"],"msg":"Field required","input":{"model":"a"}}]}`,
		},
		{
			"relative endpoint", "POST", "/api/models", `[{"model":"a","endpoint":"x:1"}]`, 422,
			`{"detail":[{"type":"url_parsing","loc":["body",0,"endpoint"],"msg":"Input should be an absolute http or https URL","input":"x:1"}]}`,
		},
		{
			"not a list", "POST", "/api/models", `{}`, 422,
			`{"detail":[{"type":"list_type","loc":["body"],"msg":"Input should be a valid list","input":{}}]}`,
		},
		{
			"not JSON", "POST", "/api/models", `[`, 422,
			`{"detail":[{"type":"json_invalid","loc":["body",0],"msg":"JSON decode error","input":{}}]}`,
		},
		{"other name stays", "DELETE", "/api/models?model=b", ``, 200, `{"status":"ok"}`},
		{"still there", "GET", "/api/models", ``, 200, `[{"model":"a","endpoint":"http://x/v1","version":0}]`},
		{"delete", "DELETE", "/api/models", ``, 200, `{"status":"ok"}`},
		{"gone", "GET", "/api/models", ``, 200, `[]`},
		{"health", "GET", "/healthz", ``, 200, `{"status":"ok"}`},
	}
	for _, tt := range tests {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, strings.NewReader(tt.body)))
		if rec.Code != tt.status || strings.TrimSpace(rec.Body.String()) != tt.want {
			t.Errorf("%s: %s %s = %d %s, want %d %s", tt.name, tt.method, tt.path, rec.Code, rec.Body, tt.status, tt.want)
		}
	}
}

func TestClientReportsRefusal(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer t" {
			t.Errorf("Authorization = %q, want %q", got, "Bearer t")
		}
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer server.Close()
	client := &gateway.Client{BaseURL: server.URL + "/", Token: "t"}
	if err := client.DeleteModels(t.Context(), "a b"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("DeleteModels = %v, want an error with the status", err)
	}
}
