package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// trainPage is the page whose files are tried.
const trainPage = "../../docs/train.md"

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// recipesOfThePage writes every file of the page beside tasks, and returns their
// paths.
func recipesOfThePage(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(trainPage)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tasks := "{\"word\": \"one\", \"question\": \"17 * 3\", \"answer\": \"51\"}\n{\"word\": \"two\", \"question\": \"2 + 2\", \"answer\": \"4\"}\n"
	write("train.jsonl", tasks)
	write("val.jsonl", tasks)
	var paths []string
	for i, block := range yamlBlock.FindAllStringSubmatch(string(page), -1) {
		paths = append(paths, write(fmt.Sprintf("recipe%d.yaml", i), block[1]))
	}
	return paths
}

func TestFilesOfTheTrainPage(t *testing.T) {
	t.Parallel()
	paths := recipesOfThePage(t)
	if len(paths) < 5 {
		t.Fatalf("the page has %d files", len(paths))
	}
	for _, path := range paths {
		if status, out, errs := run(t, "train", path, "--print-config"); status != 0 || !strings.Contains(out, "algorithm.use") {
			text, _ := os.ReadFile(path)
			t.Errorf("status %d: %s%s\n%s", status, out, errs, text)
		}
	}
}

// The complete example of the page runs, with scripts for its agent and models.
func TestExampleOfTheTrainPage(t *testing.T) {
	t.Parallel()
	models := newWordModels(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	first := recipesOfThePage(t)[0]
	sets := []string{
		fmt.Sprintf("agent.command=[%q]", self), fmt.Sprintf("agent.env={%s: agent, %s: \"\"}", roleVariable, argsVariable),
		"models.0=policy=" + models.URL + "/v1", "models.1=writer=" + models.URL + "/v1", "algorithm.max_evaluations=60", "algorithm.perfect=1",
	}
	status, out, errs := run(t, append([]string{"optimize", first, "--log-level", "error"}, sets...)...)
	if status != 0 || !strings.Contains(out, "did it learn: yes") || !strings.Contains(out, "result: prompts answer in resources run-") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if status, out, errs = run(t, append([]string{"optimize", first, "--dry-run"}, sets...)...); status != 0 || !strings.Contains(out, "nothing is wrong") {
		t.Errorf("dry run: status %d: %s%s", status, out, errs)
	}
}
