package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	agl "agentlightning"
	"agentlightning/store"
)

// queueCall is what a client of the queue did: it put a task in, took one out
// (none when the task is empty), or gave one back.
type queueCall struct {
	kind string // "enqueue", "dequeue" or "release"
	task string // of enqueue and release
}

// queueModel is a queue as one caller alone would see it. Its state is the list
// of tasks, each followed by a comma.
func queueModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			tasks, call := state.(string), input.(queueCall)
			switch call.kind {
			case "enqueue":
				return true, tasks + call.task + ","
			case "release":
				return true, call.task + "," + tasks
			}
			first, rest, _ := strings.Cut(tasks, ",")
			return output.(string) == first, rest
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %v", input, output) },
	}
}

// Linearizable lets several clients use the queue at once, many times over, and
// checks that each history is one that a queue used by a single caller could
// have had: first in, first out, each task handed out once, and what is released
// is next.
func Linearizable(t *testing.T, open Opener, lacks ...Lack) {
	t.Helper()
	releases := true
	for _, l := range lacks {
		releases = releases && l.Power != Release
	}
	// Short histories: with calls that all overlap, as those of a group commit
	// do, the search for an order grows with the factorial.
	const rounds, clients, calls = 50, 4, 5
	// What is not decided soon is not decided in a minute either.
	const patience, most = 5 * time.Second, 4
	undecided := 0
	s := open(t, Options{})
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for round := range rounds {
		seed := rand.Uint64()
		h := &history{store: s, from: time.Now()}
		together(clients, func(client int) {
			r := rand.New(rand.NewPCG(seed, uint64(client)))
			for range calls {
				h.step(t, r, client, releases)
			}
		})
		for h.dequeue(t.Context(), t, clients) != nil { // the next round begins with an empty queue
			continue
		}
		result, _ := porcupine.CheckOperationsVerbose(queueModel(), h.ops, patience)
		if result == porcupine.Unknown {
			if undecided++; undecided > most {
				t.Fatalf("round %d: no answer within %v for the %dth time; make the histories shorter", round, patience, undecided)
			}
			continue
		}
		if result != porcupine.Ok {
			t.Fatalf("round %d, seed %d: no order of these calls explains them (%v): %v", round, seed, result, h.ops)
		}
	}
}

type history struct {
	store store.Store
	from  time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

// record runs a call and notes when it began and ended.
func (h *history) record(client int, in queueCall, call func() string) {
	begin := time.Since(h.from)
	out := call()
	end := time.Since(h.from)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: int64(begin), Output: out, Return: int64(end)})
}

func (h *history) step(t *testing.T, r *rand.Rand, client int, releases bool) {
	ctx := t.Context()
	if r.IntN(2) == 0 {
		task := fmt.Sprintf("%d-%d", client, r.IntN(1e9))
		h.record(client, queueCall{"enqueue", task}, func() string {
			input, _ := json.Marshal(task)
			if _, err := h.store.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: input}}); err != nil {
				t.Error(err)
			}
			return ""
		})
		return
	}
	claim := h.dequeue(ctx, t, client)
	if claim == nil || !releases || r.IntN(3) > 0 {
		return
	}
	h.record(client, queueCall{"release", taskOf(t, claim)}, func() string {
		if err := h.store.ReleaseRollouts(ctx, []agl.AttemptedRollout{*claim}); err != nil {
			t.Error(err)
		}
		return ""
	})
}

func (h *history) dequeue(ctx context.Context, t *testing.T, client int) (claim *agl.AttemptedRollout) {
	h.record(client, queueCall{kind: "dequeue"}, func() string {
		got, err := h.store.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1})
		if err != nil {
			t.Error(err)
		}
		if len(got) == 0 {
			return ""
		}
		claim = &got[0]
		return taskOf(t, claim)
	})
	return claim
}

func taskOf(t *testing.T, claim *agl.AttemptedRollout) string {
	var task string
	if err := claim.DecodeInput(&task); err != nil {
		t.Error(err)
	}
	return task
}
