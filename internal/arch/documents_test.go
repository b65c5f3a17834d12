package arch

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestReadmeOpensWithTheTwoCommands(t *testing.T) {
	t.Parallel()
	readme := repo(t).read(t, "README.md")
	blocks := fenced(readme)
	if len(blocks) == 0 {
		t.Fatal("README.md has no code block: it opens with the two commands")
	}
	for _, command := range []string{"go run ./examples/calc", "go test ./..."} {
		if !strings.Contains(blocks[0].text, command) {
			t.Errorf("the first code block of README.md does not have %q:\n%s", command, blocks[0].text)
		}
	}
	if blocks[0].line > 15 {
		t.Errorf("the first code block of README.md begins in line %d: a reader meets the commands first", blocks[0].line)
	}
}

// TestLinks follows every link between documents, to the heading.
func TestLinks(t *testing.T) {
	t.Parallel()
	r := repo(t)
	linked := map[string]bool{}
	for _, file := range r.documents() {
		for _, target := range links(r.read(t, file)) {
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			name, fragment, _ := strings.Cut(target, "#")
			to := file
			if name != "" {
				to = path.Join(path.Dir(file), name)
			}
			info, err := os.Stat(filepath.Join(r.root, filepath.FromSlash(to)))
			if err != nil {
				t.Errorf("%s links to %s, which does not exist", file, target)
				continue
			}
			if to != file {
				linked[to] = true
			}
			if fragment == "" || info.IsDir() || !strings.HasSuffix(to, ".md") {
				continue
			}
			if !slices.Contains(anchors(r.read(t, to)), fragment) {
				t.Errorf("%s links to %s: %s has no such heading", file, target, to)
			}
		}
	}
	for _, file := range r.documents() {
		if strings.HasPrefix(file, "docs/") && !linked[file] {
			t.Errorf("no document links to %s: readers will not find it", file)
		}
	}
}

// TestArchitecturePage keeps the page that newcomers read as complete as the table.
func TestArchitecturePage(t *testing.T) {
	t.Parallel()
	r := repo(t)
	page := r.read(t, "docs/architecture.md")
	for _, p := range r.packages {
		if p.public() && p.dir != "" && !strings.Contains(page, "`"+p.dir+"`") {
			t.Errorf("docs/architecture.md does not name `%s`: say there what it owns", p.dir)
		}
	}
}

func TestExampleFoldersHaveReadmes(t *testing.T) {
	t.Parallel()
	r := repo(t)
	for _, p := range r.packages {
		if path.Dir(p.dir) == "examples" && !slices.Contains(r.files, p.dir+"/README.md") {
			t.Errorf("%s has no README.md: say how it is run and what it prints", p.dir)
		}
	}
}

// TestNothingIsLeftUnfinished finds marks that stand for work: what is missing
// is said in the documents, or done.
func TestNothingIsLeftUnfinished(t *testing.T) {
	t.Parallel()
	r := repo(t)
	mark := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b|not impl` + `emented yet|t\.Skip` + `(Now)?\(\)`)
	for _, file := range r.files {
		switch path.Ext(file) {
		case ".go", ".s", ".sql", ".sh", ".ts", ".css", ".yml":
		default:
			continue
		}
		for i, line := range strings.Split(r.read(t, file), "\n") {
			if found := mark.FindString(line); found != "" {
				t.Errorf("%s:%d: %q marks unfinished work: do it, or say in the documents what is missing", file, i+1, found)
			}
		}
	}
}

// documents returns the Markdown files.
func (r *repository) documents() []string {
	return slices.DeleteFunc(slices.Clone(r.files), func(f string) bool { return !strings.HasSuffix(f, ".md") })
}

// block is a fenced code block.
type block struct {
	language string
	text     string
	line     int // of the opening fence, from 1
}

func fenced(markdown string) []block {
	var out []block
	var open *block
	for i, line := range strings.Split(markdown, "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{language: language, line: i + 1}
		case fence:
			out, open = append(out, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return out
}

// prose returns a document without its code.
func prose(markdown string) string {
	for _, b := range fenced(markdown) {
		markdown = strings.Replace(markdown, "```"+b.language+"\n"+b.text+"```", "", 1)
	}
	return inlineCode.ReplaceAllString(markdown, "")
}

var (
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

func links(markdown string) []string {
	var out []string
	for _, m := range linkTarget.FindAllStringSubmatch(prose(markdown), -1) {
		out = append(out, m[1])
	}
	return out
}

// anchors returns the fragments under which the headings of a document are
// reached, as GitHub makes them.
func anchors(markdown string) []string {
	var out []string
	for _, b := range fenced(markdown) {
		markdown = strings.Replace(markdown, b.text, "", 1)
	}
	for _, m := range heading.FindAllStringSubmatch(markdown, -1) {
		text := notInSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(m[1])), "")
		out = append(out, strings.ReplaceAll(text, " ", "-"))
	}
	return out
}
