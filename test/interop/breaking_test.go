package interop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/semconv"
)

// client is a client of models that a test drives.
type client struct {
	name string
	run  func(t *testing.T, program string, arguments map[string]any, result any)
}

func pythonClient(awaited bool) client {
	name := "Python"
	if awaited {
		name += " awaited"
	}
	return client{name, func(t *testing.T, program string, arguments map[string]any, result any) {
		t.Helper()
		arguments["awaited"] = awaited
		call(t, program, arguments, result)
	}}
}

func typeScriptClient() client {
	return client{"TypeScript", func(t *testing.T, program string, arguments map[string]any, result any) {
		t.Helper()
		callNode(t, needNode(t), program, arguments, result)
	}}
}

// A way to leave, and which clients can.
var ways = []struct {
	way     string
	clients []client
}{
	{"close", []client{pythonClient(false), pythonClient(true), typeScriptClient()}},
	{"cancel", []client{pythonClient(true)}},
	{"abort", []client{typeScriptClient()}},
	{"whole", []client{pythonClient(true), typeScriptClient()}},
	{"killed", []client{pythonClient(false)}},
}

// pause is after how many tokens the model of a broken call says no more.
const pause = 8

// TestClientLeaves has clients leave in every way they have, while the model
// speaks or before it does. The backend must hear of it, and the call is one
// span that says so.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	needPython(t)
	for _, dialect := range served {
		for _, w := range ways {
			for _, c := range w.clients {
				t.Run(dialect+" "+w.way+" "+c.name, func(t *testing.T) {
					t.Parallel()
					leave(t, dialect, w.way, c)
				})
			}
		}
	}
}

// served are the dialects in which agents have tools.
var served = []string{"chat", "responses", "messages"}

func leave(t *testing.T, dialect, way string, c client) {
	t.Helper()
	gone, begun := make(chan time.Time, 1), make(chan struct{})
	m := newVLLM(t, func(c conversation) reply {
		r := accountant(c)
		r.tokens, r.after = pause, func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			gone <- time.Now()
			return ctx.Err()
		}
		return r
	})
	s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), "--model", "agent="+m.url, "--auth-token", secret)
	at := s.admitted(t)
	// Who waits for an answer in one piece asks here when it is time to leave.
	cue := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-begun:
		case <-r.Context().Done():
		}
	}))
	defer cue.Close()
	var left struct{ Left float64 }
	c.run(t, "breaking", map[string]any{"url": at.url, "key": at.token, "model": "agent", "dialect": dialect, "mode": "stream", "way": way, "cue": cue.URL}, &left)
	select {
	case at := <-gone:
		late := time.Duration((agl.Seconds(at) - left.Left) * float64(time.Second))
		t.Logf("the backend heard of it after %s", late)
		if left.Left == 0 || late > time.Second {
			t.Errorf("the backend heard after %s that the client had left, want at once", late)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the backend does not hear that the client has left")
	}
	g := m.until(t, 1)[0]
	span := s.span(t, at)
	ids, _ := span.Attributes.Get(semconv.ResponseTokenIDs)
	got, _ := ids.([]int64)
	if way == "whole" {
		checkProblem(t, span, semconv.ProblemCancelled, 0)
		if got != nil {
			t.Errorf("%d ids are recorded of an answer that did not come", len(got))
		}
		return
	}
	checkProblem(t, span, semconv.ProblemCancelled, 200)
	if len(got) == 0 || len(got) > len(g.sampled) || !slices.Equal(got, g.sampled[:len(got)]) {
		t.Errorf("ids of the span are %v, want what came of %v", got, g.sampled)
	}
}

// span returns the only span of an attempt, once it is there.
func (s *server) span(t *testing.T, at admission) agl.Span {
	t.Helper()
	var spans []agl.Span
	s.until(t, "the call is recorded", func(context.Context) (bool, error) {
		spans = s.spans(t, at.RolloutID)
		return len(spans) > 0, nil
	})
	if len(spans) != 1 {
		t.Fatalf("%d spans of one call", len(spans))
	}
	return spans[0]
}

// checkProblem looks for the problem of a call in its span, and in what readers
// for training are told. A status of 0 stands for none.
func checkProblem(t *testing.T, span agl.Span, problem string, status int64) {
	t.Helper()
	if span.Name != semconv.SpanModelCall {
		t.Errorf("the span is %s", span.Name)
	}
	got, _ := span.Attributes.String(semconv.CallProblem)
	message, _ := span.Attributes.String(semconv.CallMessage)
	if got != problem || (message == "") != (problem == "") {
		t.Errorf("the problem of the call is %q: %q, want %q", got, message, problem)
	}
	recorded, _ := span.Attributes.Get(semconv.CallStatus)
	if want := any(status); status != 0 && recorded != want || status == 0 && recorded != nil {
		t.Errorf("the status of the call is %v, want %d", recorded, status)
	}
	want := agl.StatusError
	if problem == "" {
		want = agl.StatusOK
	}
	if span.Status.StatusCode != want {
		t.Errorf("the status of the span is %s, want %s", span.Status.StatusCode, want)
	}
	calls, err := adapter.Calls([]agl.Span{span})
	if err != nil || len(calls) != 1 || calls[0].Problem != problem {
		t.Errorf("Calls = %+v, %v, want one with problem %q", calls, err, problem)
	}
}

// outcome is what a client made of a call that went wrong.
type outcome struct {
	Error, Message, Text string
	Status               int
	Seconds              float64
}

// A fault of the backend, and what the client and the span say of it.
type fault struct {
	name    string
	replies []reply // one for each try, the last one for all others
	mode    string
	retries int // that the client is told to make
	timeout int // seconds that the client waits, 0 for as long as it does by itself

	errors   []string // names of the error in the clients' languages and dialects, empty when the call goes well in the end
	status   int      // that the client sees; that of a stream is 200 to some and none to others
	message  string   // part of what it is told
	atLeast  float64  // seconds that the call takes
	problems []string // one for each span
	statuses []int64
}

var errDied = errors.New("the engine died")

func untilGone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func dying(c conversation) reply {
	r := accountant(c)
	r.tokens, r.after = pause, func(context.Context) error { return errDied }
	return r
}

func failing(status int, message string, header ...string) reply {
	r := reply{status: status, body: fmt.Sprintf(`{"error":{"message":%q,"type":"%s","param":null,"code":%d}}`, message, http.StatusText(status), status), header: map[string]string{}}
	for i := 0; i < len(header); i += 2 {
		r.header[header[i]] = header[i+1]
	}
	return r
}

const overflow = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens in the messages. Please reduce the length of the messages."

var faults = []fault{
	{
		name: "dies in a stream", mode: "stream", retries: 3,
		errors: []string{"APIError", "APIStatusError", "Failed"}, message: "ended its answer early",
		problems: []string{semconv.ProblemTruncated}, statuses: []int64{200},
	},
	{
		name: "dies in a whole answer", mode: "whole", errors: []string{"InternalServerError"}, status: 502, message: "gave no answer",
		problems: []string{semconv.ProblemUpstreamError}, statuses: []int64{0},
	},
	{
		name: "busy, then not", mode: "stream", retries: 3,
		replies: []reply{failing(429, "slow down", "Retry-After", "1"), failing(503, "loading"), {text: "done"}},
		atLeast: 1, problems: []string{semconv.ProblemUpstreamError, semconv.ProblemUpstreamError, ""}, statuses: []int64{429, 503, 200},
	},
	{
		name: "busy", mode: "whole", retries: 1, replies: []reply{failing(429, "slow down", "retry-after-ms", "20")},
		errors: []string{"RateLimitError"}, status: 429, message: "slow down",
		problems: []string{semconv.ProblemUpstreamError, semconv.ProblemUpstreamError}, statuses: []int64{429, 429},
	},
	{
		name: "silent, then not", mode: "whole", retries: 1, timeout: 2, replies: []reply{{after: untilGone}, {text: "done"}},
		atLeast: 2, problems: []string{semconv.ProblemCancelled, ""}, statuses: []int64{0, 200},
	},
	{
		name: "context overflow", mode: "stream", retries: 3, replies: []reply{failing(400, overflow)},
		errors: []string{"BadRequestError"}, status: 400, message: "maximum context length is 4096 tokens",
		problems: []string{semconv.ProblemContextOverflow}, statuses: []int64{400},
	},
	{
		name: "unknown to the backend", mode: "whole", retries: 3, replies: []reply{failing(404, "The model `agent` does not exist.")},
		errors: []string{"NotFoundError"}, status: 404, message: "The model `agent` does not exist.",
		problems: []string{semconv.ProblemUpstreamError}, statuses: []int64{404},
	},
}

// TestBackendFaults has the backend fail in the ways that backends do. The
// client must make the error of it that it would make of the backend's own, and
// each try is one span.
func TestBackendFaults(t *testing.T) {
	t.Parallel()
	needPython(t)
	for _, dialect := range served {
		for _, f := range faults {
			for _, c := range []client{pythonClient(false), pythonClient(true), typeScriptClient()} {
				t.Run(dialect+" "+f.name+" "+c.name, func(t *testing.T) {
					t.Parallel()
					suffer(t, dialect, f, c)
				})
			}
		}
	}
}

func suffer(t *testing.T, dialect string, f fault, c client) {
	t.Helper()
	tries := 0 // they follow one another
	m := newVLLM(t, func(c conversation) reply {
		if f.replies == nil {
			return dying(c)
		}
		tries++
		return f.replies[min(tries, len(f.replies))-1]
	})
	s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), "--model", "agent="+m.url, "--auth-token", secret)
	at := s.admitted(t)
	var got outcome
	c.run(t, "breaking", map[string]any{
		"url": at.url, "key": at.token, "model": "agent", "dialect": dialect, "mode": f.mode, "way": "fails", "retries": f.retries, "timeout": f.timeout,
	}, &got)
	if f.mode == "stream" && got.Status == http.StatusOK {
		got.Status = 0
	}
	if len(f.errors) == 0 && got.Error != "" || len(f.errors) > 0 && !slices.Contains(f.errors, got.Error) || got.Status != f.status || !strings.Contains(got.Message, f.message) {
		t.Errorf("the client says %+v, want error %q with status %d and message %q", got, f.errors, f.status, f.message)
	}
	if len(f.errors) == 0 && got.Text != f.replies[len(f.replies)-1].text {
		t.Errorf("in the end the client was told %q", got.Text)
	}
	if got.Seconds < f.atLeast {
		t.Errorf("the client took %g s, less than the backend asked for", got.Seconds)
	}
	var spans []agl.Span
	s.until(t, "every try is recorded", func(context.Context) (bool, error) {
		spans = s.spans(t, at.RolloutID)
		return len(spans) >= len(f.problems), nil
	})
	if len(spans) != len(f.problems) {
		t.Fatalf("%d spans, want one for each of %d tries", len(spans), len(f.problems))
	}
	for i, span := range spans {
		checkProblem(t, span, f.problems[i], f.statuses[i])
	}
}
