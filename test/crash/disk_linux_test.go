package crash

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// disk mounts a small file system, and returns its folder and how to mount it
// again with other flags.
func disk(t *testing.T, size string) (dir string, remount func(flags uintptr)) {
	t.Helper()
	dir = t.TempDir()
	mount := func(flags uintptr) error {
		return syscall.Mount("agl-test", dir, "tmpfs", flags, "size="+size)
	}
	if err := mount(0); err != nil {
		t.Skipf("this test needs a small disk, and the user may not mount one: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func(flags uintptr) {
		t.Helper()
		if err := mount(syscall.MS_REMOUNT | flags); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs agl to its end.
func run(t *testing.T, args ...string) (said string, failed bool) {
	t.Helper()
	out, err := command(strings.Join(args, "\n")).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), err != nil
}

// succeeds and fails check how a command ends and what it says.
func succeeds(t *testing.T, want string, args ...string) {
	t.Helper()
	if said, failed := run(t, args...); failed || !strings.Contains(said, want) {
		t.Errorf("agl %v: failed %t, said %q, want %q", args, failed, said, want)
	}
}

func fails(t *testing.T, want string, args ...string) {
	t.Helper()
	if said, failed := run(t, args...); !failed || !strings.Contains(said, want) || strings.Count(said, "\n") > 2 {
		t.Errorf("agl %v: failed %t, said %q, want one line with %q", args, failed, said, want)
	}
}

// eat takes all the room that is left on a disk.
func eat(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

// fillUp enqueues large rollouts until the disk is full, and returns the ids of
// those that were acknowledged.
func fillUp(t *testing.T, client *storehttp.Client) (ids []string) {
	t.Helper()
	for range 10000 {
		input := json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`)
		made, err := client.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: input}})
		if errors.Is(err, store.ErrFull) {
			return ids
		}
		if err != nil {
			t.Fatalf("after %d rollouts: %v", len(ids), err)
		}
		ids = append(ids, made[0].RolloutID)
	}
	t.Fatal("the disk is never full")
	return nil
}

// TestFullDisk fills the disk under a running server.
func TestFullDisk(t *testing.T) {
	dir, _ := disk(t, "8m")
	db, filler := filepath.Join(dir, "agl.db"), filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newServerOn(t, db)
	client := newTestClient(t, s.url)
	process := s.start(t, client)
	ids := fillUp(t, client)
	if len(ids) < 10 {
		t.Fatalf("only %d rollouts went in", len(ids))
	}

	// Full: writes are refused as what they are, nothing of them stays, reads go on.
	resp, err := http.Post(s.url+"/v1/agl/queues/rollouts/enqueue", "application/json",
		strings.NewReader(`{"rollouts":[{"input":1},{"input":"`+strings.Repeat("y", 4<<20)+`"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusInsufficientStorage || !json.Valid(body) || !strings.Contains(string(body), "detail") {
		t.Errorf("a write to a full disk: %d %s, %v, want 507", resp.StatusCode, body, err)
	}
	holds(t, client, ids)
	if err := client.Health(t.Context()); err != nil {
		t.Error(err)
	}
	succeeds(t, "is sound", "db", "check", "--db", "sqlite:"+db)
	fails(t, "full", "db", "backup", filepath.Join(dir, "copy.db"), "--db", "sqlite:"+db)
	if left, err := filepath.Glob(filepath.Join(dir, "copy.db*")); err != nil || len(left) > 0 {
		t.Errorf("a backup that failed left %v, %v", left, err)
	}
	outside := filepath.Join(t.TempDir(), "copy.db")
	succeeds(t, "is a copy", "db", "backup", outside, "--db", "sqlite:"+db)
	succeeds(t, "is sound", "db", "check", "--db", "sqlite:"+outside)

	// Room again: it goes on.
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	made, err := client.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: json.RawMessage("2")}})
	if err != nil {
		t.Fatalf("with room again: %v", err)
	}
	ids = append(ids, made[0].RolloutID)
	claimed, err := client.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1})
	if err != nil || len(claimed) != 1 || claimed[0].RolloutID != ids[0] {
		t.Fatalf("dequeue = %v, %v, want the first rollout", claimed, err)
	}
	if _, err := client.UpdateAttempt(t.Context(), ids[0], agl.LatestAttempt, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}); err != nil {
		t.Fatal(err)
	}

	// Killed, and started on a disk without a free byte: it says so, or works.
	stop(t, process, syscall.SIGKILL)
	eat(t, filler)
	startsOrSays(t, s, client, "make room", func() { holds(t, client, ids) })
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	process = s.start(t, client)
	holds(t, client, ids)
	stop(t, process, syscall.SIGTERM)
	succeeds(t, "is sound", "db", "check", "--db", "sqlite:"+db)
	succeeds(t, "deleted 1 rollouts", "db", "prune", "--older-than", "0s", "--db", "sqlite:"+db)

	// Maintenance without room changes nothing and says why.
	eat(t, filler)
	fails(t, "make room on the disk", "db", "vacuum", "--db", "sqlite:"+db)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	succeeds(t, "is sound", "db", "check", "--db", "sqlite:"+db)
	process = s.start(t, client)
	holds(t, client, ids[1:])
	stop(t, process, syscall.SIGTERM)
}

// startsOrSays starts a server, has a look at it and stops it. The server may
// also refuse to start, with these words.
func startsOrSays(t *testing.T, s *server, client *storehttp.Client, words string, look func()) {
	t.Helper()
	process := command(s.args)
	var said strings.Builder
	process.Stderr = &said
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = process.Wait()
	}()
	if ready(t, client.Health, ended) {
		look()
		if err := process.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		<-ended
		return
	}
	if !strings.Contains(said.String(), words) {
		t.Errorf("the server said %q, want %q", said.String(), words)
	}
}

// TestReadOnlyDisk starts a server, and every command, on files that cannot be written.
func TestReadOnlyDisk(t *testing.T) {
	dir, remount := disk(t, "8m")
	db := filepath.Join(dir, "agl.db")
	s := newServerOn(t, db)
	client := newTestClient(t, s.url)
	process := s.start(t, client)
	made, err := client.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: json.RawMessage("1")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, cleanly := range []bool{false, true} {
		signal := os.Signal(syscall.SIGKILL)
		if cleanly {
			signal = syscall.SIGTERM
		}
		stop(t, process, signal)
		remount(syscall.MS_RDONLY)
		fails(t, "cannot open database "+db, strings.Split(s.args, "\n")...)
		fails(t, "cannot open database "+db, "db", "vacuum", "--db", "sqlite:"+db)
		fails(t, "cannot open database "+db, "db", "prune", "--older-than", "1h", "--db", "sqlite:"+db)
		succeeds(t, "is sound", "db", "check", "--db", "sqlite:"+db)
		succeeds(t, "is a copy", "db", "backup", filepath.Join(t.TempDir(), "copy.db"), "--db", "sqlite:"+db)
		remount(0)
		process = s.start(t, client)
		holds(t, client, []string{made[0].RolloutID})
	}
	stop(t, process, syscall.SIGTERM)
}
