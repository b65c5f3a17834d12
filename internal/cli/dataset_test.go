package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDatasetExport(t *testing.T) {
	t.Parallel()
	url := serve(t, "--db", "memory:")
	client := connect(t, url)
	won := finishedRollout(t, client, "0", 0, new(1.0))
	finishedRollout(t, client, "0", 1, new(0.0))
	finishedRollout(t, client, "0", 2, nil)
	dir := t.TempDir()
	for _, tt := range []struct {
		form string
		args []string
		want string // of the check
	}{
		{"openai", []string{"--min-reward", "1"}, "2 conversations"},
		{"conversations", []string{"--top", "0.5", "--per-group"}, "2 conversations"},
		{"preferences", nil, "1 preference"},
		{"rows", []string{"--rule", "discounted:0.5", "--without-std"}, "4 rows"},
		{"parquet", []string{"--min-reward", "1"}, "2 rows"},
	} {
		file := filepath.Join(dir, tt.form)
		args := append([]string{"dataset", "export", "--server", url, "--form", tt.form, "--to", file}, tt.args...)
		status, out, errs := run(t, args...)
		if status != 0 || !strings.Contains(out, "of 3 rollouts") {
			t.Errorf("%s: status %d, %s%s", tt.form, status, out, errs)
			continue
		}
		if status, out, errs = run(t, "dataset", "check", file, "--form", tt.form); status != 0 || !strings.Contains(out, "is sound: "+tt.want) {
			t.Errorf("check %s: status %d, %s%s, want %s", tt.form, status, out, errs, tt.want)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "conversations"))
	if err != nil || strings.Count(string(text), won) != 2 {
		t.Errorf("conversations = %s, %v, want both of %s", text, err, won)
	}
	text, err = os.ReadFile(filepath.Join(dir, "rows"))
	if err != nil || !strings.Contains(string(text), `"advantages":[0,0.125,0.125]`) {
		t.Errorf("rows = %s, %v, want the advantages of discounted credit", text, err)
	}
	tasks := filepath.Join(dir, "tasks.csv")
	if err := os.WriteFile(tasks, []byte("q,a\n1+1,2\n1+2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := run(t, "dataset", "check", tasks, "--form", "tasks"); status != 1 || !strings.Contains(errs, "tasks.csv:3: wrong number of fields") {
		t.Errorf("check of bad tasks: status %d, %s", status, errs)
	}
}

// Pairs that cannot be written are told of, wherever the others go.
func TestDatasetPairsLeftOut(t *testing.T) {
	t.Parallel()
	url := serve(t, "--db", "memory:")
	client := connect(t, url)
	finishedRollout(t, client, "0", 0, new(1.0))
	finishedRollout(t, client, "0", 1, new(0.0))
	finishedRollout(t, client, "1", 0, new(1.0)) // both say the same
	finishedRollout(t, client, "1", 1, new(0.5))
	status, out, errs := run(t, "dataset", "export", "--server", url, "--form", "preferences")
	if status != 0 || strings.Count(out, "\n") != 1 || !strings.Contains(errs, "1 pair left out") {
		t.Errorf("status %d, %s%s, want one pair and a word on the other", status, out, errs)
	}
}

func TestDatasetRefuses(t *testing.T) {
	t.Parallel()
	url := serve(t, "--db", "memory:")
	file := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none")
	for _, tt := range []struct {
		status int
		want   string
		args   []string
	}{
		{2, "--form best", []string{"export", "--form", "best"}},
		{2, "--rule: --form openai does not look at it", []string{"export", "--rule", "identical"}},
		{2, "--top: --form preferences does not look at it", []string{"export", "--form", "preferences", "--top", "0.5"}},
		{2, "top 2", []string{"export", "--top", "2"}},
		{2, "per group", []string{"export", "--per-group"}},
		{2, "margin -1", []string{"export", "--form", "preferences", "--margin", "-1"}},
		{2, "no rule of that name", []string{"export", "--form", "rows", "--rule", "best"}},
		{2, "the file exists", []string{"export", "--server", url, "--to", file}},
		{1, "nothing was chosen of 0 rollouts", []string{"export", "--server", url, "--to", none}},
		{2, "give one file", []string{"check"}},
		{2, "--form best", []string{"check", file, "--form", "best"}},
		{1, "there are no tasks", []string{"check", file}},
	} {
		status, _, errs := run(t, append([]string{"dataset"}, tt.args...)...)
		if status != tt.status || !strings.Contains(errs, tt.want) {
			t.Errorf("dataset %q: status %d, %s; want %d and %q", tt.args, status, errs, tt.status, tt.want)
		}
	}
	if _, err := os.Stat(none); !os.IsNotExist(err) {
		t.Errorf("an export of nothing left a file: %v", err)
	}
}
