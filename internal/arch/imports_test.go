package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

func TestImports(t *testing.T) {
	t.Parallel()
	r := repo(t)
	known := map[string]rule{}
	for _, rule := range rules {
		if _, twice := known[rule.dir]; twice {
			t.Errorf("internal/arch/rules_test.go lists package %q twice: keep one line", rule.dir)
		}
		known[rule.dir] = rule
	}
	for _, p := range r.packages {
		if !p.built() || slices.ContainsFunc(free, func(prefix string) bool { return strings.HasPrefix(p.dir, prefix) }) {
			continue
		}
		rule, ok := known[p.dir]
		if !ok {
			t.Errorf("package %q is not in internal/arch/rules_test.go: "+
				"add a line that says what it owns and which packages of ours it may import, each with a reason", p.dir)
			continue
		}
		delete(known, p.dir)
		checkImports(t, p, rule)
	}
	for dir := range known {
		t.Errorf("internal/arch/rules_test.go lists package %q, which does not exist: delete its line", dir)
	}
}

// checkImports compares what p imports with its line, in both directions.
func checkImports(t *testing.T, p goPackage, rule rule) {
	t.Helper()
	if rule.owns == "" {
		t.Errorf("the line of package %q in internal/arch/rules_test.go does not say what the package owns", p.dir)
	}
	var used []string
	for _, imp := range p.imports() {
		key := imp
		switch dir, mine := ours(imp); {
		case mine:
			key = tableName(dir)
		case !foreign(imp):
			continue
		}
		line, ok := rule.permits(key)
		if !ok {
			t.Errorf("package %q imports %q, which its line in internal/arch/rules_test.go does not allow: "+
				"move the code to where the import is allowed, declare a small interface instead, "+
				"or add the import to the line with the reason", p.dir, imp)
			continue
		}
		used = append(used, line)
	}
	for line, reason := range rule.imports {
		if reason == "" {
			t.Errorf("package %q may import %q without a reason: write one in internal/arch/rules_test.go", p.dir, line)
		}
		if !slices.Contains(used, line) {
			t.Errorf("package %q may import %q but does not: delete it from its line in internal/arch/rules_test.go", p.dir, line)
		}
	}
}

// tableName gives the root package the name that the table uses.
func tableName(dir string) string {
	if dir == "" {
		return root
	}
	return dir
}

// permits returns the entry that allows an import. An entry for something
// outside covers the packages below it; one of ours covers only itself.
func (r rule) permits(key string) (string, bool) {
	if _, ok := r.imports[key]; ok {
		return key, true
	}
	if !foreign(key) {
		return "", false
	}
	for p := key; p != "." && p != "/"; p = path.Dir(p) {
		if _, ok := r.imports[p]; ok {
			return p, true
		}
	}
	return "", false
}

// listed is what `go list -json -deps` says of a package.
type listed struct {
	ImportPath string   `json:"ImportPath"`
	Deps       []string `json:"Deps"`
}

// TestReach looks at whole import graphs: what a program pulls in with one import.
func TestReach(t *testing.T) {
	t.Parallel()
	r := repo(t)
	deps := dependencies(t, r)
	for _, reach := range reaches {
		for _, dir := range reach.from {
			imp := path.Join(module, dir)
			all, ok := deps[imp]
			if !ok {
				t.Errorf("%s: package %q does not exist: correct the list in internal/arch/rules_test.go", reach.why, dir)
				continue
			}
			for _, d := range all {
				for _, never := range reach.never {
					if below, all := strings.CutSuffix(never, "/..."); d == never || all && (d == below || strings.HasPrefix(d, below+"/")) {
						t.Errorf("package %q reaches %q: %s; the way is %s",
							dir, d, reach.why, strings.Join(way(deps, imp, d), " → "))
					}
				}
			}
		}
	}
	for _, p := range r.packages {
		if !p.built() || slices.Contains(testSupport, p.dir) {
			continue
		}
		if slices.Contains(deps[p.importPath()], "testing") {
			t.Errorf("package %q links package testing into programs; the way is %s",
				p.dir, strings.Join(way(deps, p.importPath(), "testing"), " → "))
		}
	}
}

func dependencies(t *testing.T, r *repository) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-json=ImportPath,Deps", "./...")
	cmd.Dir = r.root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	deps := map[string][]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return deps
		} else if err != nil {
			t.Fatal(err)
		}
		deps[l.ImportPath] = l.Deps
	}
}

// way returns one path of the import graph, so that the message names the arrow to cut.
func way(deps map[string][]string, from, to string) []string {
	steps := []string{from}
	for from != to {
		next := to
		// The nearest package on the way is the one that most others do not reach:
		// take the dependency with the largest graph that still leads there.
		for _, d := range deps[from] {
			if slices.Contains(deps[d], to) && (next == to || len(deps[d]) > len(deps[next])) {
				next = d
			}
		}
		steps, from = append(steps, next), next
	}
	return steps
}

func TestPurePackages(t *testing.T) {
	t.Parallel()
	for _, p := range repo(t).packages {
		if !slices.Contains(pure, p.dir) {
			continue
		}
		for _, f := range p.files {
			if f.test {
				continue
			}
			for _, imp := range f.imports {
				if first, _, _ := strings.Cut(imp, "/"); slices.Contains(inputOutput, first) || slices.Contains(inputOutput, imp) {
					t.Errorf("%s imports %q: packages %v turn data into data and do no I/O; take the data as an argument", f.path, imp, pure)
				}
			}
			for _, call := range clockCalls(f.syntax) {
				t.Errorf("%s calls %s: packages %v give the same answer at any time; take the time as an argument", f.path, call, pure)
			}
		}
	}
}

// clockCalls returns the uses of the functions of package time that look at the clock.
func clockCalls(f *ast.File) []string {
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
			switch sel.Sel.Name {
			case "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker":
				out = append(out, "time."+sel.Sel.Name)
			}
		}
		return true
	})
	return out
}

func TestNoCgo(t *testing.T) {
	t.Parallel()
	for _, p := range repo(t).packages {
		if slices.Contains(p.imports(), "C") {
			t.Errorf("package %q imports \"C\": the module builds without a C compiler on every platform", p.dir)
		}
	}
}
