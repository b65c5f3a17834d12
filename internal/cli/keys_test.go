package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"agentlightning/semconv"
	"agentlightning/store"
)

// TestNoKeyIsStored looks for every key that a server has seen in the files that
// it leaves behind: those of callers, and those of backends however they were
// given.
func TestNoKeyIsStored(t *testing.T) {
	const flagged, added, callers = "sk-flagged-0123456789", "sk-added-0123456789", "sk-callers-0123456789"
	t.Setenv("FLAGGED_KEY", flagged)
	t.Setenv("ADDED_KEY", added)
	var seen atomic.Value
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		seen.Store(r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusUnauthorized) // and repeats it, as some do
		fmt.Fprintf(w, `{"error":{"message":"%s is not %s"}}`, r.Header.Get("Authorization"), callers)
	}))
	defer backend.Close()

	dir := t.TempDir()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	defer stop()
	var out, errs syncBuffer
	done := startServer(ctx, []string{
		"--port", "0", "--db", "sqlite:" + filepath.Join(dir, "agl.db"), "--litellm-spans",
		"--model", "flagged=" + backend.URL + "/v1,key_env=FLAGGED_KEY",
	}, &out, &errs)
	url := awaitURL(t, done, &out, &errs)
	if status, _, stderr := run(t, "models", "add", "added="+backend.URL+"/v1,key_env=ADDED_KEY", "--server", url); status != 0 {
		t.Fatal(stderr)
	}
	client := connect(t, url)
	r, err := client.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: json.RawMessage(`1`)}})
	if err != nil {
		t.Fatal(err)
	}
	for model, key := range map[string]string{"flagged": flagged, "added": added} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			url+"/rollout/"+r.RolloutID+"/attempt/"+r.Attempt.AttemptID+"/v1/chat/completions", strings.NewReader(`{"model":"`+model+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+callers)
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if seen.Load() != "Bearer "+key || !bytes.Contains(answer, []byte(key)) {
			t.Errorf("the backend was sent %v and the caller %s", seen.Load(), answer)
		}
	}
	page, err := client.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID})
	if err != nil || len(page.Items) != 2 {
		t.Fatalf("%d spans stored, %v, want one a call", len(page.Items), err)
	}
	if text, _ := page.Items[0].Attributes.String(semconv.CallMessage); !strings.Contains(text, "[key]") {
		t.Errorf("the span says %q", text)
	}
	_ = client.Close()
	search(t, dir, flagged, added, callers) // the write-ahead log is there too
	stop()
	if status := <-done; status != 0 {
		t.Errorf("serve ended with %d: %s", status, errs.String())
	}
	search(t, dir, flagged, added, callers)
	for _, key := range []string{flagged, added, callers} {
		if strings.Contains(out.String()+errs.String(), key) {
			t.Errorf("the log has key %s", key)
		}
	}
}

func search(t *testing.T, dir string, keys ...string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if bytes.Contains(content, []byte(key)) {
				t.Errorf("%s has key %s", filepath.Base(file), key)
			}
		}
	}
}
