package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentlightning/internal/cli"
	"agentlightning/storehttp"
)

// syncBuffer is a buffer that a command writes while the test reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// agl runs one command line to its end.
func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs syncBuffer
	status = cli.Run(t.Context(), args, &out, &errs)
	return status, out.String(), errs.String()
}

// serve runs a server until the test ends and returns its address.
func serve(t *testing.T, args ...string) string {
	t.Helper()
	return serveAs(t, append([]string{"serve", "--port", "0"}, args...)...)
}

// serveAs runs a command that serves until the test ends.
func serveAs(t *testing.T, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var out, errs syncBuffer
	done := startCommand(ctx, args, &out, &errs)
	t.Cleanup(func() {
		stop()
		if status := <-done; status != 0 {
			t.Errorf("serve ended with %d: %s", status, errs.String())
		}
	})
	return awaitURL(t, done, &out, &errs)
}

// connect returns a client that is closed when the test ends.
func connect(t *testing.T, url string) *storehttp.Client {
	t.Helper()
	client, err := storehttp.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

func startServer(ctx context.Context, args []string, out, errs *syncBuffer) chan int {
	return startCommand(ctx, append([]string{"serve"}, args...), out, errs)
}

func startCommand(ctx context.Context, args []string, out, errs *syncBuffer) chan int {
	done := make(chan int, 1)
	go func() { done <- cli.Run(ctx, args, out, errs) }()
	return done
}

// awaitURL waits until a server says where it is.
func awaitURL(t *testing.T, done chan int, out, errs *syncBuffer) string {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		if _, rest, ok := strings.Cut(out.String(), " on http"); ok {
			address, _, _ := strings.Cut(rest, ",")
			return "http" + address
		}
		select {
		case status := <-done:
			done <- status
			t.Fatalf("serve ended with %d: %s", status, errs.String())
		case <-tick.C:
		}
	}
	t.Fatal("the server did not say where it is")
	return ""
}

func TestMistakesAreOneLineThatSaysWhatToDo(t *testing.T) {
	t.Setenv("AGL_SERVER", "http://127.0.0.1:1")
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.db")
	if err := os.WriteFile(broken, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(dir, "agl.yaml")
	if err := os.WriteFile(settings, []byte("prot: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, want string
		status     int
		args       []string
	}{
		{"command", "see 'agl --help'", 2, []string{"sevre"}},
		{"flag", "unknown flag: --prot; see 'agl serve --help'", 2, []string{"serve", "--prot", "1"}},
		{"argument", `unexpected argument "now"`, 2, []string{"serve", "now"}},
		{"host", "pass --insecure", 2, []string{"serve", "--host", "0.0.0.0"}},
		{"database kind", "must be sqlite:PATH or memory:", 2, []string{"serve", "--db", "x.db"}},
		{"database path", "the path is missing", 2, []string{"serve", "--db", "sqlite:"}},
		{"postgres", "not supported yet", 2, []string{"serve", "--db", "postgres://x"}},
		{"mongo", "use --db sqlite:PATH", 2, []string{"store", "--backend", "mongo"}},
		{"not a database", "not an SQLite database", 1, []string{"serve", "--db", "sqlite:" + broken}},
		{"sync", "must be full or normal", 2, []string{"serve", "--sync", "no", "--db", "sqlite:" + dir + "/x.db"}},
		{"model", "must be NAME=BASE_URL", 2, []string{"serve", "--model", "x", "--db", "memory:"}},
		{"log level", "must be debug, info, warning or error", 2, []string{"serve", "--log-level", "x"}},
		{"log area", `there is no area "shop"`, 2, []string{"serve", "--log-level", "shop=info", "--db", "memory:"}},
		{"log format", "must be text or json", 2, []string{"serve", "--log-format", "xml", "--db", "memory:"}},
		{"log file", "no such file", 1, []string{"serve", "--log-file", dir + "/none/x.log", "--db", "memory:"}},
		{"body size", "as in 1000000, 64MiB or 1GB", 2, []string{"serve", "--max-body", "lots"}},
		{"half of TLS", "go together", 2, []string{"serve", "--tls-cert", "x.pem"}},
		{"settings", `"prot" is not a setting`, 1, []string{"serve", "--config", settings}},
		{"tracker", "must be prometheus or console", 2, []string{"store", "--tracker", "x"}},
		{"no server", "connection refused", 1, []string{"rollouts", "ls"}},
		{"status", "must be one of", 2, []string{"rollouts", "ls", "--status", "done"}},
		{"no id", "give one rollout id", 2, []string{"rollouts", "show"}},
		{"mode", "must be one of [train val test]", 2, []string{"rollouts", "ls", "--mode", "live"}},
		{"limit", "0 is no limit", 2, []string{"rollouts", "ls", "--limit", "-1"}},
		{"since", "--since -1h0m0s", 2, []string{"rollouts", "ls", "--since", "-1h"}},
		{"no choice to retry", "give rollout ids, or choose", 2, []string{"rollouts", "retry"}},
		{"no choice to cancel", "agl rollouts cancel --help", 2, []string{"rollouts", "cancel", "--limit", "3"}},
		{"no choice to explain", "give rollout ids, or choose", 2, []string{"rollouts", "explain"}},
		{"joining", "must be lineages, linear or separate", 2, []string{"rollouts", "explain", "ro-1", "--joining", "x"}},
		{"agent", "missing closing )", 2, []string{"rollouts", "explain", "ro-1", "--agent", "("}},
		{"failures", "must be drop, keep or zero", 2, []string{"rollouts", "explain", "ro-1", "--on-failure", "x"}},
		{"token limit", "--prompt-limit -1", 2, []string{"rollouts", "explain", "ro-1", "--prompt-limit", "-1"}},
		{"kind of export", "must be one of rollouts, spans, rows", 2, []string{"rollouts", "export", "--what", "all"}},
		{"export over a file", "the file exists", 2, []string{"rollouts", "export", "--to", settings}},
		{"two versions at the most", `unexpected argument "c"`, 2, []string{"resources", "diff", "a", "b", "c"}},
		{"limit of versions", "--limit -1", 2, []string{"resources", "ls", "--limit", "-1"}},
	}
	for _, tt := range tests {
		status, _, stderr := run(t, tt.args...)
		if status != tt.status || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "agl: ") {
			t.Errorf("%s: agl %v = %d, %q, want %d and one line with %q", tt.name, tt.args, status, stderr, tt.status, tt.want)
		}
	}
}

func TestSettingsSayWhereTheyCameFrom(t *testing.T) {
	settings := filepath.Join(t.TempDir(), "agl.yaml")
	if err := os.WriteFile(settings, []byte("port: 1\nsync: normal\nhost: ::1\nmodel: [a=http://x/v1, b=http://y/v1]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AGL_HOST", "localhost")
	t.Setenv("AGL_AUTH_TOKEN", "secret")
	status, out, stderr := run(t, "serve", "--print-config", "--config", settings, "--port", "2")
	if status != 0 {
		t.Fatalf("serve --print-config = %d, %s", status, stderr)
	}
	got := map[string]string{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		got[f[0]] = strings.Join(f[1:], " ")
	}
	want := map[string]string{
		"port": "2 flag", "host": "localhost AGL_HOST", "sync": "normal " + settings,
		"model": "[a=http://x/v1,b=http://y/v1] " + settings, "db": "sqlite:agl.db default",
		"auth-token": "(hidden) AGL_AUTH_TOKEN",
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s = %q, want %q", name, got[name], text)
		}
	}
	if strings.Contains(out, "secret") {
		t.Error("the token is shown")
	}
}

func TestOneServerForADatabase(t *testing.T) {
	t.Parallel()
	path := "sqlite:" + filepath.Join(t.TempDir(), "agl.db")
	serve(t, "--db", path)
	status, _, stderr := run(t, "serve", "--port", "0", "--db", path)
	if status != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "agl.db") {
		t.Errorf("second server on one database = %d, %q, want 1 and one line that names it", status, stderr)
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	status, version, _ := run(t, "version")
	if status != 0 || !strings.HasPrefix(version, "agl 0.") {
		t.Errorf("version = %d, %q", status, version)
	}
	for _, flag := range []string{"--version", "-v"} {
		if status, out, stderr := run(t, flag); status != 0 || out != version || stderr != "" {
			t.Errorf("agl %s = %d, %q, %q, want what agl version prints, %q", flag, status, out, stderr, version)
		}
	}
	if status, out, _ := run(t, "--help"); status != 0 || !strings.Contains(out, "-v, --version   version for agl\n") {
		t.Errorf("agl --help = %d, %s, want the flag --version", status, out)
	}
	for _, args := range [][]string{
		{"--help"},
		{"serve", "--help"},
		{"store", "--help"},
		{"rollouts", "ls", "--help"},
		{"rollouts", "show", "--help"},
		{"rollouts", "explain", "--help"},
		{"rollouts", "retry", "--help"},
		{"rollouts", "cancel", "--help"},
		{"rollouts", "export", "--help"},
		{"resources", "ls", "--help"},
		{"resources", "show", "--help"},
		{"resources", "diff", "--help"},
		{"version", "--help"},
		{"db", "--help"},
		{"db", "check", "--help"},
		{"db", "backup", "--help"},
		{"db", "vacuum", "--help"},
		{"db", "prune", "--help"},
		{"doctor", "--help"},
		{"agentops", "-h"},
	} {
		status, out, _ := run(t, args...)
		if status != 0 || len(args) > 1 && !strings.Contains(out, "Examples:") {
			t.Errorf("agl %v = %d, %s, want help with an example", args, status, out)
		}
	}
}
