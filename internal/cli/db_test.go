package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// TestDatabaseCommands looks after the database of a server, while it runs and after.
func TestDatabaseCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "agl.db")
	db, backup := "sqlite:"+path, filepath.Join(dir, "copy.db")
	t.Run("running", func(t *testing.T) {
		client, err := storehttp.NewClient(serve(t, "--db", db))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		for range 3 {
			r, err := client.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: []byte("1")}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.UpdateRollout(t.Context(), r.RolloutID, store.RolloutUpdate{Status: store.To(agl.RolloutSucceeded)}); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, 0, "3 rollouts (0 queued), 3 attempts, 0 spans", "db", "check", "--db", db)
		expect(t, 0, "is a copy", "db", "backup", backup, "--db", db)
		expect(t, 1, "has it open", "db", "prune", "--older-than", "0s", "--db", db)
		expect(t, 1, "has it open", "db", "vacuum", "--db", db)
	})
	// The same file is read without a server.
	_, listed, _ := run(t, "rollouts", "ls", "--db", db)
	if strings.Count(listed, "succeeded") < 3 || strings.Count(listed, "ro-") != 3 {
		t.Errorf("agl rollouts ls --db says %s, want 3 that succeeded", listed)
	}
	one, _, _ := strings.Cut(listed, "\t")
	expect(t, 0, one, "rollouts", "show", one, "--db", db)
	expect(t, 1, "there is no database", "rollouts", "ls", "--db", "sqlite:"+filepath.Join(dir, "none.db"))
	expect(t, 2, "give one of them", "rollouts", "ls", "--db", db, "--server", "http://127.0.0.1:1")
	expect(t, 0, "would delete 0 rollouts", "db", "prune", "--older-than", "1d", "--dry-run", "--db", db)
	for _, text := range []string{"would delete 3 rollouts, 3 attempts, 0 spans and 0 lines in logs of runs, about 0.0 MB, that ended before", "the first ended", "0 rollouts that wait or are under way", "0 runs with their metrics"} {
		expect(t, 0, text, "db", "prune", "--older-than", "0s", "--dry-run", "--db", db)
	}
	expect(t, 1, "there is no database", "db", "prune", "--older-than", "0s", "--db", "sqlite:"+filepath.Join(dir, "none.db"))
	expect(t, 0, "deleted 3 rollouts, 3 attempts, 0 spans", "db", "prune", "--older-than", "0s", "--db", db)
	expect(t, 0, "before", "db", "vacuum", "--db", db)
	expect(t, 0, " 0 rollouts (0 queued)", "db", "check", "--db", db)
	expect(t, 0, " 3 rollouts (0 queued)", "db", "check", "--db", "sqlite:"+backup)
	expect(t, 1, "there is a file of that name", "db", "backup", backup, "--db", db)
	expect(t, 1, "there is no database", "db", "check", "--db", "sqlite:"+filepath.Join(dir, "none.db"))
	expect(t, 2, "must be sqlite:PATH", "db", "check", "--db", "memory:")
	expect(t, 2, "is missing", "db", "prune", "--db", db)
	expect(t, 2, "such as 30d", "db", "prune", "--older-than", "soon", "--db", db)
	expect(t, 2, "name the file", "db", "backup", "--db", db)
}

// expect runs a command and looks for a text in what it says.
func expect(t *testing.T, want int, text string, args ...string) {
	t.Helper()
	status, out, errs := run(t, args...)
	if status != want || !strings.Contains(out+errs, text) {
		t.Errorf("agl %s = %d, %s%s, want %d and %q", strings.Join(args, " "), status, out, errs, want, text)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := "sqlite:" + filepath.Join(dir, "agl.db")
	address := strings.TrimPrefix(serve(t, "--db", db), "http://")
	host, port, _ := strings.Cut(address, ":")
	expect(t, 0, "a server answers on "+address, "doctor", "--host", host, "--port", port, "--db", db)
	expect(t, 0, "agl.db is sound: 0 rollouts", "doctor", "--host", host, "--port", port, "--db", db)
	expect(t, 1, "one thing is wrong", "doctor", "--host", host, "--port", port, "--db", db, "--model", "m=http://127.0.0.1:1/v1")
	broken := filepath.Join(dir, "broken.db")
	if err := os.WriteFile(broken, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, 1, "→ choose another file with --db", "doctor", "--host", host, "--port", port, "--db", "sqlite:"+broken)
}

func TestCommandsOfRelease03SayWhatReplacesThem(t *testing.T) {
	t.Parallel()
	expect(t, 0, "/metrics", "prometheus", "--port", "4748", "--metrics-path", "/x", "--access-log")
	expect(t, 0, "/v1/traces", "agentops")
	expect(t, 0, "Examples:", "prometheus", "--help")
}
