package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"agentlightning/internal/proc"
)

// Limits bound one run of the agent's code. Zero values take the defaults.
type Limits struct {
	// Time is how long it may run. Default 5 s.
	Time time.Duration
	// Output is how many bytes of what it writes are kept. Default 8 KiB.
	Output int
	// Memory is how much it may hold, in bytes. Default 512 MiB; kept on Linux only.
	Memory int64
	// Processes is how many it may be at once. Default 2; kept on Linux only.
	Processes int
}

func (l Limits) withDefaults() Limits {
	l.Time = cmp.Or(l.Time, 5*time.Second)
	l.Output = cmp.Or(l.Output, 8<<10)
	l.Memory = cmp.Or(l.Memory, 512<<20)
	l.Processes = cmp.Or(l.Processes, 2)
	return l
}

// The compiler is not the agent's, but what it compiles is.
const (
	buildTime      = 3 * time.Minute // the standard library too, the first time
	buildMemory    = 2 << 30
	buildProcesses = 64
)

// Workshop makes folders and runs what is in them. It is safe for concurrent use.
type Workshop struct {
	limits Limits
	group  proc.Group
	goTool string
	// toolEnv is the environment of the compiler.
	toolEnv []string
	// apart begins the command line of everything that runs: it takes the network
	// away. Empty where that cannot be done.
	apart []string
}

// Open finds the Go tool. Close the workshop when no folder of it is in use.
func Open(ctx context.Context, limits Limits) (*Workshop, error) {
	text, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("find the Go tool, which compiles what agents write: %w", err)
	}
	root, cache, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	w := &Workshop{limits: limits.withDefaults(), goTool: filepath.Join(root, "bin", "go")}
	w.toolEnv = []string{
		// The cache holds what the compiler wrote. Code of agents never runs with it
		// in its environment.
		"GOCACHE=" + strings.TrimSpace(cache), "GOROOT=" + root, "GOENV=off", "GOTOOLCHAIN=local", "GOWORK=off", "GOTELEMETRY=off",
		"GOPROXY=off", "GOSUMDB=off", "GOVCS=*:off", "GOFLAGS=-mod=mod -buildvcs=false", "CGO_ENABLED=0",
	}
	if w.apart, err = withoutNetwork(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// withoutNetwork returns what begins a command line so that the command has no
// network: a namespace of its own, where Linux gives us one.
func withoutNetwork(ctx context.Context) ([]string, error) {
	if runtime.GOOS != "linux" {
		return nil, nil
	}
	// Where the programs are missing or the kernel refuses, there is no way.
	unshare, unknown := exec.LookPath("unshare")
	nothing, noProgram := exec.LookPath("true")
	if unknown != nil || noProgram != nil {
		return nil, nil //nolint:nilerr // see above
	}
	apart := []string{unshare, "--map-root-user", "--net", "--"}
	refused := exec.CommandContext(ctx, unshare, append(slices.Clone(apart[1:]), nothing)...).Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if refused != nil {
		return nil, nil //nolint:nilerr // see above
	}
	return apart, nil
}

// NetworkCut tells whether what runs in the workshop has no network whatever it
// imports.
func (w *Workshop) NetworkCut() bool { return w.apart != nil }

// Close ends what still runs.
func (w *Workshop) Close() error { return w.group.Close() }

// job is something to run.
type job struct {
	dir     string
	env     []string
	time    time.Duration
	limits  proc.Limits
	command []string
}

// errOutOfTime is why a job was stopped that took too long.
var errOutOfTime = errors.New("out of time")

// run returns what a job wrote and whether it ended with status 0. The error is
// of ours, or says that ctx has ended.
func (w *Workshop) run(ctx context.Context, j job) (string, bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, j.time, errOutOfTime)
	defer cancel()
	if runtime.GOOS != "linux" {
		j.limits = proc.Limits{}
	}
	out := &kept{most: w.limits.Output}
	p, err := w.group.Start(proc.Spec{
		Command: slices.Concat(w.apart, j.command),
		Dir:     j.dir, Env: j.env, Stdout: out, Stderr: out, Limits: j.limits,
	})
	if err != nil {
		return "", false, fmt.Errorf("run %s: %w", filepath.Base(j.command[0]), err)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Stop(0)
		if !errors.Is(context.Cause(ctx), errOutOfTime) {
			return "", false, context.Cause(ctx)
		}
		return out.String() + fmt.Sprintf("killed: it ran for more than %v\n", j.time), false, nil
	}
	text := out.String()
	if exit := p.Wait(); exit.Code != 0 || exit.Err != nil {
		return text + exit.String() + "\n", false, nil
	}
	return text, true, nil
}

// kept keeps the first bytes that are written to it.
type kept struct {
	most int
	text bytes.Buffer
	left int
}

func (k *kept) Write(b []byte) (int, error) {
	keep := min(len(b), k.most-k.text.Len())
	k.text.Write(b[:keep])
	k.left += len(b) - keep
	return len(b), nil
}

func (k *kept) String() string {
	text := strings.ToValidUTF8(k.text.String(), "\uFFFD")
	if k.left > 0 {
		text += fmt.Sprintf("\n… %d bytes more were left out\n", k.left)
	}
	return text
}

// Folder returns a new folder with a repository: paths with slashes, and what is
// in the files.
func (w *Workshop) Folder(files map[string]string) (_ *Folder, err error) {
	base, err := os.MkdirTemp("", "agl-coding-")
	if err != nil {
		return nil, err
	}
	f := &Folder{workshop: w, base: base, dir: filepath.Join(base, "repository"), original: files}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	for _, dir := range []string{f.dir, f.temp()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if f.root, err = os.OpenRoot(f.dir); err != nil {
		return nil, err
	}
	for name, text := range files {
		if err := f.put(name, text); err != nil {
			return nil, err
		}
	}
	return f, nil
}
