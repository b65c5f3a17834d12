package storehttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// endless is a store whose list of spans has n items and may end in an error.
type endless struct {
	store.Store
	n   int
	err error
}

func (e endless) StreamSpans(_ context.Context, _ store.SpanQuery, f func(store.SpanJSON) error) (int, error) {
	item := store.SpanJSON(`{"name":"` + strings.Repeat("x", 1000) + `"}`)
	for range e.n {
		if err := f(item); err != nil {
			return 0, err
		}
	}
	return e.n, e.err
}

func (e endless) StreamRollouts(context.Context, store.RolloutQuery, func(*agl.AttemptedRollout) error) (int, error) {
	if e.n < 0 {
		panic("burst")
	}
	return 0, e.err
}

// listed asks a store for a list and returns status, length as announced, body,
// and how reading it ended.
func listed(t *testing.T, s store.Store, path string) (status int, length int64, body []byte, err error) {
	t.Helper()
	server := httptest.NewServer(storehttp.NewHandler(s, storehttp.Config{}))
	t.Cleanup(server.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if kind := resp.Header.Get("Content-Type"); kind != "application/json" {
		t.Errorf("the answer is %s", kind)
	}
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.ContentLength, body, err
}

// TestLongList checks that a list that is long is sent in parts and a short one
// in one piece.
func TestLongList(t *testing.T) {
	t.Parallel()
	inMemory := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = inMemory.Close() })
	for _, n := range []int{0, 1, 5000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			status, length, body, err := listed(t, endless{inMemory, n, nil}, "/v1/agl/spans?rollout_id=ro&limit=-1")
			var page struct {
				Items                []json.RawMessage
				Limit, Offset, Total int
			}
			if err == nil {
				err = json.Unmarshal(body, &page)
			}
			if err != nil || status != http.StatusOK {
				t.Fatalf("status %d, %v, %.200s", status, err, body)
			}
			if len(page.Items) != n || page.Total != n || page.Limit != -1 || page.Offset != 0 {
				t.Errorf("%d items, limit %d, offset %d, total %d, want %d items", len(page.Items), page.Limit, page.Offset, page.Total, n)
			}
			if whole := length >= 0; whole != (n < 100) {
				t.Errorf("the answer has a length: %t", whole)
			}
		})
	}
}

// TestListBreaksOff checks that nobody takes the beginning of a list for all of it.
func TestListBreaksOff(t *testing.T) {
	t.Parallel()
	inMemory := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = inMemory.Close() })
	broken := errors.New("broken")
	if status, _, body, err := listed(t, endless{inMemory, 5000, broken}, "/v1/agl/spans?rollout_id=ro&limit=-1"); err == nil {
		t.Errorf("status %d with %d bytes, want the answer to break off", status, len(body))
	}
	for _, path := range []string{"/v1/agl/spans?rollout_id=ro&limit=-1", "/v1/agl/rollouts?limit=-1"} {
		status, _, body, err := listed(t, endless{inMemory, 3, broken}, path)
		if err != nil || status != http.StatusInternalServerError || !strings.Contains(string(body), "internal error") {
			t.Errorf("%s: status %d, %v, %s, want 500", path, status, err, body)
		}
	}
	if status, _, body, err := listed(t, endless{inMemory, -1, nil}, "/v1/agl/rollouts?limit=-1"); err != nil || status != http.StatusInternalServerError {
		t.Errorf("a panic: status %d, %v, %s, want 500", status, err, body)
	}
	closed := engine.New(memory.New(), engine.Config{})
	_ = closed.Close()
	if status, _, _, _ := listed(t, closed, "/v1/agl/rollouts?limit=-1"); status != http.StatusServiceUnavailable {
		t.Errorf("status %d of a closed store, want 503", status)
	}
}
