package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/examples/internal/lesson"
	"agentlightning/examples/internal/lessontest"
)

// play runs the example and returns its report and what it printed.
func play(t *testing.T, args ...string) (report, string) {
	t.Helper()
	return lessontest.Play[report](t, mainStatus, args...)
}

// Both searches find better prompts, only GEPA those of the second template, and
// a seed repeats them.
func TestSearches(t *testing.T) {
	t.Parallel()
	r, out := play(t, "--seed", "3")
	g, a := r.Methods["gepa"], r.Methods["apo"]
	if g.Before != a.Before || g.After < g.Before+0.3 || a.After < a.Before+0.2 {
		t.Errorf("gepa %+v\napo %+v\nwant both to begin the same and to improve", g, a)
	}
	if g.Prompts[reply] == initial[reply] || a.Prompts[reply] != initial[reply] {
		t.Errorf("reply is %q by gepa and %q by apo, want the first alone to change", g.Prompts[reply], a.Prompts[reply])
	}
	if !strings.HasPrefix(out, "Both models are scripts") {
		t.Errorf("output does not begin by saying that the models are scripts:\n%s", out)
	}
	again, second := play(t, "--seed", "3")
	if diff := cmp.Diff(r, again); diff != "" || out != second {
		t.Errorf("the same seed gave another run:\n%s\n%s", diff, cmp.Diff(out, second))
	}
}

func TestOneSearch(t *testing.T) {
	t.Parallel()
	r, out := play(t, "--method", "apo")
	if len(r.Methods) != 1 || strings.Contains(out, "gepa") {
		t.Errorf("--method apo ran %v:\n%s", r.Methods, out)
	}
}

func TestGrade(t *testing.T) {
	t.Parallel()
	w := wish{Hour: 10, People: 5, Equipment: "camera", Wheelchair: true}
	for answer, want := range map[string]struct {
		reward float64
		notes  []string
	}{
		"eridanus":                    {1, nil},
		" Eridanus\n":                 {1, nil},
		"borealis":                    {0.7, []string{"take the smallest."}},
		"I would suggest eridanus.":   {0.8, []string{"give the name alone."}},
		"hydra":                       {0, []string{"look up which rooms are free.", "mind the equipment."}},
		"atlas":                       {0, []string{"look up which rooms are free.", "mind the seats.", "mind the equipment.", "mind the access."}},
		"none":                        {0, []string{"names no room of this office."}},
		"I would suggest gemini, sir": {0.5, []string{"take the smallest.", "give the name alone."}},
	} {
		got := grade(w, answer)
		same := len(got.notes) == len(want.notes)
		for i := range want.notes {
			same = same && strings.HasSuffix(got.notes[i], want.notes[i])
		}
		if !same || got.reward < want.reward-1e-9 || got.reward > want.reward+1e-9 {
			t.Errorf("grade(%q) = %v %q, want %v and notes that end with %q", answer, got.reward, got.notes, want.reward, want.notes)
		}
	}
}

// Every wish can be met, and the assistant that follows all rules meets it.
func TestRulesAreEnough(t *testing.T) {
	t.Parallel()
	told := ""
	for _, r := range rules {
		told += r.says + " "
	}
	for _, w := range wishes(1, 1000) {
		free, err := useTool(lookUp, `{"hour":`+strings.Split(w.ID, "-")[0]+`}`)
		if err != nil {
			t.Fatal(err)
		}
		var in lesson.Chat
		raw, err := json.Marshal(map[string]any{"messages": []map[string]string{
			{"role": "system", "content": told}, {"role": "user", "content": w.String()}, {"role": "tool", "content": free},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &in); err != nil {
			t.Fatal(err)
		}
		said, err := answer(in)
		if err != nil {
			t.Fatal(err)
		}
		if v := grade(w, said.Text); v.reward < 1-1e-9 {
			t.Errorf("%s %q is worth %v: %q", w, said.Text, v.reward, v.notes)
		}
	}
}

func TestTool(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{`{"hour":"ten"}`: "an object with an hour", `{`: "an object with an hour"} {
		if _, err := useTool(lookUp, arguments); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("useTool(%s) = %v, want an error with %q", arguments, err, want)
		}
	}
	if _, err := useTool("book", "{}"); err == nil || !strings.Contains(err.Error(), `no tool "book"`) {
		t.Errorf("another tool: %v", err)
	}
	free, err := useTool(lookUp, `{"hour":13}`)
	if err != nil || strings.Contains(free, "gemini") || !strings.Contains(free, "atlas") {
		t.Errorf("free at 13: %s, %v, want atlas and not gemini", free, err)
	}
	if names := (wish{Hour: 9, People: 4}).best(); !slices.Equal(names, []string{"fornax"}) {
		t.Errorf("best room for 4 at 9: %v", names)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	lessontest.Refuses(t, mainStatus, map[string][]string{
		"--method best: must be": {"--method", "best"},
		`unexpected argument`:    {"x"},
		"provided but not":       {"--nope"},
	})
}
