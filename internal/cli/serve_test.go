package cli_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestRefusalShowsTheCommandThatAdmits runs what the refusal says, as a shell does.
func TestRefusalShowsTheCommandThatAdmits(t *testing.T) {
	t.Parallel()
	model := "a=http://127.0.0.1:1/v1?x=1&y='2'"
	db := "sqlite:" + filepath.Join(t.TempDir(), "my agl.db")
	status, _, stderr := run(t, "serve", "--host", "0.0.0.0", "--port", "0", "--db", db, "--model", model, "--sync=normal", "--cors-origin", "*")
	if status != 2 || strings.Count(stderr, "\n") != 1 {
		t.Fatalf("serve on 0.0.0.0 = %d, %q, want 2 and one line", status, stderr)
	}
	_, command, _ := strings.Cut(strings.TrimSpace(stderr), "given the token: ")
	token, rest, _ := strings.Cut(command, " agl serve ")
	if !regexp.MustCompile(`^AGL_AUTH_TOKEN=[0-9a-f]{48}$`).MatchString(token) {
		t.Fatalf("the command is %q, want a token that nobody guesses in its environment", command)
	}
	if runtime.GOOS == "windows" {
		t.Skip("windows: there is no shell that reads the command")
	}
	words, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\n' `+rest).Output()
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimSpace(string(words)), "\n")
	ctx, stop := context.WithCancel(t.Context())
	var out, errs syncBuffer
	done := startServer(ctx, append([]string{"--auth-token", strings.TrimPrefix(token, "AGL_AUTH_TOKEN=")}, args...), &out, &errs)
	url := awaitURL(t, done, &out, &errs)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimPrefix(token, "AGL_AUTH_TOKEN="))
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("GET /v1/models with the token = %d, want 200", res.StatusCode)
	}
	stop()
	if status := <-done; status != 0 {
		t.Errorf("the command of the refusal ended with %d: %s", status, errs.String())
	}
}

func TestLogGoesWhereItIsSent(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agl.log")
	url := serve(t, "--db", "memory:", "--log-level", "error,http=debug", "--log-format", "json", "--log-file", file)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var line struct {
		Msg, Area, Path string
		RequestID       string `json:"request_id"`
		Status          int
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if err := json.Unmarshal([]byte(first), &line); err != nil || line.Area != "http" || line.Path != "/healthz" ||
		line.Status != 200 || line.RequestID != res.Header.Get("X-Request-Id") {
		t.Errorf("the log is %q, %v, want the request with the id %s", text, err, res.Header.Get("X-Request-Id"))
	}
}

// TestOptionsOfRelease03ThatMeanNothing are said to, a line each.
func TestOptionsOfRelease03ThatMeanNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agl.log")
	serve(t, "--log-file", file, "--backend", "memory", "--mongo-uri", "mongodb://x", "--n-workers", "4", "--tracker", "prometheus", "console")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range []string{"--mongo-uri has no effect", "--n-workers has no effect", "--tracker console has no effect"} {
		if n := strings.Count(string(text), option); n != 1 {
			t.Errorf("the log says %d times that %s, want once:\n%s", n, option, text)
		}
	}
}

// TestEveryOptionOfRelease03 starts the server by the name and the options that
// its users have in their scripts.
func TestEveryOptionOfRelease03(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"DEBUG", "INFO", "WARNING", "ERROR"} {
		file := filepath.Join(t.TempDir(), "agl.log")
		ctx, stop := context.WithCancel(t.Context())
		var out, errs syncBuffer
		done := startCommand(ctx, []string{
			"store", "--host", "127.0.0.1", "--port", "0", "--cors-origin", "http://a", "--cors-origin", "http://b",
			"--log-level", level, "--tracker", "prometheus", "console", "--n-workers", "2", "--backend", "memory",
			"--mongo-uri", "mongodb://localhost:27017/?replicaSet=rs0", "--log-file", file,
		}, &out, &errs)
		awaitURL(t, done, &out, &errs)
		stop()
		if status := <-done; status != 0 {
			t.Errorf("agl store --log-level %s ended with %d: %s", level, status, errs.String())
		}
	}
	if status, _, stderr := run(t, "store", "--backend", "mongo", "--port", "0"); status != 2 || !strings.Contains(stderr, "--backend mongo: not supported yet; use --db") {
		t.Errorf("agl store --backend mongo = %d %q, want a refusal that says what to use", status, stderr)
	}
}
