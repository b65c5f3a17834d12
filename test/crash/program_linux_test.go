package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// agentEvents is how many events the agent posts.
const agentEvents = 12

// playAgent posts events, notes each once it was acknowledged, and leaves a
// process behind that is in another session.
func playAgent(noted string) int {
	daemon := exec.Command("sleep", "600")
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := daemon.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	file, err := os.OpenFile(noted, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	for i := range agentEvents {
		body := fmt.Sprintf(`{"event_type":"note","data":{"number":%d}}`, i)
		if i == agentEvents-1 {
			body = `{"event_type":"reward","data":{"value":1}}`
		}
		for failures := 0; ; failures++ {
			status, err := postEvent(client, body)
			if err == nil && status/100 == 2 {
				break
			}
			if failures > 500 || err == nil && status/100 == 4 {
				fmt.Fprintf(os.Stderr, "event %d: %d, %v\n", i, status, err)
				return 3
			}
			pause(context.Background(), 10*time.Millisecond)
		}
		if _, err := fmt.Fprintf(file, "%s %s %d\n", os.Getenv("AGL_ROLLOUT_ID"), os.Getenv("AGL_ATTEMPT_ID"), i); err != nil {
			return 1
		}
		pause(context.Background(), 10*time.Millisecond)
	}
	return 0
}

func postEvent(client *http.Client, body string) (int, error) {
	res, err := client.Post(os.Getenv("AGL_EVENT_URL"), "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, res.Body.Close()
}

// TestKilledPrograms kills the server, runners of programs and the programs, one
// at a time and at random moments. Afterwards every rollout is done, every event
// that an agent was told is stored is there, and no process is left.
func TestKilledPrograms(t *testing.T) {
	kills := 3 * (*rounds)
	if testing.Short() {
		kills = min(kills, 6)
	}
	s := newServer(t)
	s.args += "\n--health-scan-interval\n100ms"
	noted := filepath.Join(t.TempDir(), "noted")
	t.Setenv(asAgent, noted) // which processes of this test are known by, too
	client, err := storehttp.NewClient(s.url, storehttp.WithRetryWindow(patience))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	process := s.start(t, client)
	stop := func(c *exec.Cmd) {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	}
	defer func() { stop(process) }()

	silence := 2.0
	reqs := make([]store.EnqueueRequest, 4*kills)
	for i := range reqs {
		reqs[i] = store.EnqueueRequest{Input: json.RawMessage(strconv.Itoa(i)), Config: &agl.RolloutConfig{
			UnresponsiveSeconds: &silence, MaxAttempts: 50,
			RetryCondition: []agl.AttemptStatus{agl.AttemptUnresponsive, agl.AttemptFailed},
		}}
	}
	queued, err := client.EnqueueRollouts(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	startRunner := func() *exec.Cmd {
		r := command(strings.Join([]string{"runner", "--server", s.url, "--workers", "4", "--reward", "event", "--log-level", "error", "--", os.Args[0]}, "\n"))
		r.Stderr = s.log
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	runners := []*exec.Cmd{startRunner(), startRunner()}
	defer func() {
		for _, r := range runners {
			stop(r)
		}
		awaitNobody(t, noted)
	}()
	killed := map[string]int{}
	for i := range kills {
		pause(t.Context(), time.Duration(rand.Int64N(int64(longestLife))))
		switch i % 3 {
		case 0:
			stop(process)
			process = s.start(t, client)
			killed["server"]++
		case 1:
			which := rand.IntN(len(runners))
			stop(runners[which])
			runners[which] = startRunner()
			killed["runner"]++
		case 2:
			if pids := agents(t, noted); len(pids) > 0 {
				if syscall.Kill(pids[rand.IntN(len(pids))], syscall.SIGKILL) == nil {
					killed["agent"]++
				}
			}
		}
	}
	ids := make([]string, len(queued))
	for i := range queued {
		ids[i] = queued[i].RolloutID
	}
	done, err := client.WaitForRollouts(t.Context(), ids, patience)
	if err != nil {
		t.Fatal(err)
	}
	if len(done) != len(ids) {
		t.Fatalf("%d of %d rollouts are done after %v; kills: %v", len(done), len(ids), patience, killed)
	}
	for i := range done {
		if done[i].Status != agl.RolloutSucceeded {
			t.Errorf("rollout %s is %s, want succeeded", done[i].RolloutID, done[i].Status)
		}
	}
	acknowledged := checkNoted(t, client, noted)
	t.Logf("%v: %d rollouts, %d events acknowledged", killed, len(ids), acknowledged)
}

// checkNoted looks for every event that an agent noted, and returns how many
// there are.
func checkNoted(t *testing.T, client *storehttp.Client, noted string) int {
	t.Helper()
	text, err := os.ReadFile(noted)
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]map[string]bool{} // by rollout, "attempt number"
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range lines {
		rollout, event, _ := strings.Cut(line, " ")
		if stored[rollout] == nil {
			page, err := client.QuerySpans(t.Context(), store.SpanQuery{RolloutID: rollout})
			if err != nil {
				t.Fatal(err)
			}
			stored[rollout] = map[string]bool{}
			for i := range page.Items {
				span := &page.Items[i]
				number := fmt.Sprint(agentEvents - 1)
				if value, err := agl.RewardValue(span); err != nil || value == nil {
					number = numberOf(span)
				}
				stored[rollout][span.AttemptID+" "+number] = true
			}
		}
		if !stored[rollout][event] {
			t.Errorf("the event %q of rollout %s was acknowledged and is not stored; there are %v", event, rollout, stored[rollout])
		}
	}
	return len(lines)
}

// numberOf reads the number of an event of the agent.
func numberOf(s *agl.Span) string {
	var event struct{ Number json.Number }
	text, _ := s.Attributes.String(semconv.EventData)
	if err := json.Unmarshal([]byte(text), &event); err != nil {
		return s.Name
	}
	return event.Number.String()
}

// agents are the processes that play the agent of this test.
func agents(t *testing.T, noted string) []int {
	t.Helper()
	return processes(t, func(env []byte) bool {
		return bytes.Contains(env, []byte(asAgent+"="+noted+"\x00")) && bytes.Contains(env, []byte("AGL_ATTEMPT_ID="))
	})
}

func processes(t *testing.T, fits func(env []byte) bool) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if env, err := os.ReadFile(file); err == nil && fits(env) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// awaitNobody waits until no agent and nothing that one started is there.
func awaitNobody(t *testing.T, noted string) {
	t.Helper()
	for range 1000 {
		if len(agents(t, noted)) == 0 {
			return
		}
		pause(context.WithoutCancel(t.Context()), 5*time.Millisecond)
	}
	for _, pid := range agents(t, noted) {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		t.Errorf("process %d is left: %q", pid, name)
	}
}
