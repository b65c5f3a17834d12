package gateway_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/gateway"
	"agentlightning/internal/daemon"
)

// recording is what a server of agentlightning 1.0.2 answered, see
// testdata/record.py.
type recording struct {
	Key      string
	Requests []struct {
		Name, Method, Path string
		Body               *string
		Headers            map[string]string
		Answer             struct {
			Status  int
			Headers map[string]string
			Body    string
		}
		Asked []asked
	}
}

// scripted answers as the model server of record.py does.
func scripted(w http.ResponseWriter, r *http.Request) {
	const good = `{"id": "c-1", "prompt_token_ids": [1, 2], "choices": [{"index": 0, "message": {"role": "assistant", "content": "hé"},` +
		` "finish_reason": "stop", "token_ids": [3],ROUTES "logprobs": {"content": [{"token": "t", "logprob": -0.5}]}}],` +
		` "usage": {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}, "big": 12345678901234567890, "f": 1.0}`
	w.Header().Set("X-From-Model", "1")
	answer := func(status int, media, body string) {
		w.Header().Set("Content-Type", media)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
	switch strings.Split(r.URL.Path, "/")[1] {
	case "ok":
		answer(http.StatusOK, "application/json", strings.ReplaceAll(good, "ROUTES", ""))
	case "routed":
		answer(http.StatusOK, "application/json; charset=utf-8", strings.ReplaceAll(good, "ROUTES", ` "routed_experts": "QUJD",`))
	case "text":
		answer(http.StatusOK, "text/plain", "hello")
	case "bad":
		answer(http.StatusBadRequest, "application/json", `{"error": {"message": "maximum context length is 9", "code": 400}}`)
	case "gone":
		answer(http.StatusNotFound, "text/html", "<html>")
	}
}

// deliberate are requests to which we answer differently, and why.
var deliberate = map[string]string{
	"key comes before the body": "the token is looked at first, always",
	"no content type":           "the body is JSON whatever its type says",
	"not JSON":                  "the place and the words of a syntax error are ours",
	"wrong method of models":    "PUT replaces models at once",
	"terminal, data ids":        "an object or a list as the id of a sample is written as JSON",
}

// varying is what differs from one run to the next.
var varying = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`"(created_at|updated_at|timestamp|latency_ms)":[0-9.e+-]+`), `"$1":0`},
	{regexp.MustCompile(`"rollout_id":"[0-9a-f]{32}"`), `"rollout_id":"FRESH"`},
}

// TestRecorded plays every recorded request and compares status, headers and
// bodies, to the byte.
func TestRecorded(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "recorded.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	model := newUpstream(t, scripted)
	calls := gateway.DefaultCalls()
	calls.Model, calls.RoutedExperts = "test-model", true
	s := serve(t, daemon.Config{AuthToken: r.Key, Calls: &calls})
	same := func(text string) string {
		text = strings.ReplaceAll(text, model.url, "UPSTREAM")
		for _, v := range varying {
			text = v.what.ReplaceAllString(text, v.as)
		}
		return text
	}
	for _, req := range r.Requests {
		body, header := "", req.Headers
		if req.Body != nil {
			body = strings.ReplaceAll(*req.Body, "UPSTREAM", model.url)
		}
		status, got, answer := s.send(t, req.Method, req.Path, body, header)
		asked := model.take()
		if reason := deliberate[req.Name]; reason != "" {
			continue
		}
		if status != req.Answer.Status {
			t.Errorf("%s: %s %s = %d %s, want %d %s", req.Name, req.Method, req.Path, status, answer, req.Answer.Status, req.Answer.Body)
			continue
		}
		if diff := cmp.Diff(same(req.Answer.Body), same(answer)); diff != "" {
			t.Errorf("%s: %s %s (-recorded +ours):\n%s", req.Name, req.Method, req.Path, diff)
		}
		for name, want := range req.Answer.Headers {
			have := got.Get(name)
			if ok := have == want || name == "allow" && strings.Contains(have, want); !ok {
				t.Errorf("%s: header %s is %q, want %q", req.Name, name, have, want)
			}
		}
		if diff := cmp.Diff(req.Asked, asked); diff != "" {
			t.Errorf("%s: asked of the model (-recorded +ours):\n%s", req.Name, diff)
		}
	}
}
