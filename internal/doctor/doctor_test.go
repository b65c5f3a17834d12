package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/internal/doctor"
)

// stub serves fixed answers, as a server of ours or something else.
func stub(t *testing.T, ours bool, answers map[string]string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ours {
			w.Header().Set("X-Request-Id", "1")
		}
		text, ok := answers[r.URL.Path+" "+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		if !ok {
			text, ok = answers[r.URL.Path]
		}
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if text == "late" {
			w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
			text = "{}"
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(s.Close)
	return s
}

func at(t *testing.T, s *httptest.Server) (host string, port int) {
	t.Helper()
	host, text, err := net.SplitHostPort(strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if port, err = strconv.Atoi(text); err != nil {
		t.Fatal(err)
	}
	return host, port
}

func sound(context.Context, string) (string, []string, error) { return "3 rollouts", nil, nil }

func TestExamine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "agl.db")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	future := filepath.Join(dir, "future.db")
	if err := os.WriteFile(future, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(future, time.Now(), time.Now().Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	const token = "a token that is long enough"
	server := stub(t, true, map[string]string{
		"/healthz": "{}", "/v1/agl/statistics " + token: "{}",
		"/v1/agl/models " + token: `[{"model":"kept","endpoint":"http://127.0.0.1:1/v1"}]`,
	})
	late := stub(t, true, map[string]string{"/healthz": "late", "/v1/agl/statistics": "{}"})
	foreign := stub(t, false, map[string]string{"/healthz": "hello"})
	backend := stub(t, false, map[string]string{"/v1/models": `{"data":[{"id":"m"},{"id":"n"}]}`, "/v2/models": "hello", "/v3/models key": `{"data":[{"id":"m"}]}`})
	config := func(s *httptest.Server) doctor.Config {
		c := doctor.Config{Host: "127.0.0.1", Database: file, CheckDatabase: sound, OpenFiles: 65536}
		if s != nil {
			c.Host, c.Port = at(t, s)
		}
		return c
	}
	with := func(c doctor.Config, change func(*doctor.Config)) doctor.Config {
		change(&c)
		return c
	}
	const good, warn, bad = doctor.Good, doctor.Warn, doctor.Bad
	for _, tt := range []struct {
		name   string
		config doctor.Config
		level  doctor.Level
		of     string
		text   string
		fix    string
	}{
		{"free port", config(nil), good, "port", "is free", ""},
		{"our server", config(server), good, "port", "a server answers", ""},
		{"another program", config(foreign), bad, "port", "not this server", "--port"},
		{"address of nobody", with(config(nil), func(c *doctor.Config) { c.Host = "192.0.2.1"; c.Token = token }), bad, "port", "cannot be listened on", "--host"},
		{"no token", config(nil), good, "token", "only this machine", ""},
		{"no token for others", with(config(nil), func(c *doctor.Config) { c.Host = "0.0.0.0" }), bad, "token", "refuse to start", "AGL_AUTH_TOKEN"},
		{"insecure", with(config(nil), func(c *doctor.Config) { c.Host = "0.0.0.0"; c.Insecure = true }), warn, "token", "--insecure", "AGL_AUTH_TOKEN"},
		{"short token", with(config(nil), func(c *doctor.Config) { c.Token = "1234" }), warn, "token", "4 characters", "openssl"},
		{"wrong token", with(config(server), func(c *doctor.Config) { c.Token = token + "x" }), bad, "token", "does not take it", "AGL_AUTH_TOKEN"},
		{"right token", with(config(server), func(c *doctor.Config) { c.Token = token }), good, "token", "takes it", ""},
		{"sound database", config(nil), good, "database", "3 rollouts", ""},
		{"damaged database", with(config(nil), func(c *doctor.Config) {
			c.CheckDatabase = func(context.Context, string) (string, []string, error) { return "", []string{"page 3 is broken"}, nil }
		}), bad, "database", "page 3 is broken", "restore a backup"},
		{"unreadable database", with(config(nil), func(c *doctor.Config) {
			c.CheckDatabase = func(context.Context, string) (string, []string, error) { return "", nil, errors.New("it is a cake") }
		}), bad, "database", "it is a cake", "--db"},
		{"new database", with(config(nil), func(c *doctor.Config) { c.Database = filepath.Join(dir, "new.db") }), good, "database", "will be made", ""},
		{"database in no folder", with(config(nil), func(c *doctor.Config) { c.Database = filepath.Join(dir, "none", "new.db") }), bad, "database", "cannot be made", "create the folder"},
		{"memory", with(config(nil), func(c *doctor.Config) { c.Database = "" }), good, "database", "in memory", ""},
		{"database of tomorrow", with(config(nil), func(c *doctor.Config) { c.Database = future }), bad, "clock", "was written at", "NTP"},
		{"server of an hour ago", config(late), warn, "clock", "here and", "NTP"},
		{"right clock", config(server), good, "clock", "", ""},
		{"full disk", with(config(nil), func(c *doctor.Config) {
			c.FreeSpace = func(string) (uint64, error) { return 50 << 20, nil }
		}), bad, "disk", "only 50.0 MiB", "prune"},
		{"disk that fills", with(config(nil), func(c *doctor.Config) {
			c.FreeSpace = func(string) (uint64, error) { return 3 << 29, nil }
		}), warn, "disk", "only 1.5 GiB", "prune"},
		{"room on the disk", with(config(nil), func(c *doctor.Config) {
			c.FreeSpace = func(string) (uint64, error) { return 3 << 40, nil }
		}), good, "disk", "3.0 TiB", ""},
		{"few files", with(config(nil), func(c *doctor.Config) { c.OpenFiles = 256 }), warn, "open files", "256", "ulimit"},
		{"many files", config(nil), good, "open files", "65536", ""},
		{"no model", config(nil), good, "models", "--model", ""},
		{"model", with(config(nil), func(c *doctor.Config) { c.Models = []agl.Model{{Name: "m", Endpoint: backend.URL + "/v1"}} }), good, "model m", "serves it", ""},
		{"model by another name", with(config(nil), func(c *doctor.Config) {
			c.Models = []agl.Model{{Name: "x", Target: "n", Endpoint: backend.URL + "/v1/"}}
		}), good, "model x", "serves it", ""},
		{"model that is not listed", with(config(nil), func(c *doctor.Config) { c.Models = []agl.Model{{Name: "x", Endpoint: backend.URL + "/v1"}} }), warn, "model x", "it lists m, n", "as the backend does"},
		{"no backend", with(config(nil), func(c *doctor.Config) { c.Models = []agl.Model{{Name: "m", Endpoint: "http://127.0.0.1:1/v1"}} }), bad, "model m", "cannot be reached", "start the backend"},
		{"something else", with(config(nil), func(c *doctor.Config) { c.Models = []agl.Model{{Name: "m", Endpoint: backend.URL + "/v2"}} }), warn, "model m", "shape of OpenAI", "/v1"},
		{"model without its key", with(config(nil), func(c *doctor.Config) { c.Models = []agl.Model{{Name: "m", Endpoint: backend.URL + "/v3"}} }), bad, "model m", "another key", "api_key"},
		{"model with its key", with(config(nil), func(c *doctor.Config) {
			c.Models = []agl.Model{{Name: "m", Endpoint: backend.URL + "/v3", APIKey: "key"}}
		}), good, "model m", "serves it", ""},
		{"model of the server", with(config(server), func(c *doctor.Config) { c.Token = token }), bad, "model kept", "cannot be reached", "start the backend"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all := doctor.Examine(t.Context(), tt.config)
			for _, f := range all {
				if f.Name == tt.of && f.Level == tt.level && strings.Contains(f.Text, tt.text) && strings.Contains(f.Fix, tt.fix) && (tt.fix == "") == (f.Fix == "") {
					return
				}
			}
			t.Errorf("findings are %+v\nwant %s of %s with %q, to be mended by %q", all, tt.level, tt.of, tt.text, tt.fix)
		})
	}
}

// TestExamineServing: a server that looks at itself has a port and a token.
func TestExamineServing(t *testing.T) {
	t.Parallel()
	var looked []string
	for _, f := range doctor.Examine(t.Context(), doctor.Config{Serving: true, Host: "192.0.2.1", OpenFiles: 65536}) {
		looked = append(looked, string(f.Level)+" "+f.Name)
	}
	if want := []string{"ok database", "ok clock", "ok open files", "ok models"}; !slices.Equal(looked, want) {
		t.Errorf("findings are %q, want %q", looked, want)
	}
}
