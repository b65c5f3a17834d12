package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

// TestPlans shows how SQLite runs the statements whose speed depends on an
// index. A SCAN of anything but a list of ids or the front of the queue grows
// with what is stored.
func TestPlans(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{})
	spansOfAttempt := spanSelection(&store.SpanQuery{AttemptID: new("at"), Paging: store.Paging{SortBy: "sequence_id", Limit: 10}})
	var byStatus, byID, controlled filter
	controlled.within("status", texts([]agl.RolloutStatus{agl.RolloutQueuing}))
	controlled.scopes = append(controlled.scopes, "control IS NOT NULL")
	byStatus.within("status", texts([]agl.RolloutStatus{agl.RolloutFailed}))
	byID.within("rollout_id", nil)

	var out strings.Builder
	for _, q := range []struct{ name, sql string }{
		{"selectRollout", selectRollout},
		{"selectRollouts", selectRollouts},
		{"selectOpen", selectOpen},
		{"updateRollout", updateRollout},
		{"queueFront", queueFront},
		{"pushQueue", pushQueue},
		{"pushQueueFront", pushQueueFront},
		{"popQueue", popQueue},
		{"selectAttempt", selectAttempt},
		{"selectLatestAttempt", selectLatestAttempt},
		{"selectLatestAttempts", selectLatestAttempts},
		{"updateAttempt", updateAttempt},
		{"heartbeatAttempt", heartbeatAttempt},
		{"touchAttempt", touchAttempt},
		{"deleteAttempt", deleteAttempt},
		{"lastAttempt", lastAttempt},
		{"spans of an attempt", spansOfAttempt.sql("body")},
		{"page of the spans of an attempt", spansOfAttempt.page("body", "spans", false)},
		{"rollouts by status", byStatus.selection("rollouts", store.Paging{}, rolloutSorts).sql(rolloutColumns)},
		{"rollouts by id", byID.selection("rollouts", store.Paging{}, rolloutSorts).sql(rolloutColumns)},
		{"rollouts of controllers by status", controlled.selection("rollouts", store.Paging{}, rolloutSorts).sql(rolloutColumns)},
		{"selectLastSpan", selectLastSpan},
		{"selectNewestLog", selectNewestLog},
		{"deleteLogLines", deleteLogLines},
		{"selectSpanned", selectSpanned},
		{"countByStatus", countByStatus},
		{"fewOfStatus", fewOfStatus},
		{"seqsOfID", seqsOfID},
		{"seqsOfPrefix", seqsOfPrefix},
		{"countAttemptSpans", countAttemptSpans},
		{"selectAttemptSpans", selectAttemptSpans},
		{"selectFewSpans", selectFewSpans},
		{"selectLatestBySeq", selectLatestBySeq},
		{"walk", walkKeys(nil, true)},
		{"walk through a time", walkKeys([]string{startKey + " >= ?", startKey + " <= ?"}, false)},
		{"selectEnded", selectEnded},
		{"selectNextSeqs", selectNextSeqs},
		{"weighRollouts", weighRollouts},
		{"deleteAnswers", deleteAnswers},
		{"selectCompletions", selectCompletions},
		{"countCompletions", countCompletions},
		{"page of rollouts", (&filter{}).selection("rollouts", store.Paging{Limit: 10}, rolloutSorts).sql(rolloutColumns) + " LIMIT ? OFFSET ?"},
		{"first rollouts by start", (&filter{}).selection("rollouts", store.Paging{SortBy: "start_time"}, rolloutSorts).sql(rolloutColumns)},
		{"newest rollouts", (&filter{}).selection("rollouts", store.Paging{SortBy: "start_time", Desc: true}, rolloutSorts).sql(rolloutColumns)},
		{"page of the newest rollouts", (&filter{}).selection("rollouts", store.Paging{SortBy: "start_time", Desc: true}, rolloutSorts).page(rolloutColumns, "rollouts", false)},
		{"page of the oldest rollouts, from the other end", (&filter{}).selection("rollouts", store.Paging{SortBy: "start_time", Desc: true}, rolloutSorts).page(rolloutColumns, "rollouts", true)},
		{"page of rollouts by id", (&filter{}).selection("rollouts", store.Paging{SortBy: "rollout_id"}, rolloutSorts).page(rolloutColumns, "rollouts", false)},
		{"moveRollout", moveRollout},
		{"raiseSequence", raiseSequence},
		{"selectLatestResources", selectLatestResources},
		{"selectWorker", selectWorker},
		{"selectStepMetrics", selectStepMetrics},
		{"selectLatestCheckpoint", selectLatestCheckpoint},
		{"selectCheckpoints", selectCheckpoints},
		{"selectAnswer", selectAnswer},
		{"pruneAnswers", pruneAnswers},
		{"countRollouts", countRollouts},
		{"countAttempts", countAttempts},
		{"countSpans", countSpans},
	} {
		out.WriteString(q.name + "\n")
		// In a transaction, for the connection is the writer's.
		err := b.Update(t.Context(), func(engine.Tx) error {
			return b.writer.c.query(func(r row) error {
				out.WriteString("  " + r.text(3) + "\n")
				return nil
			}, "EXPLAIN QUERY PLAN "+q.sql, make([]any, strings.Count(q.sql, "?"))...)
		})
		if err != nil {
			t.Fatalf("%s: %v", q.name, err)
		}
	}
	golden := filepath.Join("testdata", "plans.txt")
	if *rewrite {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("plans (-want +got; -update rewrites):\n%s", diff)
	}
}
