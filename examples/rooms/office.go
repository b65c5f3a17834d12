package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// room is one that can be booked.
type room struct {
	Name       string   `json:"name"`
	Seats      int      `json:"seats"`
	Equipment  []string `json:"equipment"`
	Accessible bool     `json:"accessible"`
	// taken are the hours in which somebody else has it.
	taken []int
}

// office are all rooms; a tool tells which of them are free.
var office = []room{
	{"atlas", 4, []string{"screen"}, false, []int{9, 10, 14}},
	{"borealis", 12, []string{"screen", "whiteboard", "camera"}, true, []int{11, 15}},
	{"cygnus", 8, []string{"whiteboard"}, true, []int{10, 13}},
	{"draco", 6, []string{"screen", "camera"}, false, []int{9, 16}},
	{"eridanus", 8, []string{"screen", "camera"}, true, []int{11, 14}},
	{"fornax", 4, []string{"whiteboard"}, true, []int{12, 15}},
	{"gemini", 20, []string{"screen", "whiteboard", "camera"}, true, []int{13}},
	{"hydra", 6, []string{"screen", "whiteboard"}, true, []int{10, 16}},
}

func freeAt(hour int) []room {
	return slices.DeleteFunc(slices.Clone(office), func(r room) bool { return slices.Contains(r.taken, hour) })
}

// wish is a task: somebody wants a room.
type wish struct {
	ID         string `json:"id"`
	Hour       int    `json:"hour"`
	People     int    `json:"people"`
	Equipment  string `json:"equipment,omitempty"`
	Wheelchair bool   `json:"wheelchair,omitempty"`
}

// String is the wish as the agent is told it.
func (w wish) String() string {
	text := fmt.Sprintf("We are %d and need a room at %d o'clock", w.People, w.Hour)
	if w.Equipment != "" {
		text += " with a " + w.Equipment
	}
	if w.Wheelchair {
		text += ", one of us in a wheelchair"
	}
	return text + "."
}

func (w wish) fits(r room) bool {
	return r.Seats >= w.People && (w.Equipment == "" || slices.Contains(r.Equipment, w.Equipment)) && (r.Accessible || !w.Wheelchair)
}

// best are the smallest of the rooms that fit and are free.
func (w wish) best() []string {
	fit := slices.DeleteFunc(freeAt(w.Hour), func(r room) bool { return !w.fits(r) })
	least := slices.MinFunc(fit, func(a, b room) int { return a.Seats - b.Seats })
	var names []string
	for _, r := range fit {
		if r.Seats == least.Seats {
			names = append(names, r.Name)
		}
	}
	return names
}

// wishes draws tasks that the office can meet, none of them twice.
func wishes(seed uint64, count int) []wish {
	var all []wish
	for hour := 9; hour <= 16; hour++ {
		for _, people := range []int{2, 4, 5, 6, 8, 11} {
			for _, equipment := range []string{"", "screen", "whiteboard", "camera"} {
				for _, wheelchair := range []bool{false, true} {
					w := wish{fmt.Sprintf("%d-%d-%s-%t", hour, people, equipment, wheelchair), hour, people, equipment, wheelchair}
					if slices.ContainsFunc(freeAt(hour), w.fits) {
						all = append(all, w)
					}
				}
			}
		}
	}
	rand.New(rand.NewPCG(seed, 0x100)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(count, len(all))]
}

// verdict is what the grader says of an answer: a reward from 0 to 1, and in
// words what is wrong with it. The words are for who rewrites the prompts.
type verdict struct {
	reward float64
	notes  []string
}

// grade judges by rules: half of the reward is for a room that fits and is free, a
// third more for one of the smallest, the rest for answering with the name alone.
func grade(w wish, answer string) verdict {
	var v verdict
	note := func(format string, args ...any) { v.notes = append(v.notes, fmt.Sprintf(format, args...)) }
	at := slices.IndexFunc(office, func(r room) bool { return strings.Contains(strings.ToLower(answer), r.Name) })
	if at < 0 {
		note("The answer %q names no room of this office.", answer)
		return v
	}
	r := office[at]
	if slices.Contains(r.taken, w.Hour) {
		note("%s is taken at %d o'clock: look up which rooms are free.", r.Name, w.Hour)
	}
	if r.Seats < w.People {
		note("%s has %d seats for %d people: mind the seats.", r.Name, r.Seats, w.People)
	}
	if w.Equipment != "" && !slices.Contains(r.Equipment, w.Equipment) {
		note("%s has no %s: mind the equipment.", r.Name, w.Equipment)
	}
	if w.Wheelchair && !r.Accessible {
		note("%s cannot be reached in a wheelchair: mind the access.", r.Name)
	}
	if len(v.notes) > 0 {
		return v
	}
	v.reward = 0.5
	if slices.Contains(w.best(), r.Name) {
		v.reward += 0.3
	} else {
		note("%s is larger than needed, %s would do: take the smallest.", r.Name, strings.Join(w.best(), " or "))
	}
	if strings.EqualFold(strings.TrimSpace(answer), r.Name) {
		v.reward += 0.2
	} else {
		note("The answer %q is a sentence: give the name alone.", answer)
	}
	return v
}
