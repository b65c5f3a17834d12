package llmproxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/llmproxy"
	"agentlightning/semconv"
)

const (
	askStream = `{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}`
	askUsage  = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hi"}]}`
)

// The events of a stream, with what a careful reader has to survive.
var (
	head = ": welcome\r\n\r\n" +
		"data: {\"id\":\"c1\",\"model\":\"served\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"prompt_token_ids\":[1,2],\"x_unknown\":{\"a\": 1.0}}\n\n" +
		"event: message\ndata: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Grü\"},\"token_ids\":[7],\"logprobs\":{\"content\":[{\"token\":\"Grü\",\"logprob\":-0.5}]}}]}\r\n\r\n" +
		"data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ße👋\"},\ndata: \"token_ids\":[8,9],\"logprobs\":{\"content\":[{\"token\":\"ße\",\"logprob\":-0.25},{\"token\":\"👋\",\"logprob\":-1}]}}]}\n\n"
	finish     = "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\r\r"
	usageChunk = "data: {\"id\":\"c1\",\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3,\"total_tokens\":5}}\n\n"
	done       = "data: [DONE]\n\n"
)

// streams serves a stream, in pieces of the given size.
func streams(stream string, size int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for rest := stream; len(rest) > 0; {
			n := min(size, len(rest))
			_, _ = io.WriteString(w, rest[:n])
			rest = rest[n:]
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func TestStreamPassesThrough(t *testing.T) {
	t.Parallel()
	whole := head + finish + usageChunk + done
	tests := []struct{ name, ask, want string }{
		{"usage hidden", askStream, head + finish + done},
		{"usage wanted", askUsage, whole},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 2, 7, 64, 1 << 16} {
			t.Run(fmt.Sprintf("%s in pieces of %d", tt.name, size), func(t *testing.T) {
				t.Parallel()
				f := setup(t, llmproxy.Config{}, streams(whole, size))
				status, header, body := f.chat(t, tt.ask)
				if diff := cmp.Diff(tt.want, body); status != http.StatusOK || diff != "" {
					t.Errorf("status %d, stream (-want +got):\n%s", status, diff)
				}
				if got := header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
					t.Errorf("content type is %q", got)
				}
				s := f.store.span(t)
				if problem(s) != "" || s.Status.StatusCode != agl.StatusOK {
					t.Errorf("problem is %q, status %s", problem(s), s.Status.StatusCode)
				}
				for key, want := range map[string]any{
					"gen_ai.response.id":                "c1",
					"gen_ai.completion.0.content":       "Grüße👋",
					"gen_ai.completion.0.role":          "assistant",
					"gen_ai.completion.0.finish_reason": "stop",
					"prompt_token_ids":                  []int64{1, 2},
					"response_token_ids":                []int64{7, 8, 9},
					"response_logprobs":                 []float64{-0.5, -0.25, -1},
					"logprobs.content":                  `[{"token":"Grü","logprob":-0.5},{"token":"ße","logprob":-0.25},{"token":"👋","logprob":-1}]`,
					"gen_ai.usage.output_tokens":        int64(3),
					"gen_ai.request.streaming":          true,
				} {
					got, _ := s.Attributes.Get(key)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s (-want +got):\n%s", key, diff)
					}
				}
				if v, ok := s.Attributes.Float(semconv.GenAIFirstToken); !ok || v < 0 {
					t.Errorf("time to first token is %v", v)
				}
			})
		}
	}
}

func TestStreamOfToolCallsAndChoices(t *testing.T) {
	t.Parallel()
	chunk := func(choice string) string { return `data: {"id":"c","choices":[` + choice + `]}` + "\n\n" }
	stream := chunk(`{"index":1,"delta":{"role":"assistant","content":"B"},"token_ids":[21]}`) +
		chunk(`{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"t0","type":"function","function":{"name":"add","arguments":""}}]},"token_ids":[11]}`) +
		chunk(`{"index":0,"delta":{"tool_calls":[{"index":1,"id":"t1","function":{"name":"mul","arguments":"{\"x"}}]},"token_ids":[12]}`) +
		chunk(`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}},{"index":0,"function":{"arguments":"1}"}}]},"token_ids":[13,14]}`) +
		chunk(`{"index":0,"delta":{},"finish_reason":"tool_calls"}`) +
		chunk(`{"index":1,"delta":{},"finish_reason":"length"}`) +
		`data: {"id":"c","choices":[],"prompt_token_ids":[1],"usage":{"prompt_tokens":1,"completion_tokens":5,"total_tokens":6}}` + "\n\n" + done
	f := setup(t, llmproxy.Config{}, streams(stream, 50))
	f.chat(t, askUsage)
	s := f.store.span(t)
	if p := problem(s); p != "" {
		t.Errorf("problem is %q", p)
	}
	for key, want := range map[string]any{
		"gen_ai.completion.0.tool_calls.0.id":        "t0",
		"gen_ai.completion.0.tool_calls.0.name":      "add",
		"gen_ai.completion.0.tool_calls.0.arguments": `{"a":1}`,
		"gen_ai.completion.0.tool_calls.1.name":      "mul",
		"gen_ai.completion.0.tool_calls.1.arguments": `{"x`,
		"gen_ai.completion.0.finish_reason":          "tool_calls",
		"gen_ai.completion.0.content":                nil,
		"gen_ai.completion.1.content":                "B",
		"gen_ai.response.finish_reasons":             []string{"tool_calls", "length"},
		"response_token_ids":                         []int64{11, 12, 13, 14},
	} {
		got, _ := s.Attributes.Get(key)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
}

// lockstep serves the pieces of a stream, each when it is asked for.
func lockstep(pieces []string, next <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, piece := range pieces {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func TestStreamIsNotHeldBack(t *testing.T) {
	t.Parallel()
	for _, path := range []string{attempt + "/v1/chat/completions", "/v1/chat/completions"} {
		next := make(chan struct{}, 1)
		pieces := strings.SplitAfter(strings.ReplaceAll(head, "\r", "")+strings.ReplaceAll(finish, "\r", "\n"), "\n\n")
		pieces = append(pieces[:len(pieces)-1], done)
		f := setup(t, llmproxy.Config{}, lockstep(pieces, next))
		next <- struct{}{}
		resp, err := client(t).Post(f.url+path, "application/json", strings.NewReader(askStream))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for i, piece := range pieces {
			got := make([]byte, len(piece))
			// The backend sends no more until this much has come through.
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != piece {
				t.Fatalf("piece %d is %q (%v), want %q", i, got, err, piece)
			}
			if i < len(pieces)-1 {
				next <- struct{}{}
			}
		}
	}
}

func TestStreamIsStoredBeforeItsEnd(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, streams(head+finish+usageChunk+done, 1<<16))
	storing, goOn := make(chan struct{}), make(chan struct{})
	f.store.onAdd = func([]agl.Span) error {
		close(storing)
		<-goOn
		return nil
	}
	resp, err := client(t).Post(f.url+attempt+"/v1/chat/completions", "application/json", strings.NewReader(askStream))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	<-storing
	close(goOn)
	for line := range lines {
		if line == "data: [DONE]" && len(f.store.stored()) != 1 {
			t.Error("the stream ended before the span was stored")
		}
	}
}

func TestCancelledStream(t *testing.T) {
	t.Parallel()
	cancelled := make(chan time.Time, 1)
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, head)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		cancelled <- time.Now()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, f.url+attempt+"/v1/chat/completions", strings.NewReader(askStream))
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, len(head))); err != nil {
		t.Fatal(err)
	}
	cancel()
	start := time.Now()
	s := f.store.span(t)
	if at := <-cancelled; at.Sub(start) > 2*time.Second {
		t.Errorf("the backend saw the end after %s, want at once", at.Sub(start))
	}
	if problem(s) != semconv.ProblemCancelled || s.Status.StatusCode != agl.StatusError {
		t.Errorf("problem is %q, status %s", problem(s), s.Status.StatusCode)
	}
	if diff := cmp.Diff([]int64{7, 8, 9}, ints(s, semconv.ResponseTokenIDs)); diff != "" {
		t.Errorf("ids that arrived before (-want +got):\n%s", diff)
	}
}

// A caller that hangs up ends the call of the backend within a tenth of a second,
// before and amid an answer. A busy machine is given three tries.
func TestHangUpIsPassedOn(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	called, ended := make(chan struct{}, 1), make(chan time.Time, 1)
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		if readBody(t, r)["stream"] == true {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, head)
			_ = http.NewResponseController(w).Flush()
		}
		called <- struct{}{}
		<-r.Context().Done()
		ended <- time.Now()
	})
	for _, body := range []string{ask, askStream} {
		var took time.Duration
		for try := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, f.url+attempt+"/v1/chat/completions", strings.NewReader(body))
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				if resp, err := client(t).Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			<-called
			hungUp := time.Now()
			cancel()
			took = (<-ended).Sub(hungUp)
			<-gone
			if took <= limit {
				break
			}
			t.Logf("try %d: the backend saw the end after %s", try+1, took)
		}
		if took > limit {
			t.Errorf("%s: the backend saw the end after %s, want within %s", body, took, limit)
		}
	}
}

// A caller may stop reading at the finish reason: it has the whole answer then.
func TestCallerLeavesAfterTheFinishReason(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		streams(head+finish, 64)(w, r)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, f.url+attempt+"/v1/chat/completions", strings.NewReader(askStream))
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, len(head+finish))); err != nil {
		t.Fatal(err)
	}
	cancel()
	if s := f.store.span(t); problem(s) != "" || len(ints(s, semconv.ResponseTokenIDs)) != 3 {
		t.Errorf("problem is %q, ids %v", problem(s), ints(s, semconv.ResponseTokenIDs))
	}
}

func TestCancelledBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	called := make(chan struct{})
	f := setup(t, llmproxy.Config{}, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(called)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-called
		cancel()
	}()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, f.url+attempt+"/v1/chat/completions", strings.NewReader(ask))
	if resp, err := client(t).Do(req); err == nil {
		_ = resp.Body.Close()
		t.Error("the call was answered")
	}
	if s := f.store.span(t); problem(s) != semconv.ProblemCancelled {
		t.Errorf("problem is %q", problem(s))
	}
}

// cutAfter serves the beginning of a stream and closes the connection.
func cutAfter(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	}
}

func TestStreamThatEndsEarly(t *testing.T) {
	t.Parallel()
	const failed = `data: {"error":{"message":"out of memory","type":"x"}}` + "\n\n"
	tests := []struct {
		name    string
		backend http.HandlerFunc
		want    string // begins the stream
		rest    bool   // whether something may follow
		problem string
	}{
		{"without the end", streams(head, 99), head, false, semconv.ProblemTruncated},
		{"done without finish reason", streams(head+done, 99), head + done, false, semconv.ProblemTruncated},
		{"end without done", streams(head+finish+usageChunk, 99), head + finish, false, ""},
		{"done without blank line", streams(head+finish+usageChunk+"data: [DONE]", 99), head + finish + "data: [DONE]", false, ""},
		{"inside an event", streams(head+`data: {"id":`, 99), head + `data: {"id":`, false, semconv.ProblemTruncated},
		{"connection cut", cutAfter(head), head + `data: {"error":`, true, semconv.ProblemTruncated},
		{"connection cut inside an event", cutAfter(head + `data: {"id":`), head + `data: {"error":`, true, semconv.ProblemTruncated},
		{"error event", streams(head+failed, 99), head + failed, false, semconv.ProblemUpstreamError},
		{"nothing at all", streams("", 1), "", false, semconv.ProblemTruncated},
		{"not JSON", streams("data: x\n\n"+head+finish+done, 99), "data: x\n\n" + head + finish + done, false, semconv.ProblemUpstreamError},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, llmproxy.Config{}, tt.backend)
			_, _, body := f.chat(t, askStream)
			if !strings.HasPrefix(body, tt.want) || !tt.rest && body != tt.want {
				t.Errorf("stream (-want +got):\n%s", cmp.Diff(tt.want, body))
			}
			s := f.store.span(t)
			if problem(s) != tt.problem {
				t.Errorf("problem is %q, want %q", problem(s), tt.problem)
			}
			if ids := ints(s, semconv.ResponseTokenIDs); len(ids) != 3 && tt.want != "" {
				t.Errorf("ids that arrived: %v", ids)
			}
		})
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	silent := func(before string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if before != "" {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, before)
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		}
	}
	t.Run("first byte", func(t *testing.T) {
		t.Parallel()
		f := setup(t, llmproxy.Config{UpstreamTimeout: 30 * time.Millisecond}, silent(""))
		status, _, body := f.chat(t, ask)
		message, code := errorOf(t, body)
		if status != http.StatusGatewayTimeout || code != "backend_timeout" || !strings.Contains(message, "--upstream-timeout") ||
			!strings.Contains(message, "30ms") || !strings.Contains(message, f.store.models[0].Endpoint) {
			t.Errorf("answer is %d %s", status, body)
		}
		if s := f.store.span(t); problem(s) != semconv.ProblemUpstreamTimeout {
			t.Errorf("problem is %q", problem(s))
		}
	})
	t.Run("first byte of a stream", func(t *testing.T) {
		t.Parallel()
		f := setup(t, llmproxy.Config{UpstreamTimeout: 30 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		status, header, body := f.chat(t, askStream)
		if message, _ := errorOf(t, body); status != http.StatusGatewayTimeout || header.Get("Content-Type") != "application/json" || !strings.Contains(message, "--upstream-timeout") {
			t.Errorf("answer is %d %s", status, body)
		}
		if s := f.store.span(t); problem(s) != semconv.ProblemUpstreamTimeout {
			t.Errorf("problem is %q", problem(s))
		}
	})
	t.Run("between reads", func(t *testing.T) {
		t.Parallel()
		f := setup(t, llmproxy.Config{UpstreamIdleTimeout: 100 * time.Millisecond}, silent(head))
		_, _, body := f.chat(t, askStream)
		event, ok := strings.CutPrefix(body, head+"data: ")
		if !ok {
			t.Fatalf("stream is %q", body)
		}
		if message, _ := errorOf(t, event); !strings.Contains(message, "--upstream-idle-timeout") {
			t.Errorf("message is %q", message)
		}
		if s := f.store.span(t); problem(s) != semconv.ProblemUpstreamTimeout {
			t.Errorf("problem is %q", problem(s))
		}
	})
	t.Run("a slow caller is not an idle backend", func(t *testing.T) {
		t.Parallel()
		// More than the buffers between caller and backend hold, so that the
		// proxy is stuck in writing for longer than the limit.
		big := "data: {\"choices\":[],\"pad\":\"" + strings.Repeat("x", 1<<16) + "\"}\n\n"
		f := setup(t, llmproxy.Config{UpstreamIdleTimeout: time.Second}, streams(strings.Repeat(big, 400)+head+finish+usageChunk+done, 1<<20))
		conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s/v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", attempt, len(askStream), askStream)
		select {
		case <-f.store.added:
			t.Fatal("the call ended while the caller was not reading")
		case <-time.After(2 * time.Second):
		}
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		if s := f.store.span(t); problem(s) != "" {
			t.Errorf("problem is %q", problem(s))
		}
	})
}
