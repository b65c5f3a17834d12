package world_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentlightning/examples/rag/world"
)

// Every question is answered by following names from article to article.
func TestQuestions(t *testing.T) {
	t.Parallel()
	w := world.New(3)
	text := map[string]string{}
	for _, a := range w.Articles {
		if text[a.Title] != "" {
			t.Errorf("two articles are called %q", a.Title)
		}
		if !strings.Contains(a.Text, " "+a.Title) {
			t.Errorf("the article %q does not name it: %q", a.Title, a.Text)
		}
		text[a.Title] = a.Text
	}
	if len(text) != world.Articles || world.Articles != 200 {
		t.Errorf("%d articles, want 200", len(text))
	}
	train, validation, err := w.Questions(3, 600, 100)
	if err != nil {
		t.Fatal(err)
	}
	seen, hops := map[string]bool{}, map[int]int{}
	for _, q := range append(train, validation...) {
		if seen[q.ID] {
			t.Errorf("question %q is drawn twice", q.ID)
		}
		seen[q.ID] = true
		hops[len(q.Evidence)]++
		if !strings.Contains(q.Text, " "+q.Evidence[0]) {
			t.Errorf("%q does not name %q", q.Text, q.Evidence[0])
		}
		for i, title := range q.Evidence {
			next := q.Answer
			if i+1 < len(q.Evidence) {
				next = q.Evidence[i+1]
			}
			if !strings.Contains(text[title], " "+next) {
				t.Errorf("%q: the article %q does not lead to %q: %q", q.Text, title, next, text[title])
			}
		}
	}
	if len(hops) != 2 || hops[2] == 0 || hops[world.Hops] == 0 {
		t.Errorf("questions by number of articles: %v, want some of two and of three", hops)
	}
	if diff := cmp.Diff(w.Articles, world.New(3).Articles); diff != "" {
		t.Errorf("the same seed gave another world:\n%s", diff)
	}
	if cmp.Equal(w.Articles, world.New(4).Articles) {
		t.Error("another seed gave the same world")
	}
	if _, _, err := w.Questions(3, 700, 1); err == nil || !strings.Contains(err.Error(), "together at most 700") {
		t.Errorf("too many questions = %v, want an error with the limit", err)
	}
}

func TestScore(t *testing.T) {
	t.Parallel()
	q := world.Question{Answer: "Ada Kern", Evidence: []string{"Amber Mills", "Torvik"}}
	for said, want := range map[string]world.Score{
		"Answer: Ada Kern":          {F1: 1, Form: true},
		"Answer: ada kern.":         {F1: 1, Form: true},
		"Ada Kern":                  {F1: 1},
		"Perhaps Ada Kern":          {F1: 0.8}, // 2 of 3 words, and both of 2
		"Answer: Ada":               {F1: 2.0 / 3, Form: true},
		"Answer: Ada Ada":           {F1: 0.5, Form: true}, // one Ada counts once
		"Answer: Torvik":            {Form: true},
		"":                          {},
		"Answer:":                   {Form: true},
		"Answer: Ada Kern Ada Kern": {F1: 2.0 / 3, Form: true},
	} {
		if diff := cmp.Diff(want, q.Score(said), cmpopts.EquateApprox(0, 1e-12)); diff != "" {
			t.Errorf("Score(%q) (-want +got):\n%s", said, diff)
		}
	}
	for _, tt := range []struct {
		titles []string
		want   float64
	}{{nil, 0}, {[]string{"Torvik", "Torvik"}, 0.5}, {[]string{"Torvik", "Ulau", "Amber Mills"}, 1}} {
		if got := q.Found(tt.titles); got != tt.want {
			t.Errorf("Found(%v) = %v, want %v", tt.titles, got, tt.want)
		}
	}
}

// With all care a demonstration goes straight to the answer, without any it
// searches and answers by chance.
func TestDemonstrations(t *testing.T) {
	t.Parallel()
	w := world.New(5)
	search := func(query string) (world.Article, bool) {
		for _, a := range w.Articles {
			if a.Title == query {
				return a, true
			}
		}
		return world.Article{}, false
	}
	questions, _, err := w.Questions(5, 300, 1)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	right, unfound := 0, 0
	for _, q := range questions {
		d := w.Demonstrate(q, world.Care{Search: 1, Whole: 1, Answer: 1, Form: 1}, search, random)
		var titles []string
		for _, s := range d.Steps {
			titles = append(titles, s.Query)
		}
		if diff := cmp.Diff(q.Evidence, titles); diff != "" || d.Answer != "Answer: "+q.Answer {
			t.Errorf("%q with care: searches (-want +got):\n%s\nand %q", q.Text, diff, d.Answer)
		}
		d = w.Demonstrate(q, world.Care{}, search, random)
		if len(d.Steps) != world.Hops || !strings.HasPrefix(d.Answer, "Perhaps ") {
			t.Errorf("%q without care: %d searches, %q", q.Text, len(d.Steps), d.Answer)
		}
		if d.Answer == "Perhaps "+q.Answer {
			right++
		}
		for _, s := range d.Steps {
			if s.Found == nil {
				unfound++
			}
		}
	}
	if right > len(questions)/2 || unfound == 0 {
		t.Errorf("without care %d of %d are right and %d searches find nothing", right, len(questions), unfound)
	}
}
