//go:build unix

package local_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentlightning/controller/local"
	"agentlightning/gateway"
	"agentlightning/internal/daemon"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// asController makes this test binary a controller of the server that it names,
// with the folder of its notes behind a space.
const asController = "AGL_TEST_CONTROLLER"

func TestMain(m *testing.M) {
	if of := os.Getenv(asController); of != "" {
		server, dir, _ := strings.Cut(of, " ")
		c, err := local.New(local.Config{
			Server: server, StateDir: dir, PollInterval: 20 * time.Millisecond, Commands: commands,
			Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
		})
		if err == nil {
			err = c.Run(context.Background())
		}
		fmt.Println(err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// commands are the agents of these tests.
var commands = map[string]string{
	"good":   `true`,
	"bad":    `exit 3`,
	"killed": `kill -KILL $$`,
	"sleep":  `echo $$ >"$PIDS.new"; sleep 600 & echo $! >>"$PIDS.new"; mv "$PIDS.new" "$PIDS"; wait`,
	"wait":   `echo $$ >"$PIDS.new"; mv "$PIDS.new" "$PIDS"; while [ ! -e "$GO" ]; do sleep 0.02; done; exit $CODE`,
	"look":   `test "$AGL_KEY" = "" && test "$WORD" = é && case $AGL_EVENT_URL in */api/rollouts/look/attempt/0/events) ;; *) exit 9 ;; esac && case $AGL_OPENAI_BASE_URL in */proxy/rollout/look/attempt/0/mode/val/openai/v1) ;; *) exit 8 ;; esac`,
}

func serve(t *testing.T) *gateway.Client {
	t.Helper()
	kept := engine.New(memory.New(), engine.Config{})
	s, err := daemon.Listen(t.Context(), daemon.Config{Store: kept})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	})
	return &gateway.Client{BaseURL: s.URL(), HTTP: &http.Client{Transport: transport}}
}

// control runs a controller in this process; the returned function stops it.
func control(t *testing.T, client *gateway.Client, cfg local.Config) (stop func()) {
	t.Helper()
	cfg.Server, cfg.HTTP = client.BaseURL, client.HTTP
	if cfg.StateDir == "" {
		cfg.StateDir = filepath.Join(t.TempDir(), "state")
	}
	if cfg.PollInterval == 0 {
		cfg.PollInterval = 20 * time.Millisecond
	}
	cfg.Commands = commands
	c, err := local.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v, want nil after a stop", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func config(class string, seconds int64, env map[string]string) *gateway.RolloutConfig {
	return &gateway.RolloutConfig{TimeoutSeconds: seconds, Local: &gateway.LocalConfig{AgentClass: &class, EnvMap: env}}
}

func create(t *testing.T, c *gateway.Client, reqs ...gateway.RolloutCreate) {
	t.Helper()
	for i := range reqs {
		if reqs[i].Input == nil {
			reqs[i].Input = json.RawMessage(`{"word":"é"}`)
		}
	}
	if _, err := c.CreateRollouts(t.Context(), reqs...); err != nil {
		t.Fatal(err)
	}
}

type outcome struct {
	State   gateway.State
	Message string
	Attempt string
	Version int64
}

// ended waits until rollouts have ended and returns how.
func ended(t *testing.T, c *gateway.Client, ids ...string) map[string]outcome {
	t.Helper()
	out := map[string]outcome{}
	limit := time.Now().Add(time.Minute)
	for after := int64(0); len(out) < len(ids); {
		page, err := c.Terminal(t.Context(), after, 0, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			detail, err := c.Rollout(t.Context(), item.RolloutID)
			if err != nil {
				t.Fatal(err)
			}
			s := detail.Rollout.Status
			o := outcome{State: s.State, Version: s.Version}
			if s.ErrorMessage != nil {
				o.Message = *s.ErrorMessage
			}
			if s.LastAttemptID != nil {
				o.Attempt = *s.LastAttemptID
			}
			out[item.RolloutID] = o
		}
		if time.Now().After(limit) {
			t.Fatalf("only %d of %d rollouts have ended: %v", len(out), len(ids), out)
		}
		after = page.NextAfter
	}
	return out
}

// pids waits for the process ids that an agent notes in a file.
func pids(t *testing.T, file string) []int {
	t.Helper()
	var out []int
	await(t, "the agent to start", func() bool {
		text, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		for word := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, pid)
		}
		return true
	})
	return out
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 6000 {
		if is() {
			return
		}
		<-tick.C
	}
	t.Fatalf("waited in vain for %s", what)
}

func awaitGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		await(t, fmt.Sprintf("the end of process %d", pid), func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return syscall.Kill(pid, 0) != nil || err == nil && strings.Contains(string(stat), ") Z ")
		})
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	c := serve(t)
	file := filepath.Join(t.TempDir(), "pids")
	create(t, c,
		gateway.RolloutCreate{RolloutID: "good", Config: config("good", 0, nil)},
		gateway.RolloutCreate{RolloutID: "bad", Config: config("bad", 60, nil)},
		gateway.RolloutCreate{RolloutID: "killed", Config: config("killed", 60, nil)},
		gateway.RolloutCreate{RolloutID: "look", IsTrain: new(false), Config: config("look", 60, map[string]string{"WORD": "input.word"})},
		gateway.RolloutCreate{RolloutID: "classless", Config: &gateway.RolloutConfig{TimeoutSeconds: 60}},
		gateway.RolloutCreate{RolloutID: "pathless", Config: config("good", 60, map[string]string{"X": "input.no.thing"})},
		gateway.RolloutCreate{RolloutID: "late", Config: config("sleep", 1, map[string]string{"PIDS": file})},
	)
	stop := control(t, c, local.Config{})
	want := map[string]outcome{
		"good":      {gateway.Succeeded, "", "0", 3},
		"bad":       {gateway.Failed, "subprocess exited with code 3", "0", 3},
		"killed":    {gateway.Failed, "subprocess exited with code -9", "0", 3},
		"look":      {gateway.Succeeded, "", "0", 3},
		"classless": {gateway.Failed, "local subprocess spawn failed: invalid rollout config: missing config.local.agent_class", "", 2},
		"pathless":  {gateway.Failed, "local subprocess spawn failed: local.env_map path not found: input.no.thing", "", 2},
		"late":      {gateway.Failed, "local subprocess timed out", "0", 3},
	}
	got := ended(t, c, "good", "bad", "killed", "look", "classless", "pathless", "late")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	awaitGone(t, pids(t, file))
	stop()
}

// TestMoreThanFifty: as many agents run at once as there is room for.
func TestMoreThanFifty(t *testing.T) {
	t.Parallel()
	c := serve(t)
	dir := t.TempDir()
	const many = 60
	reqs := make([]gateway.RolloutCreate, many)
	ids := make([]string, many)
	for i := range reqs {
		ids[i] = fmt.Sprint("r", i)
		reqs[i] = gateway.RolloutCreate{RolloutID: ids[i], Config: config("wait", 60, map[string]string{
			"PIDS": filepath.Join(dir, ids[i]), "GO": filepath.Join(dir, "go"), "CODE": "0",
		})}
	}
	create(t, c, reqs...)
	control(t, c, local.Config{Size: many - 1})
	count := func() int {
		files, err := filepath.Glob(filepath.Join(dir, "r*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	await(t, "59 agents", func() bool { return count() == many-1 })
	await(t, "all but one to be reported", func() bool {
		waiting, err := c.Rollouts(t.Context(), 0, gateway.Queuing)
		return err == nil && len(waiting) == 1
	})
	if count() != many-1 {
		t.Errorf("%d agents run, want %d", count(), many-1)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for id, o := range ended(t, c, ids...) {
		if o.State != gateway.Succeeded {
			t.Errorf("%s is %+v", id, o)
		}
	}
}

// TestStop ends what runs and says so; a rollout that nobody wants any more is
// ended before.
func TestStop(t *testing.T) {
	t.Parallel()
	c := serve(t)
	dir := t.TempDir()
	create(t, c,
		gateway.RolloutCreate{RolloutID: "deleted", Config: config("sleep", 60, map[string]string{"PIDS": filepath.Join(dir, "deleted")})},
		gateway.RolloutCreate{RolloutID: "stopped", Config: config("sleep", 60, map[string]string{"PIDS": filepath.Join(dir, "stopped")})},
	)
	stop := control(t, c, local.Config{})
	deleted, stopped := pids(t, filepath.Join(dir, "deleted")), pids(t, filepath.Join(dir, "stopped"))
	if err := c.DeleteRollout(t.Context(), "deleted"); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, deleted)
	stop()
	awaitGone(t, stopped)
	if got, want := ended(t, c, "stopped")["stopped"], (outcome{gateway.Failed, "local controller shutdown", "0", 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestAdoption: a controller that is killed is followed by one that goes on with
// its agents: those that run, those that ended meanwhile, and those that were
// killed meanwhile.
func TestAdoption(t *testing.T) {
	t.Parallel()
	c := serve(t)
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	var reqs []gateway.RolloutCreate
	for id, code := range map[string]string{"meanwhile": "4", "shot": "0", "later": "0", "later-bad": "5", "late": "0"} {
		limit := int64(600)
		if id == "late" {
			limit = 2
		}
		reqs = append(reqs, gateway.RolloutCreate{RolloutID: id, Config: config("wait", limit, map[string]string{
			"PIDS": filepath.Join(dir, id), "GO": filepath.Join(dir, "go-"+id), "CODE": code,
		})})
	}
	create(t, c, reqs...)
	first := exec.Command(os.Args[0])
	first.Env = append(os.Environ(), asController+"="+c.BaseURL+" "+state)
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // so that it does not wait for a reader
		for scan := bufio.NewScanner(out); scan.Scan(); {
		}
	}()
	all := map[string][]int{}
	for _, r := range reqs {
		all[r.RolloutID] = pids(t, filepath.Join(dir, r.RolloutID))
	}
	await(t, "all to be reported", func() bool {
		running, err := c.Rollouts(t.Context(), 0, gateway.Running)
		return err == nil && len(running) == len(reqs)
	})
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was killed
	let := func(id string) {
		if err := os.WriteFile(filepath.Join(dir, "go-"+id), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	let("meanwhile")
	awaitGone(t, all["meanwhile"])
	group, err := syscall.Getpgid(all["shot"][0])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(-group, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, all["shot"])

	stop := control(t, c, local.Config{StateDir: state})
	ended(t, c, "meanwhile", "shot")
	for _, id := range []string{"later", "later-bad"} {
		if syscall.Kill(all[id][0], 0) != nil {
			t.Errorf("the agent of %s did not survive", id)
		}
		let(id)
	}
	want := map[string]outcome{
		"meanwhile": {gateway.Failed, "subprocess exited with code 4", "0", 3},
		"shot":      {gateway.Failed, "local subprocess is not running", "0", 3},
		"later":     {gateway.Succeeded, "", "0", 3},
		"later-bad": {gateway.Failed, "subprocess exited with code 5", "0", 3},
		"late":      {gateway.Failed, "local subprocess timed out", "0", 3},
	}
	if diff := cmp.Diff(want, ended(t, c, "meanwhile", "shot", "later", "later-bad", "late")); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	stop()
	for _, group := range all {
		awaitGone(t, group)
	}
	files, err := filepath.Glob(filepath.Join(state, "*"))
	if err != nil || len(files) != 1 {
		t.Errorf("notes are left: %v, %v", files, err)
	}
}

// TestPython runs classes as release 1.0 does.
func TestPython(t *testing.T) {
	t.Parallel()
	if exec.Command("python3", "-c", "").Run() != nil {
		t.Skip("python3: not installed")
	}
	dir := t.TempDir()
	module := `import asyncio, os, sys
class Good:
    def run(self):
        assert os.environ["WORD"] == "é"
class Later:
    async def run(self):
        await asyncio.sleep(0)
class Broken:
    def run(self):
        raise RuntimeError("no idea")
class Leaves:
    def run(self):
        sys.exit(3)
class Outer:
    class Inner:
        def run(self):
            return "ignored"
`
	if err := os.WriteFile(filepath.Join(dir, "my_agents.py"), []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c := serve(t)
	env := map[string]string{"WORD": "input.word", "PYTHONDONTWRITEBYTECODE": "1"}
	want := map[string]outcome{
		"my_agents:Good":        {gateway.Succeeded, "", "0", 3},
		"my_agents.Good":        {gateway.Succeeded, "", "0", 3},
		"my_agents:Later":       {gateway.Succeeded, "", "0", 3},
		"my_agents:Outer.Inner": {gateway.Succeeded, "", "0", 3},
		"my_agents:Broken":      {gateway.Failed, "subprocess exited with code 1", "0", 3},
		"my_agents:Leaves":      {gateway.Failed, "subprocess exited with code 3", "0", 3},
		"my_agents:Nobody":      {gateway.Failed, "subprocess exited with code 1", "0", 3},
		"nothing:Here":          {gateway.Failed, "subprocess exited with code 1", "0", 3},
	}
	var ids []string
	for class := range want {
		ids = append(ids, class)
		create(t, c, gateway.RolloutCreate{RolloutID: class, Config: config(class, 60, env)})
	}
	control(t, c, local.Config{Dir: dir, Output: log})
	if diff := cmp.Diff(want, ended(t, c, ids...)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	text, err := os.ReadFile(log.Name())
	if err != nil || !strings.Contains(string(text), "RuntimeError: no idea") {
		t.Errorf("what agents wrote is %q, %v, want the traceback", text, err)
	}
}

func TestNoPython(t *testing.T) {
	t.Parallel()
	c := serve(t)
	create(t, c, gateway.RolloutCreate{RolloutID: "r", Config: config("a:B", 60, nil)})
	control(t, c, local.Config{Python: "no-such-python"})
	if got := ended(t, c, "r")["r"]; got.State != gateway.Failed || !strings.Contains(got.Message, `local subprocess spawn failed: exec: "no-such-python"`) {
		t.Errorf("%+v", got)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]local.Config{
		"Config.Server":       {},
		"Config.AgentURL":     {Server: "http://h", AgentURL: "h"},
		"Config.StateDir":     {Server: "http://h"},
		"Config.Size":         {Server: "http://h", StateDir: "x", Size: -1},
		"Config.PollInterval": {Server: "http://h", StateDir: "x", PollInterval: -1},
	} {
		if _, err := local.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v) = %v, want %q", cfg, err, want)
		}
	}
	// Two controllers do not share a folder.
	c := serve(t)
	state := t.TempDir()
	control(t, c, local.Config{StateDir: state})
	await(t, "the lock", func() bool { _, err := os.Stat(filepath.Join(state, "lock")); return err == nil })
	second, err := local.New(local.Config{Server: c.BaseURL, StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the first one to have the lock", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		err = second.Run(ctx)
		return err != nil
	})
	if !strings.Contains(err.Error(), "another controller works in "+state) {
		t.Errorf("a second controller: %v", err)
	}
}
