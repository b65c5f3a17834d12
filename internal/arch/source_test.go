package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// module is the path that every import of ours begins with.
const module = "agentlightning"

// goFile is one parsed file, whatever platform it is for.
type goFile struct {
	path    string // relative to the root of the repository, with slashes
	test    bool
	lines   int
	syntax  *ast.File
	imports []string
}

// goPackage is one folder with Go files.
type goPackage struct {
	dir   string // relative to the root of the repository; "" is the root
	name  string
	files []goFile
}

// repository is what the tests judge.
type repository struct {
	root     string
	fset     *token.FileSet
	packages []goPackage
	files    []string // all others and the Go files too, relative, with slashes
}

// load reads the repository once for all tests. It opens every Go file itself,
// and not through the go command alone, because the test cache only knows what
// a test opened: otherwise a changed import elsewhere would meet a cached pass.
var load = sync.OnceValues(func() (*repository, error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return nil, err
	}
	r := &repository{root: root, fset: token.NewFileSet()}
	byDir := map[string]*goPackage{}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && (skipFolder(d.Name()) || nestedModule(p)) {
				return filepath.SkipDir
			}
			return nil
		}
		r.files = append(r.files, rel)
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		f, err := parse(r.fset, p, rel)
		if err != nil {
			return err
		}
		dir := path.Dir(rel)
		if dir == "." {
			dir = ""
		}
		pkg := byDir[dir]
		if pkg == nil {
			pkg = &goPackage{dir: dir}
			byDir[dir] = pkg
		}
		if !f.test {
			pkg.name = f.syntax.Name.Name
		}
		pkg.files = append(pkg.files, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, p := range byDir {
		r.packages = append(r.packages, *p)
	}
	slices.SortFunc(r.packages, func(a, b goPackage) int { return strings.Compare(a.dir, b.dir) })
	return r, nil
})

// skipFolder names what the go command does not look into either, and what is not ours.
func skipFolder(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") ||
		name == "testdata" || name == "node_modules" || name == "bin"
}

func nestedModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func parse(fset *token.FileSet, file, rel string) (goFile, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return goFile{}, err
	}
	syntax, err := parser.ParseFile(fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return goFile{}, err
	}
	f := goFile{path: rel, test: strings.HasSuffix(rel, "_test.go"), syntax: syntax, lines: strings.Count(string(src), "\n")}
	for _, s := range syntax.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			return goFile{}, err
		}
		f.imports = append(f.imports, p)
	}
	return f, nil
}

func repo(t *testing.T) *repository {
	t.Helper()
	r, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// read returns a file of the repository.
func (r *repository) read(t *testing.T, rel string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.root, filepath.FromSlash(rel)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// importPath is what others write to import p.
func (p goPackage) importPath() string { return path.Join(module, p.dir) }

// built reports whether p has files that are not tests.
func (p goPackage) built() bool {
	return slices.ContainsFunc(p.files, func(f goFile) bool { return !f.test })
}

// public reports whether users import p: its exported names are a promise.
func (p goPackage) public() bool {
	if p.name == "main" || !p.built() {
		return false
	}
	for elem := range strings.SplitSeq(p.dir, "/") {
		switch elem {
		case "internal", "cmd", "examples", "test", "tools":
			return false
		}
	}
	return true
}

// imports returns what the files of p that are not tests import, on any platform.
func (p goPackage) imports() []string {
	var out []string
	for _, f := range p.files {
		if !f.test {
			out = append(out, f.imports...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ours returns the folder of an import of ours, and whether it is one.
func ours(importPath string) (string, bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// foreign reports whether an import is neither ours nor of the standard library.
func foreign(importPath string) bool {
	if _, mine := ours(importPath); mine {
		return false
	}
	first, _, _ := strings.Cut(importPath, "/")
	return strings.Contains(first, ".")
}
