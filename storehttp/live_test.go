package storehttp_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// livePython starts a server of the Python implementation and returns its
// address. AGL_TEST_PYTHON names an interpreter that has it;
// testdata/python_store.py says what to install.
func livePython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("AGL_TEST_PYTHON")
	if python == "" {
		t.Skip("AGL_TEST_PYTHON is not set")
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/python_store.py")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	port, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("%s testdata/python_store.py: %v", python, err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://127.0.0.1:"+strings.TrimSpace(port)+"/new?debounce=0", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("a new server: %d, %v", resp.StatusCode, err)
	}
	return "http://127.0.0.1:" + string(body)
}

// TestLivePython runs a rollout through a server of the Python implementation.
func TestLivePython(t *testing.T) {
	c := newClient(t, livePython(t), storehttp.WithPollInterval(20*time.Millisecond))
	ctx := t.Context()
	if _, err := c.Rollout(ctx, "ro-unknown"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("unknown rollout: %v, want %v", err, store.ErrNotFound)
	}
	queued := make(chan []agl.Rollout, 1)
	go func() {
		<-time.After(100 * time.Millisecond) // by then the dequeue polls
		made, err := c.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: []byte(`{"q":1.0}`), Mode: agl.ModeTrain}})
		if err != nil {
			t.Error(err)
		}
		queued <- made
	}()
	got := dequeue(t, c, 10*time.Second)
	if made := <-queued; len(got) != 1 || got[0].RolloutID != made[0].RolloutID || string(got[0].Input) != `{"q":1.0}` {
		t.Fatalf("dequeue = %+v, want %+v", got, made)
	}
	a := got[0].Attempt
	at := store.Attempted{RolloutID: a.RolloutID, AttemptID: a.AttemptID}
	ids, err := c.NextSequenceIDs(ctx, []store.Attempted{at, at, at})
	if err != nil || fmt.Sprint(ids) != "[1 2 3]" {
		t.Errorf("sequence ids = %v, %v, want [1 2 3]", ids, err)
	}
	core := agl.SpanCore{
		Name: "step", Status: agl.TraceStatus{StatusCode: agl.StatusOK},
		Attributes: agl.Attributes{{Key: "f", Value: 1.0}, {Key: "ids", Value: []int64{1, 2}}},
	}
	first, stray := core.Span(a.RolloutID, a.AttemptID, 1, 1.5), core.Span("ro-unknown", "at-unknown", 1, 1.5)
	added, err := c.AddSpans(ctx, []agl.Span{first, first, stray})
	if err != nil || !added[0].Stored || added[1].Stored || !errors.Is(added[2].Err, store.ErrNotFound) {
		t.Errorf("AddSpans = %+v, %v, want one stored, one known already, one refused", added, err)
	}
	page, err := c.QuerySpans(ctx, store.SpanQuery{RolloutID: a.RolloutID, AttemptID: new(agl.LatestAttempt)})
	if err != nil || len(page.Items) != 1 || string(page.Items[0].AppendJSON(nil)) != string(first.AppendJSON(nil)) {
		t.Errorf("spans = %+v, %v, want %s", page.Items, err, first.AppendJSON(nil))
	}
	if _, err := c.UpdateAttempt(ctx, a.RolloutID, a.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}); err != nil {
		t.Fatal(err)
	}
	done, err := c.WaitForRollouts(ctx, []string{a.RolloutID}, time.Second)
	if err != nil || len(done) != 1 || done[0].Status != agl.RolloutSucceeded {
		t.Errorf("WaitForRollouts = %+v, %v, want the rollout succeeded", done, err)
	}
}
