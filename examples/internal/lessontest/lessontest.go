// Package lessontest has what the tests of the examples share: it runs an example
// as its command does and reads what it leaves.
package lessontest

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// Play runs an example with arguments and a report, which must end well. It returns
// the report and what the example printed.
func Play[R any](t *testing.T, example func(args []string, stdout, stderr io.Writer) int, args ...string) (R, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	var out, errs bytes.Buffer
	if status := example(append([]string{"--report", file}, args...), &out, &errs); status != 0 {
		t.Fatalf("%v = %d: %s", args, status, errs.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r R
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r, out.String()
}

// ReadmeShows checks that the README of the example shows what it printed, as a
// block of its own.
func ReadmeShows(t *testing.T, printed string) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if printed == "" || !strings.Contains(string(readme), "```\n"+printed+"```\n") {
		t.Errorf("the README lacks this output:\n%s", printed)
	}
}

// Open opens the database that an example left, until the test is over.
func Open(t *testing.T, db string) *engine.Store {
	t.Helper()
	backend, err := sqlite.Open(t.Context(), sqlite.Config{Path: db})
	if err != nil {
		t.Fatal(err)
	}
	st := engine.New(backend, engine.Config{})
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return st
}
