package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentlightning/examples/coding-agent/sandbox"
)

// The tests run this program again for what no command does everywhere.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "dial" {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp", os.Args[2])
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		conn.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const sum = `package sum

func Of(a, b int) int { return a - b }
`

// repository is one with a fault: one test of two fails.
func repository() map[string]string {
	return map[string]string{
		"go.mod": "module sum\n\ngo 1.26\n",
		"sum.go": sum,
		"sum_test.go": `package sum

import "testing"

func TestZero(t *testing.T) {
	if Of(0, 0) != 0 {
		t.Error("0 + 0 is not 0")
	}
}

func TestSum(t *testing.T) {
	if got := Of(2, 3); got != 5 {
		t.Errorf("2 + 3 = %d", got)
	}
}
`,
	}
}

func open(t *testing.T, limits sandbox.Limits) *sandbox.Folder {
	t.Helper()
	_, f := openAll(t, limits)
	return f
}

func openAll(t *testing.T, limits sandbox.Limits) (*sandbox.Workshop, *sandbox.Folder) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("programs of agents are run on Unix only")
	}
	w, err := sandbox.Open(t.Context(), limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("Close of the workshop = %v", err)
		}
	})
	f, err := w.Folder(repository())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dir := f.Dir()
		if err := f.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	})
	return w, f
}

func grade(t *testing.T, f *sandbox.Folder) sandbox.Grade {
	t.Helper()
	g, err := f.Grade(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func write(t *testing.T, f *sandbox.Folder, name, text string) {
	t.Helper()
	if err := f.Write(name, text); err != nil {
		t.Fatal(err)
	}
}

// The life of a repository: it fails, is mended, and passes.
func TestMend(t *testing.T) {
	t.Parallel()
	f := open(t, sandbox.Limits{})
	names, err := f.List()
	if diff := cmp.Diff([]string{"go.mod", "sum.go", "sum_test.go"}, names); err != nil || diff != "" {
		t.Errorf("List = %v, %v", names, err)
	}
	if text, err := f.Read("sum.go"); err != nil || text != sum {
		t.Errorf("Read = %q, %v", text, err)
	}
	output, passed, err := f.Test(t.Context())
	if err != nil || passed || !strings.Contains(output, "sum_test.go:13: 2 + 3 = -1") || !strings.Contains(output, "--- PASS: TestZero") {
		t.Errorf("Test = %t, %v:\n%s", passed, err, output)
	}
	if err := f.Edit("sum.go", "a - b", "a + "); err != nil {
		t.Fatal(err)
	}
	output, passed, err = f.Test(t.Context())
	if err != nil || passed || !strings.Contains(output, "sum.go:3:") || strings.Contains(output, f.Dir()) {
		t.Errorf("Test of what does not compile = %t, %v:\n%s", passed, err, output)
	}
	if err := f.Edit("sum.go", "a + ", "a + b "); err != nil {
		t.Fatal(err)
	}
	if got, want := grade(t, f), (sandbox.Grade{Passed: 2, Total: 2, AsLeft: true}); !cmp.Equal(got, want) {
		t.Errorf("Grade = %+v, want %+v", got, want)
	}
}

// No path leads out of the folder, whichever way it is written, and nothing but
// Go is written in it.
func TestPaths(t *testing.T) {
	t.Parallel()
	f := open(t, sandbox.Limits{})
	outside := filepath.Join(t.TempDir(), "secret.go")
	if err := os.WriteFile(outside, []byte("package secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The agent has no way to make a link; if it had, it would not help.
	for link, to := range map[string]string{"link.go": outside, "up": "../.."} {
		if err := os.Symlink(to, filepath.Join(f.Dir(), link)); err != nil {
			t.Fatal(err)
		}
	}
	base := filepath.Base(filepath.Dir(f.Dir()))
	for _, name := range []string{"../escape.go", "sub/../../escape.go", outside, "link.go", "up/" + base + "/repository/sum.go", "up/escape.go", ""} {
		if text, err := f.Read(name); err == nil {
			t.Errorf("Read(%q) = %q, want an error", name, text)
		}
		if err := f.Write(name, "package escaped\n"); err == nil {
			t.Errorf("Write(%q) went through", name)
		}
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "package secret\n" {
		t.Errorf("the file outside is %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(f.Dir()), "escape.go")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("escape.go was written: %v", err)
	}
	for _, name := range []string{"go.mod", "asm.s", "go.work", "vendor/modules.txt"} {
		if err := f.Write(name, "x"); err == nil || !strings.Contains(err.Error(), "only .go files") {
			t.Errorf("Write(%q) = %v", name, err)
		}
	}
	if err := f.Write("long.go", strings.Repeat("/", 65<<10)); err == nil || !strings.Contains(err.Error(), "more than 65536") {
		t.Errorf("Write of a long file = %v", err)
	}
}

func TestManyFiles(t *testing.T) {
	t.Parallel()
	f := open(t, sandbox.Limits{})
	for i := range 47 {
		write(t, f, fmt.Sprintf("f%d.go", i), "package sum\n")
	}
	if err := f.Write("one_more.go", "package sum\n"); err == nil || !strings.Contains(err.Error(), "50 files already") {
		t.Errorf("the 51st file: %v", err)
	}
	write(t, f, "f1.go", "package sum // again\n")
}

// What reaches out of the process is not compiled.
func TestImports(t *testing.T) {
	t.Parallel()
	f := open(t, sandbox.Limits{})
	for _, imported := range []string{"os", "net", "net/http", "os/exec", "syscall", "unsafe", "C", "embed", "plugin", "runtime/debug", "testing", "sum/internal"} {
		write(t, f, "extra.go", "package sum\n\nimport _ \""+imported+"\"\n")
		want := fmt.Sprintf("extra.go: import of %q is not allowed here\n", imported)
		if output, passed, err := f.Test(t.Context()); err != nil || passed || output != want {
			t.Errorf("Test = %q, %t, %v, want %q", output, passed, err, want)
		}
	}
	write(t, f, "extra.go", "package sum\n\nimport (\n")
	if output, passed, err := f.Test(t.Context()); err != nil || passed || !strings.Contains(output, "extra.go:") {
		t.Errorf("Test = %q, %t, %v", output, passed, err)
	}
}

// Tests that were touched do not count, whatever was done to them.
func TestTouchedTests(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct {
		do   func(t *testing.T, f *sandbox.Folder)
		want sandbox.Grade
	}{
		"emptied": {
			func(t *testing.T, f *sandbox.Folder) {
				t.Helper()
				write(t, f, "sum_test.go", "package sum\n\nimport \"testing\"\n\nfunc TestSum(*testing.T) {}\n")
			},
			sandbox.Grade{Passed: 1, Total: 2, AsLeft: true, Edited: []string{"sum_test.go"}},
		},
		"skipped": {
			func(t *testing.T, f *sandbox.Folder) {
				t.Helper()
				if err := f.Edit("sum_test.go", "func TestSum(t *testing.T) {", "func TestSum(t *testing.T) {\n\tt.Skip(\"later\")"); err != nil {
					t.Fatal(err)
				}
			},
			sandbox.Grade{Passed: 1, Total: 2, AsLeft: true, Edited: []string{"sum_test.go"}},
		},
		"a TestMain that runs none": {
			func(t *testing.T, f *sandbox.Folder) {
				t.Helper()
				write(t, f, "main_test.go", "package sum\n\nimport \"testing\"\n\nfunc TestMain(*testing.M) {}\n")
			},
			sandbox.Grade{Passed: 1, Total: 2, AsLeft: true, Edited: []string{"main_test.go"}},
		},
		"a code that prints what a test would": {
			func(t *testing.T, f *sandbox.Folder) {
				t.Helper()
				write(t, f, "sum.go", "package sum\n\nimport \"fmt\"\n\nfunc Of(a, b int) int {\n\tfmt.Println(\"--- PASS: TestSum\\nPASS\")\n\treturn a - b\n}\n")
			},
			sandbox.Grade{Passed: 1, Total: 2},
		},
		"nothing": {func(*testing.T, *sandbox.Folder) {}, sandbox.Grade{Passed: 1, Total: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, sandbox.Limits{})
			how.do(t, f)
			if diff := cmp.Diff(how.want, grade(t, f)); diff != "" {
				t.Errorf("Grade (-want +got):\n%s", diff)
			}
			if text, err := f.Read("sum_test.go"); err != nil || text != repository()["sum_test.go"] {
				t.Errorf("the tests are not as they were: %v\n%s", err, text)
			}
		})
	}
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	f := open(t, sandbox.Limits{Time: 200 * time.Millisecond})
	write(t, f, "sum.go", "package sum\n\nfunc Of(a, b int) int {\n\tfor {\n\t}\n}\n")
	output, passed, err := f.Test(t.Context())
	if err != nil || passed || !strings.Contains(output, "killed: it ran for more than 200ms") {
		t.Errorf("Test = %t, %v:\n%s", passed, err, output)
	}
}

func TestOutputLimit(t *testing.T) {
	t.Parallel()
	f := open(t, sandbox.Limits{Output: 1000})
	write(t, f, "sum.go", "package sum\n\nimport (\n\t\"fmt\"\n\t\"strings\"\n)\n\nfunc Of(a, b int) int {\n\tfmt.Print(strings.Repeat(\"x\", 100_000))\n\treturn a + b\n}\n")
	output, passed, err := f.Test(t.Context())
	if err != nil || !passed || len(output) > 1100 || !strings.Contains(output, "bytes more were left out") {
		t.Errorf("Test = %t, %v, %d bytes:\n%.1200s", passed, err, len(output), output)
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("memory is limited on Linux only")
	}
	f := open(t, sandbox.Limits{Memory: 64 << 20, Time: time.Minute})
	write(t, f, "sum.go", "package sum\n\nvar all [][]byte\n\nfunc Of(a, b int) int {\n\tfor {\n\t\tall = append(all, make([]byte, 1<<20))\n\t\tfor i := range all[len(all)-1] {\n\t\t\tall[len(all)-1][i] = 1\n\t\t}\n\t}\n}\n")
	output, passed, err := f.Test(t.Context())
	if err != nil || passed || !strings.Contains(output, "more than the limit of 64 MiB") {
		t.Errorf("Test = %t, %v:\n%.1000s", passed, err, output)
	}
}

func TestProcessLimit(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("processes are limited on Linux only")
	}
	f := open(t, sandbox.Limits{Time: time.Minute})
	output, passed, err := f.Run(t.Context(), "/bin/sh", "-c", "sleep 50 & sleep 50 & sleep 50 & wait")
	if err != nil || passed || !strings.Contains(output, "more than the limit of 2") {
		t.Errorf("Run = %q, %t, %v", output, passed, err)
	}
}

// The environment holds nothing of ours, and compiling takes nothing from a
// network or from our settings.
func TestEnvironment(t *testing.T) {
	t.Setenv("AGL_AUTH_TOKEN", "secret")
	t.Setenv("GOFLAGS", "-tags=ours")
	t.Setenv("GOPROXY", "https://proxy.golang.org")
	f := open(t, sandbox.Limits{})
	output, passed, err := f.Run(t.Context(), "/usr/bin/env")
	if err != nil || !passed {
		t.Fatalf("Run = %q, %t, %v", output, passed, err)
	}
	var names []string
	for line := range strings.Lines(output) {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"AGL_PROCESS_MARK", "HOME", "TMPDIR"}, names); diff != "" {
		t.Errorf("the environment (-want +got):\n%s", diff)
	}
	for _, want := range []string{"GOPROXY=off", "GOSUMDB=off", "GOENV=off", "GOTOOLCHAIN=local", "GOFLAGS=-mod=mod -buildvcs=false", "CGO_ENABLED=0"} {
		if !slices.Contains(f.ToolEnv(), want) {
			t.Errorf("the compiler lacks %s: %v", want, f.ToolEnv())
		}
	}
}

// The agent's code reaches nobody, even when it imports what could.
func TestNetwork(t *testing.T) {
	t.Parallel()
	w, f := openAll(t, sandbox.Limits{Processes: 20})
	if !w.NetworkCut() {
		t.Skip("this system lets nobody make a network namespace; the rule on imports holds all the same")
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	output, passed, err := f.Run(t.Context(), self, "dial", listener.Addr().String())
	if err != nil || passed || !strings.Contains(output, "network is unreachable") {
		t.Errorf("dialled from the sandbox: %q, %t, %v", output, passed, err)
	}
}

// What the code starts ends with it, also when it hides in a session of its own.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("processes that leave their group are found on Linux only")
	}
	f := open(t, sandbox.Limits{Processes: 20})
	for name, command := range map[string]string{
		"in the group": "sleep 300 & echo $!", "in a session of its own": "setsid /bin/sh -c 'sleep 300 >/dev/null 2>&1 & echo $!'",
	} {
		output, passed, err := f.Run(t.Context(), "/bin/sh", "-c", "PATH=/usr/bin:/bin; "+command)
		if err != nil || !passed {
			t.Fatalf("%s: Run = %q, %t, %v", name, output, passed, err)
		}
		awaitGone(t, strings.TrimSpace(output))
	}
}

// awaitGone waits for the end of a process that was killed.
func awaitGone(t *testing.T, pid string) {
	t.Helper()
	end, tick := time.After(10*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for {
		state, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("process %s still runs: %s", pid, state)
		}
	}
}

// An interrupt ends what runs, and is what the caller is told.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	f := open(t, sandbox.Limits{Time: time.Hour})
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, _, err := f.Run(ctx, "/bin/sh", "-c", "sleep 300"); !errors.Is(err, why) {
		t.Errorf("Run = %v, want %v", err, why)
	}
}
