package arch

import (
	"go/ast"
	"go/doc"
	"path"
	"slices"
	"strings"
	"testing"
)

func TestPackageComments(t *testing.T) {
	t.Parallel()
	for _, p := range repo(t).packages {
		if !p.built() {
			continue
		}
		want := "Package " + p.name + " "
		if p.name == "main" {
			want = "Command " + path.Base(p.dir) + " "
		}
		var found []string
		for _, f := range p.files {
			if f.test || f.syntax.Doc == nil {
				continue
			}
			found = append(found, f.path)
			if text := f.syntax.Doc.Text(); !strings.HasPrefix(text, want) {
				t.Errorf("%s: the package comment must begin with %q, not %q", f.path, want, firstLine(text))
			}
		}
		switch len(found) {
		case 0:
			t.Errorf("package %q has no package comment: say what it is, its main types and what it does not do", p.dir)
		case 1:
		default:
			t.Errorf("package %q has %d package comments, in %v: keep one", p.dir, len(found), found)
		}
	}
}

func TestExamples(t *testing.T) {
	t.Parallel()
	for _, p := range repo(t).packages {
		if !p.public() {
			continue
		}
		var tests []*ast.File
		for _, f := range p.files {
			if f.test {
				tests = append(tests, f.syntax)
			}
		}
		runnable := slices.ContainsFunc(doc.Examples(tests...), func(e *doc.Example) bool {
			return e.Output != "" || e.EmptyOutput
		})
		switch reason, excused := noExample[p.dir]; {
		case !runnable && !excused:
			t.Errorf("public package %q has no runnable example: add example_test.go with a func Example… and an // Output: comment", p.dir)
		case runnable && excused:
			t.Errorf("package %q has a runnable example and is excused with %q: delete the excuse in internal/arch/rules_test.go", p.dir, reason)
		}
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for _, p := range repo(t).packages {
		if path.Dir(p.dir) != "cmd" {
			continue
		}
		for _, f := range p.files {
			if f.test {
				continue
			}
			for _, name := range declared(f.syntax) {
				if ast.IsExported(name) {
					t.Errorf("%s declares %s: a command exports nothing; its code belongs to internal/cli", f.path, name)
				}
			}
			if f.lines >= 30 {
				t.Errorf("%s has %d lines: a main.go stays under thirty; its code belongs to internal/cli", f.path, f.lines)
			}
		}
	}
}

// declared returns the names that a file declares at its top level, methods left out.
func declared(f *ast.File) []string {
	var out []string
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				out = append(out, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					out = append(out, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						out = append(out, n.Name)
					}
				}
			}
		}
	}
	return out
}

// TestNoInit keeps work out of program start: importing a package does nothing.
func TestNoInit(t *testing.T) {
	t.Parallel()
	for _, p := range repo(t).packages {
		for _, f := range p.files {
			if !f.test && slices.Contains(declared(f.syntax), "init") {
				t.Errorf("%s has an init function: do the work in a constructor, or in a variable's initialiser when it is a table", f.path)
			}
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	r := repo(t)
	for _, p := range r.packages {
		for elem := range strings.SplitSeq(p.dir, "/") {
			if slices.Contains(emptyNames, elem) {
				t.Errorf("package %q: %q says nothing about what is inside; name the package after what it holds", p.dir, elem)
			}
		}
		for _, f := range p.files {
			base := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test")
			if slices.Contains(emptyNames, base) {
				t.Errorf("file %s: %q says nothing about what is inside; name the file after what it holds", f.path, base)
			}
		}
	}
}

func TestFileLength(t *testing.T) {
	t.Parallel()
	for _, p := range repo(t).packages {
		for _, f := range p.files {
			if f.lines > longestFile && !ast.IsGenerated(f.syntax) {
				t.Errorf("%s has %d lines, more than %d: it holds two ideas; give each its file", f.path, f.lines, longestFile)
			}
		}
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
