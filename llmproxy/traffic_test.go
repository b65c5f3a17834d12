package llmproxy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/llmproxy"
)

// trafficOf finds what is told of a backend.
func trafficOf(t *testing.T, p *llmproxy.Proxy, endpoint string) llmproxy.Traffic {
	t.Helper()
	for _, b := range p.Traffic() {
		if b.Endpoint == endpoint {
			return b
		}
	}
	t.Fatalf("nothing is told of %s", endpoint)
	return llmproxy.Traffic{}
}

// known lists the backends, once the proxy has asked which there are.
func known(t *testing.T, f *fixture) []llmproxy.Traffic {
	t.Helper()
	if err := f.proxy.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f.proxy.Traffic()
}

// changes writes what happened, the oldest first.
func changes(p *llmproxy.Proxy) []string {
	var out []string
	for _, c := range slices.Backward(p.Changes()) {
		text := string(c.To)
		if c.From != "" {
			text += " after " + string(c.From)
		}
		if c.Drained {
			text += " drained"
		}
		if c.Endpoint == "" {
			text = "all " + text
		}
		if c.Reason != "" {
			text += ": " + c.Reason
		}
		out = append(out, text)
	}
	return out
}

func TestTrafficOfABackend(t *testing.T) {
	t.Parallel()
	var fails atomic.Int64 // the status that the backend answers with
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		if status := fails.Load(); status != 0 {
			http.Error(w, `{"error":{"message":"no room on the card"}}`, int(status))
			return
		}
		answers(wholeAnswer)(w, r)
	})
	at := known(t, f)[0].Endpoint
	if got := trafficOf(t, f.proxy, at); got.Condition != llmproxy.Unseen || got.Calls != 0 {
		t.Errorf("before a call: %+v", got)
	}
	f.chat(t, ask)
	got := trafficOf(t, f.proxy, at)
	in := int64(0)
	for _, n := range got.Durations {
		in += n
	}
	if got.Condition != llmproxy.Fine || got.Calls != 1 || got.Failures != 0 || got.PromptTokens == 0 || got.AnswerTokens == 0 || in != 1 || got.Open != 0 {
		t.Errorf("after a call: %+v, want one with tokens and a duration", got)
	}

	fails.Store(400) // a mistake of the caller says nothing of the backend
	for range 4 {
		f.chat(t, ask)
	}
	if got := trafficOf(t, f.proxy, at); got.Condition != llmproxy.Fine || got.Failures != 0 || got.Calls != 5 {
		t.Errorf("after mistakes of the caller: %+v", got)
	}
	fails.Store(503)
	for i := range 4 {
		f.chat(t, ask)
		want := llmproxy.Fine
		if i >= 2 {
			want = llmproxy.Failing
		}
		if got := trafficOf(t, f.proxy, at); got.Condition != want || got.Failures != int64(i+1) {
			t.Errorf("after %d failures: %+v, want %s", i+1, got, want)
		}
	}
	if got := trafficOf(t, f.proxy, at); !strings.Contains(got.Reason, "503") || !strings.Contains(got.Reason, "no room on the card") || got.Since.IsZero() {
		t.Errorf("it fails since %s because %q, want what it said", got.Since, got.Reason)
	}
	fails.Store(0)
	f.chat(t, ask)
	if got := trafficOf(t, f.proxy, at); got.Condition != llmproxy.Fine || got.Reason != "" || !got.Since.IsZero() {
		t.Errorf("after a good call: %+v", got)
	}
	list := changes(f.proxy)
	if len(list) != 2 || !strings.HasPrefix(list[0], "failing: the backend answered 503") || list[1] != "fine after failing" {
		t.Errorf("changes are %q, want that it failed and is fine", list)
	}
}

func TestTrafficOfABackendThatIsGone(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	const gone = "http://127.0.0.1:1/v1"
	f.store.models = append(f.store.models, agl.Model{Name: "m", Endpoint: gone})
	known(t, f)
	for i := range 4 {
		if status, _, _ := f.post(t, fmt.Sprintf("/rollout/ro-%d/attempt/a1/v1/chat/completions", i), ask); status != http.StatusOK {
			t.Errorf("call %d = %d", i, status)
		}
	}
	got := trafficOf(t, f.proxy, gone)
	if got.Condition != llmproxy.Unreachable || got.Failures == 0 || got.Failures != got.Calls || !strings.Contains(got.Reason, "cannot be reached: ") || !got.Avoided {
		t.Errorf("%+v, want unreachable, with a reason", got)
	}
	if list := changes(f.proxy); len(list) != 1 || !strings.HasPrefix(list[0], "unreachable: it cannot be reached") {
		t.Errorf("changes are %q, want one", list)
	}
}

func TestDurationBounds(t *testing.T) {
	t.Parallel()
	for i := 1; i < llmproxy.DurationBuckets; i++ {
		if llmproxy.DurationBound(i) <= llmproxy.DurationBound(i-1) {
			t.Errorf("bound %d is %s, below it is %s", i, llmproxy.DurationBound(i), llmproxy.DurationBound(i-1))
		}
	}
	if d := llmproxy.DurationBound(llmproxy.DurationBuckets - 2); d < 5*time.Minute {
		t.Errorf("the longest duration that is told apart is %s", d)
	}
}

func TestPauseOfABackend(t *testing.T) {
	t.Parallel()
	var counts [2]atomic.Int64
	counting := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { counts[n].Add(1); answers(wholeAnswer)(w, r) }
	}
	f := setup(t, llmproxy.Config{}, counting(0), counting(1))
	a, b := known(t, f)[0], known(t, f)[1]
	post := func(i int) (int, http.Header, string) {
		return f.post(t, fmt.Sprintf("/rollout/ro-%d/attempt/a1/v1/chat/completions", i), ask)
	}
	for i := range 4 {
		post(i)
	}
	first, second := counts[0].Load(), counts[1].Load()
	if first == 0 || second == 0 {
		t.Fatalf("calls went to %d and %d", first, second)
	}
	if err := f.proxy.PauseBackend(a.Model, a.Endpoint, "new weights"); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		post(i) // those that kept to the paused one, too
	}
	if counts[0].Load() != first || counts[1].Load() != second+8 {
		t.Errorf("while the first is paused calls went to %d and %d, want 8 more at the second", counts[0].Load()-first, counts[1].Load()-second)
	}
	if got := trafficOf(t, f.proxy, a.Endpoint); got.Condition != llmproxy.Paused || got.Reason != "new weights" || got.Since.IsZero() {
		t.Errorf("%+v, want paused for new weights", got)
	}
	if err := f.proxy.PauseBackend(b.Model, b.Endpoint, ""); err != nil {
		t.Fatal(err)
	}
	status, header, body := post(9)
	if status != http.StatusTooManyRequests || !strings.Contains(body, "model calls are paused (all backends of model") || header.Get("X-Agl-Paused") != "true" || header.Get("Retry-After") != "5" {
		t.Errorf("with both paused: %d %s %v, want a refusal that says so", status, body, header)
	}
	for _, m := range []llmproxy.Traffic{a, b} {
		if err := f.proxy.ResumeBackend(m.Model, m.Endpoint); err != nil {
			t.Fatal(err)
		}
	}
	if status, _, _ := post(9); status != http.StatusOK {
		t.Errorf("after both were resumed: %d", status)
	}
	want := []string{"paused: new weights", "paused drained: new weights", "paused", "paused drained", "fine after paused", "fine after paused"}
	if got := changes(f.proxy); !slices.Equal(got, want) {
		t.Errorf("changes are %q, want %q", got, want)
	}
	for _, err := range []error{f.proxy.PauseBackend("none", a.Endpoint, ""), f.proxy.ResumeBackend(a.Model, "none"), f.proxy.DrainBackend(t.Context(), "none", "none")} {
		if !errors.Is(err, llmproxy.ErrNoBackend) {
			t.Errorf("a backend that is not there: %v", err)
		}
	}
}

func TestDrainOfABackend(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-release
		answers(wholeAnswer)(w, r)
	})
	at := known(t, f)[0]
	ended := make(chan int, 1)
	go func() {
		status, _, _ := f.chat(t, ask)
		ended <- status
	}()
	<-entered
	if err := f.proxy.DrainBackend(t.Context(), at.Model, at.Endpoint); err != nil {
		t.Errorf("DrainBackend of one that is not paused = %v", err)
	}
	if err := f.proxy.PauseBackend(at.Model, at.Endpoint, "swap"); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no more patience"))
	if err := f.proxy.DrainBackend(short, at.Model, at.Endpoint); err == nil || !strings.Contains(err.Error(), "wait for 1 calls") || !strings.Contains(err.Error(), "no more patience") {
		t.Errorf("DrainBackend with an open call = %v", err)
	}
	drained := make(chan error, 1)
	go func() { drained <- f.proxy.DrainBackend(t.Context(), at.Model, at.Endpoint) }()
	if status, _, body := f.chat(t, ask); status != http.StatusTooManyRequests || !strings.Contains(body, "is: swap") {
		t.Errorf("a new call = %d %s, want a refusal with the reason", status, body)
	}
	close(release)
	if err := <-drained; err != nil {
		t.Errorf("DrainBackend = %v", err)
	}
	if got := <-ended; got != http.StatusOK {
		t.Errorf("the call that was open = %d, want its answer", got)
	}
	if got := changes(f.proxy); !slices.Equal(got, []string{"paused: swap", "paused drained: swap"}) {
		t.Errorf("changes are %q", got)
	}
}

func TestChangesOfTheGate(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	reason := "update"
	if _, err := f.proxy.Gate().Pause(llmproxy.Pause{Reason: &reason, Owner: "run-7"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.proxy.Gate().Pause(llmproxy.Pause{Reason: &reason, Owner: "run-7"}); err != nil { // renewed
		t.Fatal(err)
	}
	if _, err := f.proxy.Gate().Resume("run-7"); err != nil {
		t.Fatal(err)
	}
	want := []string{"all paused: update, by run-7", "all paused drained: update, by run-7", "all fine after paused"}
	if got := changes(f.proxy); !slices.Equal(got, want) {
		t.Errorf("changes are %q, want %q", got, want)
	}
	for range 300 {
		_, _ = f.proxy.Gate().Pause(llmproxy.Pause{})
		_, _ = f.proxy.Gate().Resume("")
	}
	if n := len(f.proxy.Changes()); n != 200 {
		t.Errorf("%d changes are kept, want 200", n)
	}
}
