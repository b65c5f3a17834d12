package storetest

import (
	"bufio"
	"context"
	_ "embed" // for the seeds that failed once
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/store"
)

// seeds are seeds of differential runs that failed once.
//
//go:embed seeds.txt
var seeds string

// DifferentialSeeds runs [Differential] with every seed that failed once, and
// with n fresh ones.
func DifferentialSeeds(t *testing.T, n int, a, b Opener) {
	t.Helper()
	var all []uint64
	for lines := bufio.NewScanner(strings.NewReader(seeds)); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("seeds.txt: %v", err)
		}
		all = append(all, seed)
	}
	for range n {
		all = append(all, rand.Uint64())
	}
	for _, seed := range all {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			Differential(t, seed, a, b)
		})
	}
}

// Differential drives two stores with the same random operations and compares
// every answer. Both need the power [Clock]. Ids are compared by the order in
// which they appeared. A seed that fails is worth a line in seeds.txt.
func Differential(t *testing.T, seed uint64, a, b Opener) {
	t.Helper()
	const operations = 400
	r := rand.New(rand.NewPCG(seed, 1))
	clock := &manualClock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	o := Options{Now: clock.Now}
	if r.IntN(2) == 0 {
		o.HealthScanInterval = time.Duration(r.IntN(20)) * time.Second
	}
	sides := [2]*side{newSide(t, a(t, o)), newSide(t, b(t, o))}
	var history []string
	for range operations {
		op := generate(r, sides[0])
		var answers [2]string
		for i, s := range sides {
			answers[i] = s.names(op.run(t.Context(), s))
		}
		history = append(history, op.text)
		if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
			last := history[max(0, len(history)-25):]
			t.Fatalf("seed %d (add it to store/storetest/seeds.txt), operation %d: the stores differ (-first +second):\n%s\nthe last operations:\n%s",
				seed, len(history), diff, strings.Join(last, "\n"))
		}
		if r.IntN(3) == 0 {
			clock.advance(time.Duration(r.IntN(4000)) * time.Millisecond)
		}
	}
}

// side is one of the two stores with what its operations can refer to. Both
// sides have the same things at the same places.
type side struct {
	store.Store

	rollouts  []string
	attempts  []store.Attempted
	claims    [][]agl.AttemptedRollout
	resources []string
	runs      []string
	known     map[string]string
}

func newSide(t *testing.T, s store.Store) *side {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &side{Store: s, known: map[string]string{}}
}

var madeID = regexp.MustCompile(`\b(ro|at|rs|run)-[0-9a-f]{8,12}\b`)

// names replaces ids by the order of their appearance.
func (s *side) names(text string) string {
	return madeID.ReplaceAllStringFunc(text, func(id string) string {
		name, ok := s.known[id]
		if !ok {
			kind, _, _ := strings.Cut(id, "-")
			name = fmt.Sprintf("%s#%d", kind, len(s.known))
			s.known[id] = name
		}
		return name
	})
}

func (s *side) sawAttempt(a *agl.Attempt) {
	if a != nil {
		s.attempts = append(s.attempts, store.Attempted{RolloutID: a.RolloutID, AttemptID: a.AttemptID})
	}
}

func (s *side) rollout(i int) string {
	if i >= len(s.rollouts) {
		return "ro-unknown"
	}
	return s.rollouts[i]
}

func (s *side) attempt(i int) store.Attempted {
	if i >= len(s.attempts) {
		return store.Attempted{RolloutID: s.rollout(0), AttemptID: "at-unknown"}
	}
	return s.attempts[i]
}

// operation is one call, described without ids, that any side can make.
type operation struct {
	text string
	run  func(ctx context.Context, s *side) string
}

// show is what a call answered: its JSON, or the kind and text of its error.
func show(v any, err error) string {
	if err != nil {
		for _, kind := range []error{store.ErrNotFound, store.ErrInvalid, store.ErrConflict} {
			if errors.Is(err, kind) {
				return fmt.Sprintf("%v: %v", kind, err)
			}
		}
		return "error: " + err.Error()
	}
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return "error: " + err.Error()
	}
	return string(b)
}

func op(run func(ctx context.Context, s *side) string, format string, args ...any) operation {
	return operation{fmt.Sprintf(format, args...), run}
}
