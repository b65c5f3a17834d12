// Package lessontest has what the tests of the examples share: it runs an example
// as its command does and reads what it leaves.
package lessontest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentlightning/examples/internal/lesson"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// Example runs an example as its command does and returns the exit status.
type Example = func(args []string, stdout, stderr io.Writer) int

// Play runs an example with arguments and a report, which must end well. It returns
// the report and what the example printed.
func Play[R any](t *testing.T, example Example, args ...string) (R, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	var out, errs bytes.Buffer
	if status := example(append([]string{"--report", file}, args...), &out, &errs); status != 0 {
		t.Fatalf("%v = %d: %s", args, status, errs.String())
	}
	return ReadReport[R](t, file), out.String()
}

// ReadReport reads a report that an example wrote.
func ReadReport[R any](t *testing.T, file string) (r R) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Figures reads the reports of a seed and of its control that the example keeps.
func Figures[R any](t *testing.T, seed int64) (trained, control R) {
	t.Helper()
	read := func(name string) R {
		return ReadReport[R](t, filepath.Join("figures", fmt.Sprintf("%s-%d.json", name, seed)))
	}
	return read("seed"), read("shuffled")
}

// SameReport checks that a seed gave a report again, but for the times in it.
func SameReport(t *testing.T, first, again any) {
	t.Helper()
	timeless := cmpopts.IgnoreFields(lesson.Report{}, "Seconds", "TokensPerSecond")
	if diff := cmp.Diff(first, again, timeless, cmpopts.IgnoreUnexported(lesson.Report{})); diff != "" {
		t.Errorf("the same seed gave another report:\n%s", diff)
	}
}

// Refuses checks that an example answers arguments with status 1 and one line that
// has the text they are listed under.
func Refuses(t *testing.T, example Example, mistakes map[string][]string) {
	t.Helper()
	for want, args := range mistakes {
		var out, errs bytes.Buffer
		if status := example(args, &out, &errs); status != 1 || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), want) {
			t.Errorf("%v = %d, %q, want 1 and one line with %q", args, status, errs.String(), want)
		}
	}
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
