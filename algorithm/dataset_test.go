package algorithm_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentlightning/algorithm"
)

func TestLoadJSONL(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text, want string // part of the error; empty means that it loads
	}{
		{"good", "{\"q\":1}\n{\"q\":2}\n", ""},
		{"no newline at the end", "{\"q\":1}\n{\"q\":2}", ""},
		{"windows", "{\"q\":1}\r\n{\"q\":2}\r\n", ""},
		{"spaces", " {\"q\": 1} \n\t{\"q\":2}\n", ""},
		{"empty line", "{\"q\":1}\n\n{\"q\":2}\n", ":2: the line is empty"},
		{"empty line at the end", "{\"q\":1}\n{\"q\":2}\n\n", ":3: the line is empty"},
		{"no tasks", "", "there are no tasks in it"},
		{"list", "{\"q\":1}\n[1]\n", ":2: a task must be a JSON object, this is a JSON array"},
		{"null", "null\n", ":1: a task must be a JSON object, this is null"},
		{"two on a line", "{\"q\":1} {\"q\":2}\n", ":1: there is more than one value on the line"},
		{"over two lines", "{\"q\":\n1}\n", ":1: the JSON object does not end; a task must be on one line"},
		{"syntax", "{\"q\":1}\n{q:2}\n", ":2: not JSON: invalid character 'q'"},
		{"not UTF-8", "{\"q\":\"\xff\"}\n", ":1: the line is not UTF-8"},
		{"byte order mark", "\xef\xbb\xbf{\"q\":1}\n", ":1: the file begins with a byte order mark"},
		{"NaN", "{\"q\":NaN}\n", ":1: not JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "tasks.jsonl")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			tasks, err := algorithm.LoadJSONL(path)
			if tt.want == "" {
				if err != nil || len(tasks) != 2 {
					t.Errorf("LoadJSONL() = %q, %v, want 2 tasks", tasks, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("LoadJSONL() = %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := algorithm.LoadJSONL(filepath.Join(t.TempDir(), "absent.jsonl")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("LoadJSONL(absent) = %v", err)
	}
}

func TestLoadJSONLAs(t *testing.T) {
	t.Parallel()
	type task struct {
		Q struct {
			N int `json:"n"`
		} `json:"q"`
	}
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	if err := os.WriteFile(path, []byte("{\"q\":{\"n\":1}}\n{\"q\":{\"n\":\"two\"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := algorithm.LoadJSONLAs[task](path)
	line, ok := errors.AsType[*algorithm.LineError](err)
	if !ok || line.Line != 2 || !strings.Contains(err.Error(), `member "q.n": a JSON string does not fit int`) {
		t.Errorf("LoadJSONLAs() = %v", err)
	}
}

func TestOrderVisitsEachTaskOnce(t *testing.T) {
	t.Parallel()
	var passes [][]int
	for epoch := range 3 {
		order := algorithm.Order(10, 7, epoch)
		if again := algorithm.Order(10, 7, epoch); !slices.Equal(order, again) {
			t.Errorf("Order(10, 7, %d) = %v and then %v", epoch, order, again)
		}
		passes = append(passes, order)
		if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			t.Errorf("Order(10, 7, %d) = %v, want each task once", epoch, order)
		}
	}
	if slices.Equal(passes[0], passes[1]) && slices.Equal(passes[1], passes[2]) {
		t.Error("every epoch has the same order")
	}
	if slices.Equal(algorithm.Order(10, 8, 0), passes[0]) {
		t.Error("two seeds give the same order")
	}
	if got := algorithm.Order(0, 7, 0); len(got) != 0 {
		t.Errorf("Order(0) = %v", got)
	}
}

func TestBatches(t *testing.T) {
	t.Parallel()
	const n, size, seed = 10, 4, 3
	var first [][]int
	visits := map[int]int{}
	for batch := range algorithm.Batches(n, size, seed) {
		first = append(first, batch)
		distinct := map[int]bool{}
		for _, i := range batch {
			distinct[i] = true
			visits[i]++
		}
		if len(batch) != size || len(distinct) != size {
			t.Fatalf("batch %v, want %d different tasks", batch, size)
		}
		if len(first) == 25 { // 100 visits are 10 passes
			break
		}
	}
	for i := range n {
		if visits[i] != 10 {
			t.Errorf("task %d was visited %d times in 10 passes", i, visits[i])
		}
	}
	next := 0
	for batch := range algorithm.Batches(n, size, seed) {
		if !slices.Equal(batch, first[next]) {
			t.Fatalf("batch %d is %v and was %v", next, batch, first[next])
		}
		if next++; next == len(first) {
			break
		}
	}
	for batch := range algorithm.Batches(3, 8, seed) {
		if len(batch) != 3 {
			t.Errorf("batch %v of a data set of 3", batch)
		}
		break
	}
	for batch := range algorithm.Batches(0, 4, seed) {
		t.Fatalf("batch %v of no tasks", batch)
	}
}

func FuzzReadJSONL(f *testing.F) {
	for _, seed := range []string{"{\"q\":1}\n{\"q\":2}\n", "{}\r\n", "{\"a\":\n}", "\xef\xbb\xbf{}", "{} {}", "[1]\n\n", "{\"q\":\"\\ud800\"}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tasks, err := algorithm.ReadJSONL(strings.NewReader(text), "tasks.jsonl")
		if err != nil {
			if !strings.Contains(err.Error(), "tasks.jsonl") {
				t.Errorf("error %q does not name the data set", err)
			}
			return
		}
		for _, task := range tasks {
			var object map[string]json.RawMessage
			if err := json.Unmarshal(task, &object); err != nil {
				t.Errorf("task %q: %v", task, err)
			}
		}
	})
}
