package program_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"agentlightning/agent/program"
)

// worker reads tasks, which are small numbers, and answers with its process id
// and the task.
const worker = `n=0
while read -r line; do
  n=$((n+1))
  id=${line#*attempt_id\":\"}; id=${id%%\"*}
  task=${line#*task\":}; task=${task%%,*}
  echo "working on $task"; echo "note $task" >&2
  case $task in
  13) exit 4 ;;
  14) echo "{\"attempt_id\":\"$id\",\"error\":\"unlucky\"}" ;;
  15) echo "{\"attempt_id\":\"$id\"}" ;;
  16) echo "{\"attempt_id\":\"other\",\"reward\":1}"; echo "{\"attempt_id\":\"$id\",\"reward\":16}" ;;
  *) echo "{\"attempt_id\":\"$id\",\"reward\":$n}" ;;
  esac
done`

func TestPool(t *testing.T) {
	t.Parallel()
	a := newAgent(t, program.Config{Command: sh(worker), Pool: true, Reward: program.RewardStdout})
	for i, tt := range []struct {
		task, want string
	}{
		{"1", "1"},
		{"2", "2"}, // one process for both
		{"14", `program "sh": unlucky`},
		{"15", `there is no number "reward"`},
		{"16", "16"},
		{"13", `program "sh": exit status 4: note 13`},
		{"5", "1"}, // a new process
	} {
		c := call(tt.task)
		c.Rollout.Attempt.AttemptID = fmt.Sprintf("at-%d", i)
		result, streams, err := outcome(t.Context(), t, a, c)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(*result.Reward)
		}
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("task %s: %s, want %s", tt.task, got, tt.want)
		}
		if want := "working on " + tt.task + "\n"; !strings.HasPrefix(streams["stdout"], want) {
			t.Errorf("task %s: stdout %q, want %q first", tt.task, streams["stdout"], want)
		}
	}
}

func TestPoolAtOnce(t *testing.T) {
	t.Parallel()
	a := newAgent(t, program.Config{Command: sh(worker), Pool: true, Reward: program.RewardStdout})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 10 {
				c := call("1")
				c.Rollout.Attempt.AttemptID = fmt.Sprintf("at-%d-%d", i, j)
				if result, err := a.Run(t.Context(), c); err != nil || result.Reward == nil || *result.Reward < 1 {
					t.Errorf("%+v, %v", result, err)
				}
			}
		})
	}
	all.Wait()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Run(t.Context(), call("1")); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a run after Close: %v", err)
	}
}

func TestPoolWithGrader(t *testing.T) {
	t.Parallel()
	a := newAgent(t, program.Config{Command: sh(worker), Pool: true, Grader: sh(`grep -q 'reward' && echo 0.5`)})
	result, _, err := outcome(t.Context(), t, a, call("1"))
	if err != nil || *result.Reward != 0.5 {
		t.Errorf("%+v, %v, want the grader's reward", result, err)
	}
	var exit *program.ExitError
	if _, _, err := outcome(t.Context(), t, a, call("13")); !errors.As(err, &exit) || exit.Code != 4 {
		t.Errorf("%v, want status 4", err)
	}
}
