package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"agentlightning/internal/proc"
)

const (
	// maxFile is how long a file may be, in bytes, and maxFiles how many there may be.
	maxFile  = 64 << 10
	maxFiles = 50
)

// Folder is a repository that an agent works on. It is used by one goroutine.
type Folder struct {
	workshop  *Workshop
	base, dir string
	root      *os.Root
	original  map[string]string
	// built is what was compiled last, so that the same files are compiled once.
	built build
}

// build is what became of compiling files.
type build struct {
	files   [sha256.Size]byte
	program string // empty when there is none
	problem string
}

// Close removes the folder.
func (f *Folder) Close() error {
	var err error
	if f.root != nil {
		err = f.root.Close()
	}
	return errors.Join(err, os.RemoveAll(f.base))
}

func (f *Folder) temp() string { return filepath.Join(f.base, "temp") }

// List returns the paths of all files, sorted.
func (f *Folder) List() ([]string, error) {
	var names []string
	err := fs.WalkDir(f.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

// Read returns what is in a file.
func (f *Folder) Read(name string) (string, error) {
	info, err := f.root.Stat(name)
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("%s: longer than %d bytes", name, maxFile)
	}
	if err != nil {
		return "", err
	}
	text, err := f.root.ReadFile(name)
	return string(text), err
}

// Write replaces a file or makes a new one. Agents write Go and nothing else: the
// module is not theirs to change.
func (f *Folder) Write(name, text string) error {
	switch {
	case path.Ext(name) != ".go":
		return fmt.Errorf("%s: only .go files can be written", name)
	case len(text) > maxFile:
		return fmt.Errorf("%s: %d bytes are more than %d", name, len(text), maxFile)
	}
	names, err := f.List()
	if err != nil {
		return err
	}
	if len(names) >= maxFiles && !slices.Contains(names, path.Clean(name)) {
		return fmt.Errorf("%s: there are %d files already", name, len(names))
	}
	return f.root.WriteFile(name, []byte(text), 0o600)
}

// Edit replaces a text that occurs in a file exactly once.
func (f *Folder) Edit(name, before, after string) error {
	text, err := f.Read(name)
	if err != nil {
		return err
	}
	if n := strings.Count(text, before); n != 1 || before == "" {
		return fmt.Errorf("%s: the text to replace occurs %d times, not once", name, n)
	}
	return f.Write(name, strings.Replace(text, before, after, 1))
}

// put writes any file of the repository.
func (f *Folder) put(name, text string) error {
	if err := f.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	return f.root.WriteFile(name, []byte(text), 0o600)
}

// Test runs all tests as they are now and returns what they print. It passes when
// the code compiles and no test fails.
func (f *Folder) Test(ctx context.Context) (output string, passed bool, err error) {
	b, err := f.compile(ctx)
	if err != nil || b.program == "" {
		return b.problem, false, err
	}
	return f.test(ctx, b.program, "-test.v")
}

func (f *Folder) test(ctx context.Context, program string, flags ...string) (string, bool, error) {
	w := f.workshop
	output, passed, err := w.run(ctx, job{
		dir: f.dir, env: []string{"HOME=" + f.temp(), "TMPDIR=" + f.temp()}, time: w.limits.Time,
		limits:  proc.Limits{Memory: w.limits.Memory, Processes: w.limits.Processes},
		command: append([]string{program, "-test.paniconexit0"}, flags...),
	})
	return f.plain(output), passed, err
}

// plain shows paths as the agent knows them.
func (f *Folder) plain(output string) string {
	return strings.ReplaceAll(output, f.dir+string(filepath.Separator), "")
}

// compile makes the program of all tests, or says what is wrong with the code.
func (f *Folder) compile(ctx context.Context) (build, error) {
	files, err := f.files()
	if err != nil {
		return build{}, err
	}
	b := build{files: digest(files)}
	if b.files == f.built.files {
		return f.built, nil
	}
	if b.problem = refused(files); b.problem == "" {
		program := filepath.Join(f.base, "program")
		output, ok, err := f.workshop.run(ctx, job{
			dir: f.dir, env: slices.Concat(f.workshop.toolEnv, []string{"HOME=" + f.temp(), "TMPDIR=" + f.temp(), "GOMODCACHE=" + filepath.Join(f.temp(), "modules")}),
			time: buildTime, limits: proc.Limits{Memory: buildMemory, Processes: buildProcesses},
			command: []string{f.workshop.goTool, "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", program, "."},
		})
		switch {
		case err != nil:
			return build{}, err
		case ok:
			b.program = program
		default:
			b.problem = f.plain(output)
		}
	}
	f.built = b
	return b, nil
}

func (f *Folder) files() (map[string]string, error) {
	names, err := f.List()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, name := range names {
		if files[name], err = f.Read(name); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func digest(files map[string]string) [sha256.Size]byte {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(sum, "%q %q\n", name, files[name])
	}
	return [sha256.Size]byte(sum.Sum(nil))
}

// harmless are the packages that the agent's code may import: they compute.
var harmless = map[string]bool{
	"bytes": true, "cmp": true, "container/heap": true, "container/list": true, "errors": true, "fmt": true, "iter": true,
	"maps": true, "math": true, "math/big": true, "math/bits": true, "math/rand/v2": true, "regexp": true, "slices": true,
	"sort": true, "strconv": true, "strings": true, "sync": true, "sync/atomic": true, "time": true, "unicode": true, "unicode/utf8": true,
}

// refused says which file imports what it must not, or has imports that cannot be
// read; empty when none does.
func refused(files map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".go" {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, files[name], parser.ImportsOnly)
		if err != nil {
			return err.Error() + "\n"
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err == nil && !harmless[imported] && (imported != "testing" || !isTest(name)) {
				return fmt.Sprintf("%s: import of %q is not allowed here\n", name, imported)
			}
		}
	}
	return ""
}

func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

// Grade is what the grader says of a folder.
type Grade struct {
	// Passed of Total tests pass, as they were before the agent came.
	Passed, Total int
	// AsLeft tells that all tests pass as the agent left them.
	AsLeft bool
	// Edited lists the test files that the agent changed, removed or added.
	Edited []string
}

// Grade puts the tests back as they were, runs each in a process of its own and
// counts those that end with status 0: nothing that the code prints counts.
func (f *Folder) Grade(ctx context.Context) (Grade, error) {
	var g Grade
	var err error
	if _, g.AsLeft, err = f.Test(ctx); err != nil {
		return g, err
	}
	if g.Edited, err = f.restore(); err != nil {
		return g, err
	}
	tests, err := testNames(f.original)
	if err != nil {
		return g, err
	}
	g.Total = len(tests)
	b, err := f.compile(ctx)
	if err != nil || b.program == "" {
		return g, err
	}
	for _, name := range tests {
		_, passed, err := f.test(ctx, b.program, "-test.run=^"+name+"$")
		if err != nil {
			return g, err
		}
		if passed {
			g.Passed++
		}
	}
	return g, nil
}

// restore puts the test files and the module back and returns which test files
// were not as they had been.
func (f *Folder) restore() (edited []string, err error) {
	now, err := f.files()
	if err != nil {
		return nil, err
	}
	for name := range now {
		if _, ours := f.original[name]; !ours && isTest(name) {
			edited = append(edited, name)
			if err := f.root.Remove(name); err != nil {
				return nil, err
			}
		}
	}
	for name, text := range f.original {
		if got, there := now[name]; (!isTest(name) && path.Ext(name) == ".go") || there && got == text {
			continue
		}
		if isTest(name) {
			edited = append(edited, name)
		}
		if err := f.put(name, text); err != nil {
			return nil, err
		}
	}
	slices.Sort(edited)
	return edited, nil
}

// testNames are the tests of a repository, in the order of its files.
func testNames(files map[string]string) ([]string, error) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !isTest(name) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, files[name], parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("tests of the repository: %w", err)
		}
		for _, d := range parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") && fn.Name.Name != "TestMain" {
				names = append(names, fn.Name.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil, errors.New("the repository has no tests")
	}
	return names, nil
}
