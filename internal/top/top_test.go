package top

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
)

// busyState has something of everything.
func busyState() *State {
	return &State{
		Queue: &Queue{Waiting: 12, Longest: 75, Active: 3, Succeeded: 400, Failed: 7, Cancelled: 1},
		Runs: []Run{
			{ID: "run-1", Algorithm: "pg", Status: agl.RunRunning, Step: 41, Seconds: 3725, Reward: new(0.51234), Validation: new(0.25)},
			{ID: "run-0", Algorithm: "sft", Status: agl.RunFailed, Step: -1, Seconds: 2.5, Error: "the learner\nbroke"},
		},
		Workers: []Worker{
			{ID: "w-lost", State: workerSilent, Lost: true, Heard: new(90.0), Rollout: "ro-9"},
			{ID: "w-busy", State: "busy", Heard: new(1.25), Rollout: "ro-1"},
			{ID: "w-gone", State: workerSilent},
		},
		WorkersTotal: 3,
		Models: []Model{
			{Name: "policy", Endpoint: "http://a:1/v1", Version: 7, Health: modelOK, Open: 2, Waiting: 1, Tokens: new(1234.5)},
			{Name: "judge", Endpoint: "http://b:1/v1", Health: "unreachable"},
		},
		Calls:    &Calls{Total: 1200, NotOK: 4, Rate: new(3.456)},
		Failures: []Reason{{"agent error", 5}, {"attempt timeout", 2}}, FailuresTotal: 9,
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	none := &State{Queue: &Queue{}, Missing: []string{"models: GET /proxy/state: no (501)"}}
	for _, tt := range []struct {
		name  string
		state *State
		view  View
		want  string
	}{
		{"everything, as lines", busyState(), View{}, `RUNS  1 running
  run    algorithm  status   step  reward  val   time  error
  run-1  pg         running  41    0.5123  0.25  1h2m
  run-0  sft        failed   -     -       -     2.5s  the learner broke
QUEUE  12 waiting, longest 1m15s, 3 in progress
  400 succeeded, 7 failed, 1 cancelled
WORKERS  1 busy, 0 idle, 2 silent (1 at work)
  worker  state           heard of   rollout
  w-lost  silent at work  1m30s ago  ro-9
  w-busy  busy            1.3s ago   ro-1
  w-gone  silent          never      -
MODELS  3.46 calls/s, 1200 calls, 4 not ok
  model   health       tokens/s  open  waiting  version  endpoint
  policy  ok           1234      2     1        7        http://a:1/v1
  judge   unreachable  -         0     0        0        http://b:1/v1
FAILURES  9 failed, reasons of the newest 7
  count  reason
  5      agent error
  2      attempt timeout
`},
		{"nothing there", none, View{}, `RUNS  none
QUEUE  0 waiting, longest -, 0 in progress
  0 succeeded, 0 failed, 0 cancelled
WORKERS  0 busy, 0 idle, 0 silent
MODELS  calls not counted
  no backend is registered
FAILURES  none
not shown: models: GET /proxy/state: no (501)
`},
		{
			"one section, in bold", busyState(),
			View{Width: 80, Height: 20, Section: QueueSection, Styled: true},
			"\x1b[1mQUEUE\x1b[m  12 waiting, longest 1m15s, 3 in progress\n  400 succeeded, 7 failed, 1 cancelled\n",
		},
		{"a low window", busyState(), View{Width: 80, Height: 3}, "RUNS  1 running\n" +
			"  run    algorithm  status   step  reward  val   time  error\n… 17 more lines\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, Render(tt.state, tt.view)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRenderNarrow: names of any length and script fit, numbers stay whole.
func TestRenderNarrow(t *testing.T) {
	t.Parallel()
	s := busyState()
	long := strings.Repeat("very-long-name-", 20)
	s.Runs[0].ID, s.Runs[1].Error = long, strings.Repeat("世界", 60)
	s.Workers[0].ID, s.Workers[1].Rollout = long, long
	s.Models[0].Name, s.Models[1].Endpoint = "\x1b[2Jsteals the screen", "http://"+long
	s.Failures[0].Why, s.Paused, s.Missing = long, "paused: "+long, []string{long}
	for i := range 30 {
		s.Workers = append(s.Workers, Worker{ID: fmt.Sprintf("w-%d", i), State: "idle", Heard: new(1.0)})
	}
	s.WorkersTotal = len(s.Workers)
	for section := range sections {
		for _, width := range []int{20, 60, 100} {
			text := Render(s, View{Width: width, Height: 40, Section: section})
			if strings.Contains(text, "\x1b") {
				t.Errorf("%s: a name steers the terminal: %q", sectionNames[section], text)
			}
			if n := strings.Count(text, "\n"); n > 40 {
				t.Errorf("%s has %d lines, want 40 at the most", sectionNames[section], n)
			}
			for line := range strings.Lines(text) {
				if got := ansi.StringWidth(strings.TrimSuffix(line, "\n")); got > width {
					t.Errorf("%s: %d characters in %d: %q", sectionNames[section], got, width, line)
				}
			}
		}
	}
	text := Render(s, View{Width: 60, Height: 60})
	for _, want := range []string{"0.5123  0.25  1h2m", "silent at work  1m30s ago", "… and 28 more", "unreachable  -         0     0        0"} {
		if !strings.Contains(text, want) {
			t.Errorf("60 characters wide, %q is lacking:\n%s", want, text)
		}
	}
}

func TestScreen(t *testing.T) {
	t.Parallel()
	looks := 0
	var fail error
	m := newScreen("http://server:1", time.Hour, func() (*State, error) {
		looks++
		return busyState(), fail
	})
	shows := func(want ...string) {
		t.Helper()
		view := m.View()
		if !view.AltScreen {
			t.Error("the screen of the shell is not kept")
		}
		text := ansi.Strip(view.Content)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%q is lacking:\n%s", w, text)
			}
		}
		if n := strings.Count(text, "\n") + 1; n > m.view.Height {
			t.Errorf("%d lines in a window of %d", n, m.view.Height)
		}
	}
	shows("asking http://server:1", "[all]")
	send := func(msg tea.Msg) tea.Cmd {
		_, cmd := m.Update(msg)
		return cmd
	}
	if send(m.Init()()) == nil || looks != 1 {
		t.Errorf("%d looks, want one and a timer for the next", looks)
	}
	shows("http://server:1", "RUNS", "QUEUE", "WORKERS", "MODELS", "FAILURES")
	send(tea.WindowSizeMsg{Width: 60, Height: 12})
	shows("RUNS", "more lines")
	send(tea.KeyPressMsg{Code: tea.KeyTab})
	send(tea.KeyPressMsg{Code: tea.KeyRight})
	shows("[queue]", "12 waiting")
	if strings.Contains(m.View().Content, "WORKERS") {
		t.Errorf("other sections are shown too:\n%s", m.View().Content)
	}
	send(tea.KeyPressMsg{Code: tea.KeyTab, Mod: tea.ModShift})
	send(tea.KeyPressMsg{Code: tea.KeyLeft})
	send(tea.KeyPressMsg{Code: tea.KeyLeft})
	shows("[failures]", "agent error")

	// The server goes away: what was seen stays, and it is asked again.
	fail = errors.New("connection refused")
	if send(send(againMsg{})()) == nil || looks != 2 {
		t.Errorf("%d looks, want a second one and a timer for the next", looks)
	}
	shows("no answer since", "trying again: connection refused", "agent error")
	fail = nil
	send(send(againMsg{})())
	shows("http://server:1")
	if m.err != nil || strings.Contains(m.View().Content, "no answer") {
		t.Errorf("it is back, and said to be away:\n%s", m.View().Content)
	}
	for _, key := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}} {
		cmd := send(key)
		if cmd == nil {
			t.Fatalf("%s does nothing", key)
		}
		if _, quits := cmd().(tea.QuitMsg); !quits {
			t.Errorf("%s does not end it", key)
		}
	}
}

// fake is a server that answers from a table.
func fake(t *testing.T, answer func(path string) (int, string)) *Reader {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"detail":"the token is wrong"}`))
			return
		}
		status, body := answer(r.URL.Path)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	r, err := NewReader(strings.Replace(server.URL, "http://", "http://agl:secret@", 1), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestReader(t *testing.T) {
	t.Parallel()
	var calls, tokens atomic.Int64
	r := fake(t, func(path string) (int, string) {
		switch path {
		case "/v1/agl/overview":
			return 200, `{"time":1000,"rollouts":{"running":2,"preparing":1,"failed":3},"queue":{"length":4,"waiting_seconds":5}}`
		case "/v1/agl/runs":
			return 200, `[]`
		case "/v1/agl/workers":
			return 200, `{"total":4,"items":[
				{"worker_id":"idle","status":"idle","last_heartbeat_time":990},
				{"worker_id":"left","status":"idle","last_heartbeat_time":100},
				{"worker_id":"busy","status":"busy","last_busy_time":995,"current_rollout_id":"ro-1"},
				{"worker_id":"lost","status":"busy","last_heartbeat_time":900,"current_rollout_id":"ro-2"}]}`
		case "/v1/agl/models":
			return 200, `[{"model":"m","endpoint":"http://a/v1","version":3},{"model":"m","endpoint":"http://b/v1"}]`
		case "/proxy/state":
			return 200, `{"paused":true,"reason":"new weights"}`
		case "/metrics":
			return 200, fmt.Sprintf(`# TYPE agl_proxy_calls_total counter
agl_proxy_calls_total{model="m",outcome="ok"} %d
agl_proxy_calls_total{model="m",outcome="timeout"} 2
`, calls.Add(100))
		case "/v1/agl/backends":
			return 200, fmt.Sprintf(`{"backends":[
				{"model":"m","endpoint":"http://a/v1","condition":"fine","open":5,"waiting":1,"answer_tokens":%d},
				{"model":"m","endpoint":"http://b/v1","condition":"key_missing"}]}`, tokens.Add(1000))
		}
		return 501, `{"detail":"the store of this server cannot search rollouts"}`
	})
	s, err := r.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &State{
		Now:   1000,
		Queue: &Queue{Waiting: 4, Longest: 5, Active: 3, Failed: 3},
		Workers: []Worker{
			{ID: "lost", State: workerSilent, Lost: true, Heard: new(100.0), Rollout: "ro-2"},
			{ID: "busy", State: "busy", Heard: new(5.0), Rollout: "ro-1"},
			{ID: "idle", State: "idle", Heard: new(10.0)},
			{ID: "left", State: workerSilent, Heard: new(900.0)},
		},
		WorkersTotal: 4,
		Models: []Model{
			{Name: "m", Endpoint: "http://a/v1", Version: 3, Health: modelOK, Open: 5, Waiting: 1},
			{Name: "m", Endpoint: "http://b/v1", Health: "key missing"},
		},
		Paused:  "paused: new weights",
		Calls:   &Calls{Total: 102, NotOK: 2},
		Missing: []string{"failures: GET /v1/agl/browse/rollouts?status_in=failed&limit=200: the store of this server cannot search rollouts (501)"},
	}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s, err = r.Read(t.Context()); err != nil || s.Calls.Rate == nil || *s.Calls.Rate <= 0 {
		t.Errorf("after 100 more calls: %+v, %v, want a rate", s.Calls, err)
	}
	if s.Models[0].Tokens == nil || *s.Models[0].Tokens <= 0 {
		t.Errorf("after 1000 more tokens: %v a second", s.Models[0].Tokens)
	}
	calls.Store(-95) // started anew, with fewer calls than before
	tokens.Store(-995)
	if s, err = r.Read(t.Context()); err != nil || s.Calls.Rate != nil || s.Models[0].Tokens != nil {
		t.Errorf("after a restart: %+v, %+v, %v, want no rate", s.Calls, s.Models[0], err)
	}
}

func TestReaderFails(t *testing.T) {
	t.Parallel()
	other := fake(t, func(string) (int, string) { return 404, "no such page" })
	if _, err := other.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "not a server of 'agl serve'") {
		t.Errorf("a server of another kind: %v", err)
	}
	wrong, err := NewReader(other.Server(), "guessed")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wrong.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "the token is wrong (401)") {
		t.Errorf("a wrong token: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Print(ctx, wrong, new(strings.Builder), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if err := wrong.Close(); err != nil {
		t.Error(err)
	}
	if _, err := wrong.Read(t.Context()); err == nil {
		t.Error("a closed reader reads")
	}
	if _, err := NewReader("nowhere", ""); err == nil || !strings.Contains(err.Error(), "must look like") {
		t.Errorf("no address: %v", err)
	}
}
