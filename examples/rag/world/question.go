package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Question is a task.
type Question struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	// Answer is the name that answers it.
	Answer string `json:"answer"`
	// Evidence are the titles of the articles that lead to it, in order. The first
	// is named in the question, each of the others in the article before it.
	Evidence []string `json:"evidence"`
}

// kind is a kind of question: a name between two texts.
type kind struct{ id, before, after string }

var kinds = []kind{
	{"person-company-town", "In which town is the company that", " works for?"},
	{"person-company-founder", "Who founded the company that", " works for?"},
	{"person-town-river", "On which river lies the town that", " comes from?"},
	{"person-town-mayor", "Who is the mayor of the town that", " comes from?"},
	{"company-town-river", "On which river lies the town in which", " makes things?"},
	{"company-town-mayor", "Who is the mayor of the town in which", " makes things?"},
	{"person-company-town-river", "On which river lies the town of the company that", " works for?"},
	{"person-company-town-mayor", "Who is the mayor of the town of the company that", " works for?"},
}

// Hops is the largest number of articles that a question takes.
const Hops = 3

// Questions draws training and validation questions that have none in common.
func (w *World) Questions(seed uint64, train, validation int) (trainQuestions, validationQuestions []Question, err error) {
	all := w.all()
	if train < 1 || validation < 1 || train+validation > len(all) {
		return nil, nil, fmt.Errorf("world: %d training and %d validation questions: each must be at least 1, together at most %d", train, validation, len(all))
	}
	rand.New(rand.NewPCG(seed, 0x9e5)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:train], all[train : train+validation], nil
}

// all are the questions that there are.
func (w *World) all() []Question {
	var out []Question
	for _, k := range kinds {
		if strings.HasPrefix(k.id, "company") {
			for i := range w.companies {
				out = append(out, w.question(k, w.companies[i].name, -1, i))
			}
			continue
		}
		for i := range w.people {
			out = append(out, w.question(k, w.people[i].name, i, -1))
		}
	}
	return out
}

// question follows the relations in the id of a kind from a person or a company.
func (w *World) question(k kind, name string, atPerson, atCompany int) Question {
	q := Question{ID: k.id + " " + name, Text: k.before + " " + name + k.after, Evidence: []string{name}}
	atTown := -1
	for _, to := range strings.Split(k.id, "-")[1:] {
		switch to {
		case "company":
			atCompany = w.people[atPerson].company
			q.Answer = w.companies[atCompany].name
		case "town":
			if atCompany >= 0 {
				atTown = w.companies[atCompany].town
			} else {
				atTown = w.people[atPerson].home
			}
			q.Answer = w.towns[atTown].name
		case "river":
			q.Answer = w.rivers[w.towns[atTown].river]
		case "mayor":
			q.Answer = w.people[w.towns[atTown].mayor].name
		case "founder":
			q.Answer = w.people[w.companies[atCompany].founder].name
		}
		q.Evidence = append(q.Evidence, q.Answer)
	}
	// The last one is the answer, whose own article is not needed.
	q.Evidence = q.Evidence[:len(q.Evidence)-1]
	return q
}

// Found is the share of the evidence among the titles of what was found.
func (q *Question) Found(titles []string) float64 {
	n := 0.0
	for _, t := range q.Evidence {
		if slices.Contains(titles, t) {
			n++
		}
	}
	return n / float64(len(q.Evidence))
}

// Score is what an answer is worth.
type Score struct {
	// F1 is that of the words of the answer, 0 to 1.
	F1 float64
	// Form tells that the answer had the form that was asked for.
	Form bool
}

// answerForm is how an answer must begin; otherForm is how careless ones do.
const (
	answerForm = "Answer:"
	otherForm  = "Perhaps"
)

// Score judges what the answering agent said. Without the form all of it is
// taken for the answer.
func (q *Question) Score(said string) Score {
	answer, form := strings.CutPrefix(said, answerForm)
	return Score{F1(answer, q.Answer), form}
}

// F1 is the harmonic mean of precision and recall of the words of an answer, each
// as often as it occurs, in lower case and without punctuation (the F1 of SQuAD,
// arXiv:1606.05250, section 6.1).
func F1(answer, right string) float64 {
	got, want := Split(answer), Split(right)
	left := slices.Clone(want)
	common := 0.0
	for _, word := range got {
		if i := slices.Index(left, word); i >= 0 {
			left = slices.Delete(left, i, i+1)
			common++
		}
	}
	if common == 0 {
		return 0
	}
	precision, recall := common/float64(len(got)), common/float64(len(want))
	return 2 * precision * recall / (precision + recall)
}

// Split cuts a text into its words, in lower case and without punctuation.
func Split(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}
