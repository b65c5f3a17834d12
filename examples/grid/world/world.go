// Package world is a house of rooms on a grid, in which a key must be fetched
// before the exit opens.
//
// [New] begins a walk on a [Task], [Walk.Go] makes a move, [Generate] draws tasks
// from a seed and [Demonstrate] writes the careless walks that a model is warmed
// up on. The package does no I/O and holds no state.
package world

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// plan is the house, north above: # are walls.
var plan = [...]string{
	"....",
	".#..",
	"..#.",
	"....",
}

// Size is the number of rows, and of columns.
const Size = len(plan)

// MaxMoves is how many moves a walk has. A few tasks need one or two more and
// cannot be done.
const MaxMoves = 10

// Directions are the four words that [Walk.Go] knows.
var directions = [...]string{"north", "east", "south", "west"}

var steps = [...]cell{{-1, 0}, {0, 1}, {1, 0}, {0, -1}}

type cell struct{ row, column int }

func (c cell) open() bool {
	return c.row >= 0 && c.row < Size && c.column >= 0 && c.column < Size && plan[c.row][c.column] == '.'
}

// String is the name of a room: a letter for the row, a to d from the north, and
// one for the column, w to z from the west.
func (c cell) String() string { return string([]byte{'a' + byte(c.row), 'w' + byte(c.column)}) }

func parseCell(name string) (cell, error) {
	if len(name) == 2 {
		if c := (cell{int(name[0]) - 'a', int(name[1]) - 'w'}); c.open() {
			return c, nil
		}
	}
	return cell{}, fmt.Errorf("%q is not a room", name)
}

func rooms() []cell {
	var out []cell
	for row := range Size {
		for column := range Size {
			if c := (cell{row, column}); c.open() {
				out = append(out, c)
			}
		}
	}
	return out
}

// Task says where everything is, as names of rooms.
type Task struct {
	ID    string `json:"id"`
	Start string `json:"start"`
	Key   string `json:"key"`
	Exit  string `json:"exit"`
	// Shortest is the number of moves of the best walk.
	Shortest int `json:"shortest"`
}

// Walk is one try at a task.
type Walk struct {
	at, key, exit cell
	hasKey        bool
	moves         int
}

// New begins a walk.
func New(t Task) (*Walk, error) {
	var w Walk
	for _, room := range []struct {
		member, name string
		cell         *cell
	}{{"start", t.Start, &w.at}, {"key", t.Key, &w.key}, {"exit", t.Exit, &w.exit}} {
		var err error
		if *room.cell, err = parseCell(room.name); err != nil {
			return nil, fmt.Errorf("task %s: %s: %w", t.ID, room.member, err)
		}
	}
	if w.key == w.at || w.key == w.exit || w.at == w.exit {
		return nil, fmt.Errorf("task %s: start, key and exit must be three rooms", t.ID)
	}
	return &w, nil
}

// Move is what came of a move.
type Move struct {
	// Bumped tells that there was a wall, Found that the key was picked up.
	Bumped, Found bool
}

// ErrDirection is returned for a word that is not a direction.
var ErrDirection = errors.New("directions are north, east, south and west")

// Go makes a move. A word that is no direction takes a move, too.
func (w *Walk) Go(direction string) (Move, error) {
	w.moves++
	d := slices.Index(directions[:], direction)
	if d < 0 {
		return Move{}, ErrDirection
	}
	next := cell{w.at.row + steps[d].row, w.at.column + steps[d].column}
	if !next.open() {
		return Move{Bumped: true}, nil
	}
	w.at = next
	found := !w.hasKey && w.at == w.key
	w.hasKey = w.hasKey || found
	return Move{Found: found}, nil
}

// Situation is what the walker sees: all that the best next move depends on.
func (w *Walk) Situation() string {
	if w.hasKey {
		return fmt.Sprintf("You have the key. The exit is at %s. You are at %s.", w.exit, w.at)
	}
	return fmt.Sprintf("The key is at %s, the exit at %s. You are at %s.", w.key, w.exit, w.at)
}

// Out tells that the walker left the house: at the exit with the key.
func (w *Walk) Out() bool { return w.hasKey && w.at == w.exit }

// Over tells that the walk has ended.
func (w *Walk) Over() bool { return w.Out() || w.moves >= MaxMoves }

// Moves is how many moves were made.
func (w *Walk) Moves() int { return w.moves }

// distances are the moves from each room to a goal.
func distances(goal cell) map[cell]int {
	out := map[cell]int{goal: 0}
	for queue := []cell{goal}; len(queue) > 0; queue = queue[1:] {
		for _, s := range steps {
			next := cell{queue[0].row + s.row, queue[0].column + s.column}
			if _, seen := out[next]; next.open() && !seen {
				out[next] = out[queue[0]] + 1
				queue = append(queue, next)
			}
		}
	}
	return out
}

// Generate draws training and validation tasks that have none in common.
func Generate(seed uint64, train, validation int) (trainTasks, validationTasks []Task, err error) {
	all := tasks()
	if train < 1 || validation < 1 || train+validation > len(all) {
		return nil, nil, fmt.Errorf("world: %d training and %d validation tasks: each must be at least 1, together at most %d", train, validation, len(all))
	}
	rand.New(rand.NewPCG(seed, 0x9d1d)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:train], all[train : train+validation], nil
}

// tasks are all that there are.
func tasks() []Task {
	var out []Task
	open := rooms()
	for _, key := range open {
		toKey := distances(key)
		for _, start := range open {
			for _, exit := range open {
				shortest := toKey[start] + toKey[exit]
				if start == key || exit == key || start == exit {
					continue
				}
				out = append(out, Task{
					ID:    start.String() + "-" + key.String() + "-" + exit.String(),
					Start: start.String(), Key: key.String(), Exit: exit.String(), Shortest: shortest,
				})
			}
		}
	}
	return out
}

// Demonstration is one move in a situation. It shows the form, not the way.
type Demonstration struct{ Situation, Direction string }

// Demonstrate walks on a task: a share of the moves, care, is on a shortest way,
// half of the others go on as before, the rest go anywhere.
func Demonstrate(t Task, care float64, random *rand.Rand) ([]Demonstration, error) {
	w, err := New(t)
	if err != nil {
		return nil, err
	}
	var out []Demonstration
	last := random.IntN(len(directions))
	for !w.Over() {
		next := random.IntN(len(directions))
		switch choice := random.Float64(); {
		case choice < care:
			next = w.best(random)
		case choice < care+(1-care)/2:
			next = last
		}
		out = append(out, Demonstration{w.Situation(), directions[next]})
		if _, err := w.Go(directions[next]); err != nil {
			return nil, err
		}
		last = next
	}
	return out, nil
}

// best is a direction of a shortest way, one of them by chance.
func (w *Walk) best(random *rand.Rand) int {
	goal := w.key
	if w.hasKey {
		goal = w.exit
	}
	far := distances(goal)
	var ways []int
	for d, s := range steps {
		next := cell{w.at.row + s.row, w.at.column + s.column}
		if next.open() && far[next] < far[w.at] {
			ways = append(ways, d)
		}
	}
	return ways[random.IntN(len(ways))]
}

// Words is the vocabulary of a model that walks here.
func Words() []string {
	out := []string{
		"The key is at", ", the exit at", ". You are at", "You have the key. The exit is at",
	}
	out = append(out, directions[:]...)
	for _, room := range rooms() {
		out = append(out, " "+room.String())
	}
	return out
}
