//go:build unix && !race

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/llm/openai"
	"agentlightning/semconv"
	"agentlightning/store"
)

// The open requests, by what becomes of them. Each needs four descriptors of
// this process, in which client, server and backend are.
var crowd = []struct {
	name    string
	n       int
	problem string
}{
	{"answered", 1700, ""},
	{"leaves", 100, semconv.ProblemCancelled},
	{"dies", 100, semconv.ProblemTruncated},
	{"refused", 100, semconv.ProblemUpstreamError},
}

// TestManyOpenStreams holds 2,000 streams open at once, on 100 attempts. When
// all have begun they go on, and each ends in its own way. That is more
// goroutines than the race detector takes.
func TestManyOpenStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("2,000 streams take a while; not with -short")
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur < 9000 {
		t.Skipf("%d files may be open (%v), 2,000 streams need 9,000: raise the limit, as with ulimit -n", files.Cur, err)
	}
	total, attempts := 0, 100
	for _, c := range crowd {
		total += c.n
	}
	begun := make(chan struct{}) // closed when all have
	m := newVLLM(t, func(c conversation) reply {
		var r reply
		switch name := string(c.Messages[0].Content); name {
		case "refused":
			return failing(http.StatusTooManyRequests, "slow down")
		case "dies":
			r = reply{text: "I was going to", tokens: 2, after: func(context.Context) error { <-begun; return errDied }}
		case "leaves":
			r = reply{text: "You will not hear this.", tokens: 2, after: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		default:
			r = reply{text: "Hello " + c.said() + "! 👋", tokens: 2, after: func(context.Context) error { <-begun; return nil }}
		}
		return r
	})
	s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), "--model", "agent="+m.url, "--sync", "normal")
	var at []admission
	for range attempts {
		at = append(at, s.admitted(t))
	}
	transport := &http.Transport{MaxIdleConnsPerHost: total}
	defer transport.CloseIdleConnections()

	var first, all sync.WaitGroup // of requests that have begun, and that are over
	var mu sync.Mutex
	var slowest time.Duration
	ended := map[string]int{}
	first.Add(total)
	start := time.Now()
	number := 0
	for _, c := range crowd {
		for range c.n {
			who := number
			number++
			all.Go(func() {
				how, waited, err := openStream(t.Context(), transport, at[who%attempts].url, c.name, who, &first, begun)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("request %d, which %s: %v", who, c.name, err)
				}
				ended[how]++
				slowest = max(slowest, waited)
			})
		}
	}
	first.Wait()
	t.Logf("%d requests had begun after %s; the slowest waited %s", total, time.Since(start), slowest)
	if slowest > 5*time.Second {
		t.Errorf("a request waited %s for its first words, with a model that speaks at once", slowest)
	}
	close(begun)
	all.Wait()
	if diff := cmp.Diff(map[string]int{"answered": 1700, "left": 100, "error in the stream": 100, "429": 100}, ended); diff != "" {
		t.Errorf("how requests ended (-want +got):\n%s", diff)
	}
	said := m.until(t, total)
	checkCrowd(t, s, at, said)
}

// openStream asks, waits for the first words, and then for the end.
func openStream(ctx context.Context, transport http.RoundTripper, url, name string, who int, first *sync.WaitGroup, begun chan struct{}) (how string, waited time.Duration, err error) {
	once := sync.OnceFunc(first.Done)
	defer once()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body := fmt.Sprintf(`{"model":"agent","stream":true,"messages":[{"role":"system","content":%q},{"role":"user","content":"number %d"}]}`, name, who)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader([]byte(body)))
	if err != nil {
		return "", 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	waited = time.Since(start)
	if resp.StatusCode != http.StatusOK {
		_, err := io.Copy(io.Discard, resp.Body)
		return fmt.Sprint(resp.StatusCode), waited, err
	}
	events := openai.NewEventReader(resp.Body)
	var gathered openai.Accumulator
	for n := 0; ; n++ {
		event, err := events.Next()
		if err != nil {
			return "", waited, err
		}
		if n == 1 {
			waited = time.Since(start)
			once()
			<-begun // so that all are open at once
			if name == "leaves" {
				return "left", waited, nil
			}
		}
		if event.Done() {
			break
		}
		chunk, err := gathered.Add(event.Data)
		if err != nil {
			return "", waited, err
		}
		if chunk.Error != "" {
			return "error in the stream", waited, nil
		}
	}
	if text := gathered.Answer().Choices[0].Content; text == nil || *text != fmt.Sprintf("Hello number %d! 👋", who) {
		return "", waited, fmt.Errorf("the answer is %v", text)
	}
	return "answered", waited, nil
}

// checkCrowd compares the spans of all attempts with what the model said.
func checkCrowd(t *testing.T, s *server, at []admission, said []generation) {
	t.Helper()
	byID := map[string]generation{}
	for _, g := range said {
		byID[g.id] = g
	}
	want := map[string]int{}
	for _, c := range crowd {
		want[c.problem] = c.n
	}
	var spans []agl.Span
	s.until(t, "all calls are recorded", func(ctx context.Context) (bool, error) {
		spans = spans[:0]
		for _, a := range at {
			page, err := s.client.QuerySpans(ctx, store.SpanQuery{RolloutID: a.RolloutID})
			if err != nil {
				return false, err
			}
			spans = append(spans, page.Items...)
		}
		return len(spans) >= len(said), nil
	})
	got := map[string]int{}
	numbers := map[string]map[int64]bool{}
	for _, span := range spans {
		problem, _ := span.Attributes.String(semconv.CallProblem)
		got[problem]++
		if numbers[span.RolloutID] == nil {
			numbers[span.RolloutID] = map[int64]bool{}
		}
		if numbers[span.RolloutID][span.SequenceID] {
			t.Errorf("two calls of %s have number %d", span.RolloutID, span.SequenceID)
		}
		numbers[span.RolloutID][span.SequenceID] = true
		if problem == semconv.ProblemUpstreamError {
			continue // there was no answer
		}
		id, _ := span.Attributes.String(semconv.GenAIResponseID)
		g, known := byID[id]
		if !known {
			t.Errorf("a span is of the answer %q, which the model did not give, or of one that has a span already", id)
			continue
		}
		delete(byID, id)
		if problem == "" {
			checkSpan(t, span, g, true)
			continue
		}
		ids, _ := span.Attributes.Get(semconv.ResponseTokenIDs)
		if some, ok := ids.([]int64); !ok || len(some) > len(g.sampled) || !slices.Equal(some, g.sampled[:len(some)]) {
			t.Errorf("ids of the answer %s, %s, are %v, want what came of %v", id, problem, ids, g.sampled)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		text, _ := json.Marshal(got)
		t.Errorf("problems of calls (-want +got):\n%s\n%s", diff, text)
	}
}
