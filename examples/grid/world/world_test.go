package world_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/examples/grid/world"
)

func Example() {
	w, err := world.New(world.Task{ID: "one", Start: "aw", Key: "ay", Exit: "az"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, direction := range []string{"north", "east", "east", "east"} {
		fmt.Println(w.Situation())
		if _, err := w.Go(direction); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("out:", w.Out())
	// Output:
	// The key is at ay, the exit at az. You are at aw.
	// The key is at ay, the exit at az. You are at aw.
	// The key is at ay, the exit at az. You are at ax.
	// You have the key. The exit is at az. You are at ay.
	// out: true
}

func TestWalk(t *testing.T) {
	t.Parallel()
	w, err := world.New(world.Task{Start: "aw", Key: "bw", Exit: "cw"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Go("up"); !errors.Is(err, world.ErrDirection) {
		t.Errorf("Go(up) = %v, want ErrDirection", err)
	}
	for i, step := range []struct {
		direction string
		want      world.Move
	}{
		{"west", world.Move{Bumped: true}},
		{"south", world.Move{Found: true}},
		{"north", world.Move{}},
		{"south", world.Move{}}, // found once
		{"east", world.Move{Bumped: true}},
		{"south", world.Move{}},
	} {
		if got, err := w.Go(step.direction); err != nil || got != step.want {
			t.Errorf("move %d, %s = %+v, %v, want %+v", i, step.direction, got, err, step.want)
		}
	}
	if !w.Out() || !w.Over() || w.Moves() != 7 {
		t.Errorf("out %v, over %v after %d moves, want both after 7", w.Out(), w.Over(), w.Moves())
	}
	// The exit is closed to who has no key.
	w, err = world.New(world.Task{Start: "aw", Key: "dz", Exit: "ax"})
	if err != nil {
		t.Fatal(err)
	}
	for !w.Over() {
		if _, err := w.Go("east"); err != nil || w.Out() {
			t.Fatalf("out without the key, %v", err)
		}
	}
	if w.Moves() != world.MaxMoves {
		t.Errorf("over after %d moves, want %d", w.Moves(), world.MaxMoves)
	}
}

func TestTasksThatCannotBe(t *testing.T) {
	t.Parallel()
	for want, task := range map[string]world.Task{
		`start: "bx" is not a room`:           {Start: "bx", Key: "aw", Exit: "ax"}, // a wall
		`key: "" is not a room`:               {Start: "aw", Exit: "ax"},
		`exit: "az1" is not a room`:           {Start: "aw", Key: "ax", Exit: "az1"},
		"start, key and exit must be three":   {Start: "aw", Key: "ax", Exit: "ax"},
		"1 training and 0 validation":         {},
		"must be at least 1, together at mos": {},
	} {
		_, err := world.New(task)
		if task == (world.Task{}) {
			_, _, err = world.Generate(1, 1, 0)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", task, err, want)
		}
	}
}

// Nearly every task can be done in time, and none is in two lists.
func TestGenerate(t *testing.T) {
	t.Parallel()
	train, validation, err := world.Generate(7, 1500, 600)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	tooFar := 0
	for _, task := range append(train, validation...) {
		if seen[task.ID] {
			t.Fatalf("%s occurs twice", task.ID)
		}
		seen[task.ID] = true
		if task.Shortest > world.MaxMoves {
			tooFar++
		}
		// Who always walks on a shortest way needs exactly as many moves.
		walk, err := world.Demonstrate(task, 1, rand.New(rand.NewPCG(1, 1)))
		if want := min(task.Shortest, world.MaxMoves); err != nil || len(walk) != want {
			t.Errorf("%s: %d careful moves, %v, want %d", task.ID, len(walk), err, want)
		}
	}
	if tooFar == 0 || tooFar > len(seen)/20 {
		t.Errorf("%d of %d tasks cannot be done, want few", tooFar, len(seen))
	}
	again, _, err := world.Generate(7, 1500, 600)
	if diff := cmp.Diff(train, again); err != nil || diff != "" {
		t.Errorf("the same seed gives other tasks: %v\n%s", err, diff)
	}
}
