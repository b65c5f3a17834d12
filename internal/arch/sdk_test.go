package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// clonePath is what the README calls the folder of this repository.
const clonePath = "/path/to/agent-lightning-go"

// TestAnotherModule does what the README tells somebody who wants to use the
// SDK: the program as it is printed, the commands as they are printed, and what
// they print. It needs no network beyond the modules that the tests need anyway.
func TestAnotherModule(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program in a module of its own")
	}
	r := repo(t)
	blocks := fenced(r.read(t, "README.md"))
	at := slices.IndexFunc(blocks, func(b block) bool {
		return b.language == "go" && strings.HasPrefix(b.text, "package main\n")
	})
	if at < 0 || at+2 >= len(blocks) {
		t.Fatal("README.md has no program that begins with \"package main\", followed by the commands that run it and by what it prints")
	}
	program, commands, want := blocks[at].text, blocks[at+1].text, blocks[at+2].text

	dir := t.TempDir()
	write(t, filepath.Join(dir, "main.go"), program)
	// The checksums of the clone, so that nothing is looked up.
	write(t, filepath.Join(dir, "go.sum"), r.read(t, "go.sum"))
	var got string
	ran := 0
	for line := range strings.Lines(commands) {
		args := strings.Fields(strings.ReplaceAll(line, clonePath, filepath.ToSlash(r.root)))
		if len(args) == 0 || args[0] != "go" {
			continue // mkdir and cd
		}
		got = goCommand(t, dir, args[1:]...)
		ran++
	}
	if ran < 3 {
		t.Fatalf("README.md gives %d go commands after its program, fewer than a new module needs:\n%s", ran, commands)
	}
	if got != want {
		t.Errorf("the program of README.md printed\n%s\nREADME.md says\n%s", got, want)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestProgramsInDocuments compiles every whole program that the documents show.
func TestProgramsInDocuments(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds programs in a module of their own")
	}
	r := repo(t)
	dir := t.TempDir()
	n := 0
	for _, file := range r.documents() {
		for i, b := range fenced(r.read(t, file)) {
			if b.language != "go" || !strings.HasPrefix(b.text, "package main\n") {
				continue
			}
			folder := strings.ReplaceAll(strings.TrimSuffix(file, ".md"), "/", "-") + "-" + strconv.Itoa(i)
			if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, folder, "main.go"), b.text)
			n++
		}
	}
	if n < 3 {
		t.Errorf("the documents show %d whole programs: the README, write-an-agent.md and write-an-algorithm.md have one each", n)
	}
	write(t, filepath.Join(dir, "go.sum"), r.read(t, "go.sum"))
	for _, args := range [][]string{
		{"mod", "init", "programs"},
		{"mod", "edit", "-replace", module + "=" + filepath.ToSlash(r.root)},
		{"get", "./..."},
		{"vet", "./..."},
	} {
		goCommand(t, dir, args...)
	}
}

// goCommand runs the go command in a module that is not ours and returns what it printed.
func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GO111MODULE=on")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.String()
}
