package llmproxy_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/llmproxy"
	"agentlightning/semconv"
)

// A caller that leaves while its model is away for a moment is recorded too.
func TestCancelledWhileTheModelIsAway(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{ModelsGap: time.Minute}, answers(wholeAnswer))
	f.post(t, "/v1/chat/completions", ask) // so that the model has been there
	f.setModels(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+attempt+"/v1/chat/completions", strings.NewReader(ask))
	if err != nil {
		t.Fatal(err)
	}
	f.store.mu.Lock()
	before := f.store.listed
	f.store.mu.Unlock()
	go func() {
		waitFor(t, func() bool { f.store.mu.Lock(); defer f.store.mu.Unlock(); return f.store.listed > before })
		cancel()
	}()
	if resp, err := client(t).Do(req); err == nil {
		_ = resp.Body.Close()
		t.Error("the call was answered")
	}
	if s := f.store.span(t); problem(s) != semconv.ProblemCancelled {
		t.Errorf("problem is %q", problem(s))
	}
}

// unlisted is a source of models that cannot be read.
type unlisted struct{}

func (unlisted) Models(context.Context) ([]agl.Model, error) { return nil, errors.New("no list") }

// A call whose model cannot be looked up is a call all the same.
func TestUnreadableModelsAreRecorded(t *testing.T) {
	t.Parallel()
	f := &fixture{store: newFakeStore()}
	f.startWith(t, llmproxy.Config{Sink: f.store, Attempts: f.store, Models: unlisted{}})
	status, _, body := f.chat(t, ask)
	if message, _ := errorOf(t, body); status != http.StatusServiceUnavailable || !strings.Contains(message, "list of models") {
		t.Errorf("answer is %d %s", status, body)
	}
	if s := f.store.span(t); problem(s) != semconv.ProblemUpstreamError {
		t.Errorf("problem is %q", problem(s))
	}
}

// An error in a stream is the end of the answer to its caller, so the call is
// stored before it, and once.
func TestErrorInAStreamIsStoredBefore(t *testing.T) {
	t.Parallel()
	const failure = "data: {\"error\":{\"message\":\"the engine died\",\"type\":\"server_error\"}}\n\n"
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, head)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, failure+done)
	})
	storing, release := make(chan struct{}), make(chan struct{})
	f.store.onAdd = func([]agl.Span) error {
		close(storing)
		<-release
		return nil
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+attempt+"/v1/chat/completions", strings.NewReader(askStream))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if _, err := io.ReadFull(in, make([]byte, len(head))); err != nil {
		t.Fatal(err)
	}
	begun := make(chan string, 1)
	go func() {
		buf := make([]byte, 8)
		n, _ := io.ReadFull(in, buf)
		begun <- string(buf[:n])
	}()
	<-storing
	var seen string
	select {
	case seen = <-begun:
		t.Errorf("the caller saw %q before the call was stored", seen)
		close(release)
	case <-time.After(50 * time.Millisecond):
		close(release)
		seen = <-begun
	}
	if all, err := io.ReadAll(in); err != nil || seen+string(all) != failure+done {
		t.Errorf("the rest is %q, %v", seen+string(all), err)
	}
	if s := f.store.span(t); problem(s) != semconv.ProblemUpstreamError {
		t.Errorf("problem is %q", problem(s))
	}
}

// A limit of tokens counts streams that nobody records and whose callers do not
// ask for the counts; they see nothing of it.
func TestTokensOfStreamsThatAreNotRecorded(t *testing.T) {
	t.Parallel()
	const counts = "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":60,\"completion_tokens\":60,\"total_tokens\":120}}\n\n"
	f := setup(t, llmproxy.Config{UpstreamQueueTimeout: -1}, func(w http.ResponseWriter, r *http.Request) {
		options, _ := readBody(t, r)["stream_options"].(map[string]any)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, head+"data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n")
		if options["include_usage"] == true {
			_, _ = io.WriteString(w, counts)
		}
		_, _ = io.WriteString(w, done)
	})
	f.store.models[0].TPM = 100
	status, _, body := f.post(t, "/v1/chat/completions", askStream)
	if status != http.StatusOK || strings.Contains(body, "usage") || !strings.HasSuffix(body, done) {
		t.Errorf("the first call is answered %d %q", status, body)
	}
	status, _, body = f.post(t, "/v1/chat/completions", askStream)
	if status != http.StatusTooManyRequests || !strings.Contains(body, "tpm=100") {
		t.Errorf("the call after 120 tokens is answered %d %q, want 429 because of tpm=100", status, body)
	}
}
