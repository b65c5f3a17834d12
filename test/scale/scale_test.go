package scale

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"agentlightning/store"
)

var (
	dbPath   = flag.String("scale.db", "", "database to measure, made when it does not exist and kept; empty for a small one that is not")
	rollouts = flag.Int("scale.rollouts", 3000, "rollouts of a database that is made")
	cold     = flag.Bool("scale.cold", false, "also ask each question of a server that has just started, with none of the file in memory")
	backup   = flag.Bool("scale.backup", false, "also check the database and back it up, which takes as much room again")
)

const (
	// soon is within what a page that a person opens is to be answered.
	soon = 300 * time.Millisecond
	// attemptSoon is the same for all that a page of a long attempt asks for.
	attemptSoon = time.Second
	// looks is how often each question is asked, warm.
	looks = 5
)

// question is something that a page of the dashboard asks for: requests one
// after the other.
type question struct {
	name   string
	paths  []string
	within time.Duration
}

func TestScale(t *testing.T) {
	long := []int{2_000, 5_000}
	if *rollouts >= 100_000 {
		long = []int{20_000, 20_000, 20_000, 20_000, 20_000, 100_000}
	}
	db := database(t, *dbPath, *rollouts, long)
	s := start(t, db)
	first, _ := s.resident(t)
	t.Logf("ready after %v, %d MiB resident", s.ready.Round(time.Millisecond), first)
	if s.ready > soon && !raceEnabled {
		t.Errorf("the server was ready after %v, want at most %v", s.ready, soon)
	}
	questions := ask(t, s)
	warm := make([][]time.Duration, len(questions))
	size := make([]int, len(questions))
	processor := make([]time.Duration, len(questions))
	for i, q := range questions {
		before := s.spent()
		for range looks {
			took, n := q.put(t, s)
			warm[i], size[i] = append(warm[i], took), n
		}
		processor[i] = (s.spent() - before) / looks
	}
	now, most := s.resident(t)
	t.Logf("after all questions %d MiB resident, %d MiB at the most", now, most)
	s.stop(t)

	var table strings.Builder
	fmt.Fprintf(&table, "| question | cold, ms | warm, ms | slowest | processor, ms | kB |\n|---|---|---|---|---|---|\n")
	for i, q := range questions {
		alone := "–"
		if *cold {
			forget(t, db)
			c := start(t, db)
			took, _ := q.put(t, c)
			c.stop(t)
			alone = milliseconds(took)
		}
		slices.Sort(warm[i])
		median := warm[i][looks/2]
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %.0f | %d |\n", q.name, alone, milliseconds(median), milliseconds(warm[i][looks-1]), processor[i].Seconds()*1000, size[i]/1000)
		if median > q.within && !raceEnabled {
			t.Errorf("%s: %v in the middle, want at most %v", q.name, median, q.within)
		}
	}
	t.Logf("\n%s", &table)
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }

// put asks a question and returns how long that took and how much came back.
func (q *question) put(t *testing.T, s *server) (took time.Duration, size int) {
	t.Helper()
	began := time.Now()
	for _, path := range q.paths {
		status, body := s.get(t, path)
		size += len(body)
		if status != http.StatusOK {
			t.Fatalf("%s: %s answers %d: %.300s", q.name, path, status, body)
		}
	}
	return time.Since(began), size
}

const browse = "v1/agl/browse/rollouts?limit=100"

type found struct {
	Total    int    `json:"total"`
	Complete bool   `json:"complete"`
	Items    []item `json:"items"`
}

type item struct {
	RolloutID string `json:"rollout_id"`
	Attempt   struct {
		AttemptID string `json:"attempt_id"`
	} `json:"attempt"`
	Digest struct {
		Spans int `json:"spans"`
	} `json:"digest"`
}

// ask lists what the pages of the dashboard ask for.
func ask(t *testing.T, s *server) []question {
	t.Helper()
	var out []question
	add := func(name string, paths ...string) {
		out = append(out, question{name: name, paths: paths, within: soon})
	}
	for _, path := range []string{"overview", "statistics", "runs?limit=200", "workers?limit=1000", "models", "resources?limit=200&sort_by=update_time&sort_order=desc"} {
		add(path, "v1/agl/"+path)
	}
	add("metrics", "metrics")
	add("queue of a rollout list: failed", browse+"&status_in=failed&limit=200")

	all := read[found](t, s, browse)
	runs := read[[]struct {
		RunID string `json:"run_id"`
	}](t, s, "v1/agl/runs?limit=200")
	last, oldest := runs[0].RunID, runs[len(runs)-1].RunID
	add("newest first", browse)
	add("page in the middle", fmt.Sprintf("%s&offset=%d", browse, all.Total/2))
	add("last page", fmt.Sprintf("%s&offset=%d", browse, all.Total-100))
	for _, by := range store.BrowseSorts() {
		path := fmt.Sprintf("%s&sort_by=%s&sort_order=", browse, by)
		add("sorted by "+by+", ascending", path+"asc")
		add("sorted by "+by+", descending", path+"desc")
		if by == "reward" || by == "duration" {
			add("a step of a run, sorted by "+by, path+"desc&step=50&run_id="+last)
		}
	}
	now := agoOf(t, s)
	for _, filter := range []string{
		"status_in=failed", "status_in=succeeded", "status_in=queuing", "status_in=running&status_in=preparing", "mode_in=val", "mode_in=train",
		"attempt_status_in=failed", "run_id=" + last, "run_id=" + oldest, "run_id=" + last + "&step=50", "run_id=" + oldest + "&step=50",
		"run_id=" + last + "&step=50&group=3", "group=3", "step=50", "model=small", "model=nothing", "worker_id=night-03", "worker_id=nobody", "tag=buses-3", "tag=nothing",
		"rewarded=true", "rewarded=false", "reward_min=0.9", "reward_max=0.1", "reward_min=2", "problem=any", "problem=no_token_ids",
		"resources_id=nothing", "text=task-000123", "text=friends", "text=nothing", "id=" + all.Items[0].RolloutID, "id=a1b", "id=ffff",
		"from=" + now(900), "from=" + now(3600), "from=" + now(86400), "from=" + now(604800), "rewarded=false&status_in=succeeded", "status_in=failed&problem=any",
	} {
		name := strings.NewReplacer(oldest, "FIRST", last, "LAST", all.Items[0].RolloutID, "ID").Replace(filter)
		if strings.HasPrefix(name, "from=") {
			name = "from= some time ago"
		}
		add("with "+name, browse+"&"+filter)
	}
	add("page 150 of those with status_in=succeeded", browse+"&status_in=succeeded&offset=15000")

	for name, run := range map[string]string{"the last run": last, "the first run": oldest} {
		at := "v1/agl/runs/" + run
		add("page of "+name, at, at+"/metrics", at+"/checkpoints", at+"/checkpoints/latest")
		b := "v1/agl/browse/rollouts?run_id=" + run
		add("samples of "+name+", early", b+"&sort_by=start_time&sort_order=asc&rewarded=true&limit=8")
		add("samples of "+name+", late", b+"&sort_by=start_time&sort_order=desc&rewarded=true&limit=8")
		add("a step of "+name, b+"&step=50&limit=1000")
		add("a group of "+name, b+"&step=50&group=3&mode_in=train&limit=200")
		add("a task across the steps of "+name, b+"&text=task-000001&mode_in=train&limit=1000")
	}
	out = append(out, rolloutPages(t, s, all)...)
	return out
}

// agoOf returns Unix seconds so long before the newest rollout.
func agoOf(t *testing.T, s *server) func(seconds float64) string {
	t.Helper()
	page := read[struct {
		Items []struct {
			StartTime float64 `json:"start_time"`
		} `json:"items"`
	}](t, s, "v1/agl/browse/rollouts?limit=1")
	return func(seconds float64) string { return fmt.Sprintf("%.0f", page.Items[0].StartTime-seconds) }
}

// rolloutPages are the questions of pages of rollouts, short and long.
func rolloutPages(t *testing.T, s *server, all found) []question {
	t.Helper()
	var out []question
	long := read[found](t, s, browse+"&text=a+task+of")
	ended := read[found](t, s, fmt.Sprintf("%s&offset=%d", browse, all.Total/2))
	slices.SortFunc(long.Items, func(a, b item) int { return cmp.Compare(a.Digest.Spans, b.Digest.Spans) })
	for _, r := range append(ended.Items[:1], long.Items[0], long.Items[len(long.Items)-1]) {
		n := r.Digest.Spans
		of := fmt.Sprintf("rollout_id=%s&attempt_id=%s", r.RolloutID, r.Attempt.AttemptID)
		open := []string{"v1/agl/rollouts/" + r.RolloutID, "v1/agl/rollouts/" + r.RolloutID + "/attempts?limit=1000&sort_by=sequence_id", "v1/agl/browse/spans?limit=1000&offset=0&" + of}
		rows := read[struct {
			Items []struct {
				SpanID string `json:"span_id"`
			} `json:"items"`
		}](t, s, open[2])
		whole := "v1/agl/browse/spans/whole?" + of
		for _, row := range rows.Items[:min(100, len(rows.Items))] {
			whole += "&span_id=" + row.SpanID
		}
		first := append(slices.Clone(open), whole)
		for offset := 1000; offset < n; offset += 10_000 {
			open = append(open, fmt.Sprintf("v1/agl/browse/spans?limit=10000&offset=%d&%s", offset, of))
		}
		within := soon
		if n > 1000 {
			within = attemptSoon * time.Duration(max(1, n/20_000)) // five times as many spans are not meant
		}
		out = append(out,
			question{name: fmt.Sprintf("a rollout of %d spans, what is seen first", n), paths: first, within: soon},
			question{name: fmt.Sprintf("a rollout of %d spans, all rows", n), paths: append(open, whole), within: within})
		if n > 1000 {
			for _, offset := range []int{0, n / 2, n - 500} {
				out = append(out, question{name: fmt.Sprintf("500 of %d spans from %d on", n, offset), paths: []string{fmt.Sprintf("v1/agl/spans?limit=500&offset=%d&sort_by=sequence_id&%s", offset, of)}, within: soon})
			}
			out = append(out, question{name: fmt.Sprintf("10,000 rows of %d spans at the end", n), paths: []string{fmt.Sprintf("v1/agl/browse/spans?limit=10000&offset=%d&%s", max(0, n-10_000), of)}, within: soon})
			out = append(out, question{name: fmt.Sprintf("spans of a name among %d", n), paths: []string{"v1/agl/spans?limit=100&name=tool.calc&" + of}, within: soon})
		} else {
			out = append(out, question{name: "what training makes of a rollout", paths: []string{"v1/agl/rollouts/" + r.RolloutID + "/explain"}, within: soon})
		}
	}
	return out
}

// TestWrites asks a server on the large database and one on a database with a queue alone for
// the same, turn about: what runners call must not depend on what is stored.
func TestWrites(t *testing.T) {
	if *dbPath == "" {
		t.Skip("compares a large database with an empty one: name one with -scale.db")
	}
	const rounds, span = 400, 1000
	// As on a server that has run for a while: from disk, a page of the index of ids
	// takes as long as the call.
	inMemory(t, *dbPath)
	servers := []*server{start(t, filepath.Join(t.TempDir(), "empty.db")), start(t, *dbPath)}
	kinds := []string{"enqueue", "dequeue", "heartbeat", "add a span", "finish"}
	// What is claimed is alike on both: the same tasks with the same metadata.
	queued := make([]any, 1000)
	for i := range queued {
		queued[i] = map[string]any{
			"input":    map[string]any{"id": "task-000001", "question": strings.Repeat("How many cards does each friend get? ", 5)},
			"metadata": map[string]any{"agl.run_id": "run-000000000001", "agl.step": 1, "agl.group": "1", "agl.member": 1, "dataset": "buses-1", "owner": "night"},
		}
	}
	if status, text := servers[0].call(t, http.MethodPost, "v1/agl/queues/rollouts/enqueue", map[string]any{"rollouts": queued}); status >= 300 {
		t.Fatalf("filling the queue: %d %.500s", status, text)
	}
	took := map[string][2][]time.Duration{}
	body := strings.Repeat("a thousand bytes of prompt and answer, ", span/39)
	for round := range rounds {
		for which, s := range servers {
			note := func(kind, method, path string, sent, answer any) {
				began := time.Now()
				status, text := s.call(t, method, path, sent)
				all := took[kind]
				all[which] = append(all[which], time.Since(began))
				took[kind] = all
				if status >= 300 {
					t.Fatalf("%s: %d %.500s", kind, status, text)
				}
				if answer != nil {
					if err := json.Unmarshal(text, answer); err != nil {
						t.Fatalf("%s: %v", kind, err)
					}
				}
			}
			note("enqueue", http.MethodPost, "v1/agl/queues/rollouts/enqueue", map[string]any{"rollouts": []any{map[string]any{"input": "a task"}}}, nil)
			var claimed []struct {
				RolloutID string `json:"rollout_id"`
				Attempt   struct {
					AttemptID string `json:"attempt_id"`
				} `json:"attempt"`
			}
			note("dequeue", http.MethodPost, "v1/agl/queues/rollouts/dequeue", map[string]any{"limit": 1, "worker_id": "morning"}, &claimed)
			if len(claimed) != 1 {
				t.Fatalf("claimed %d rollouts", len(claimed))
			}
			id, at := claimed[0].RolloutID, claimed[0].Attempt.AttemptID
			note("heartbeat", http.MethodPost, "v1/agl/workers/morning", map[string]any{"heartbeat_stats": map[string]any{"cpu": 1}}, nil)
			note("add a span", http.MethodPost, "v1/agl/spans", map[string]any{
				"rollout_id": id, "attempt_id": at, "sequence_id": 1, "trace_id": fmt.Sprintf("%032x", round+1), "span_id": fmt.Sprintf("%016x", round+1),
				"parent_id": nil, "context": nil, "parent": nil, "start_time": 1.7e9, "end_time": 1.7e9, "name": "work", "status": map[string]any{"status_code": "OK", "description": nil}, "attributes": map[string]any{"text": body}, "events": []any{}, "links": []any{},
				"resource": map[string]any{"attributes": map[string]any{}, "schema_url": ""},
			}, nil)
			note("finish", http.MethodPost, "v1/agl/rollouts/"+id+"/attempts/"+at, map[string]any{"status": "succeeded"}, nil)
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| call | empty, p50 ms | full, p50 ms | ratio | empty, p99 | full, p99 |\n|---|---|---|---|---|---|\n")
	for _, kind := range kinds {
		both := took[kind]
		for i := range both {
			slices.Sort(both[i])
		}
		empty, full := both[0][rounds/2], both[1][rounds/2]
		ratio := float64(full) / float64(empty)
		fmt.Fprintf(&table, "| %s | %s | %s | %.2f | %s | %s |\n", kind, milliseconds(empty), milliseconds(full), ratio, milliseconds(both[0][rounds*99/100]), milliseconds(both[1][rounds*99/100]))
		if ratio > 1.5 && !raceEnabled {
			t.Errorf("%s takes %.2f times as long on the large database, want at most 1.5", kind, ratio)
		}
	}
	for _, s := range servers {
		now, most := s.resident(t)
		t.Logf("%d MiB resident, %d MiB at the most", now, most)
		s.stop(t)
	}
	t.Logf("\n%s", &table)
}

// inMemory reads a file, so that the system has it at hand.
func inMemory(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := io.Copy(io.Discard, f); err != nil {
		t.Fatal(err)
	}
}

// TestUpkeep checks the database and copies it.
func TestUpkeep(t *testing.T) {
	if *dbPath == "" || !*backup {
		t.Skip("checks and copies a large database: ask with -scale.db and -scale.backup")
	}
	to := *dbPath + ".copy"
	defer func() { _ = os.Remove(to) }()
	for _, args := range [][]string{{"db", "check", "--db", "sqlite:" + *dbPath}, {"db", "backup", "--db", "sqlite:" + *dbPath, to}} {
		c, err := command(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		took := time.Since(began)
		var most int64
		if use := peak(c.ProcessState); runtime.GOOS == "linux" {
			most = use >> 10
		}
		t.Logf("agl %s: %v, %d MiB at the most: %s", strings.Join(args[:2], " "), took.Round(100*time.Millisecond), most, strings.TrimSpace(string(out)))
	}
}
