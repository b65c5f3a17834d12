package library

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Question is one task of the agent.
type Question struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	// Branch is where it is asked; the text does not say so.
	Branch string `json:"branch"`
	// Gold is a query whose result is the right answer.
	Gold Query `json:"gold"`
	// Unseen tells that the template occurs in the test only.
	Unseen bool `json:"unseen"`
}

// Query is a query of the kinds that questions ask for.
type Query struct {
	Select string `json:"select"` // a column, count(*), or a function of a column
	Table  string `json:"table"`
	// Column, Operator and Value are the condition; Column is empty for none.
	Column   string `json:"column,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    string `json:"value,omitempty"`
	// Order is the column whose first row is wanted, ascending or not; empty for
	// all rows.
	Order string `json:"order,omitempty"`
	Desc  bool   `json:"desc,omitempty"`
}

// SQL is the query as it is executed.
func (q Query) SQL() string {
	var b strings.Builder
	b.WriteString("select " + q.Select + " from " + q.Table)
	if q.Column != "" {
		value := q.Value
		if !number.MatchString(value) {
			value = "'" + value + "'"
		}
		b.WriteString(" where " + q.Column + " " + q.Operator + " " + value)
	}
	if q.Order != "" {
		b.WriteString(" order by " + q.Order)
		if q.Desc {
			b.WriteString(" desc")
		}
		b.WriteString(" limit 1")
	}
	return b.String()
}

var number = regexp.MustCompile(`^\d+$`)

// template writes questions: %s in text is the value of the condition.
type template struct {
	name, text string
	gold       Query // without the value
	unseen     bool
}

// values are what conditions on a column compare with.
func values(column string) []string {
	span := func(low, high, step int) (out []string) {
		for n := low; n <= high; n += step {
			out = append(out, strconv.Itoa(n))
		}
		return out
	}
	switch column {
	case "author":
		return authors
	case "genre":
		return genres
	case "city":
		return cities
	case "job":
		return jobs
	case "pages":
		return span(150, 800, 50)
	case "price":
		return span(12, 88, 6)
	case "age":
		return span(22, 82, 5)
	case "loans":
		return span(8, 90, 6)
	}
	return []string{""} // no condition
}

var templates = []template{
	{"books_by", "Which books are by %s?", Query{Select: "title", Table: "books", Column: "author", Operator: "="}, false},
	{"books_genre", "Which books are about %s?", Query{Select: "title", Table: "books", Column: "genre", Operator: "="}, false},
	{"members_city", "Who lives in %s?", Query{Select: "name", Table: "members", Column: "city", Operator: "="}, false},
	{"members_job", "Who works as a %s?", Query{Select: "name", Table: "members", Column: "job", Operator: "="}, false},
	{"count_by", "How many books are by %s?", Query{Select: "count(*)", Table: "books", Column: "author", Operator: "="}, false},
	{"count_city", "How many members live in %s?", Query{Select: "count(*)", Table: "members", Column: "city", Operator: "="}, false},
	{"long", "Which books have more than %s pages?", Query{Select: "title", Table: "books", Column: "pages", Operator: ">"}, false},
	{"cheap", "Which books cost less than %s?", Query{Select: "title", Table: "books", Column: "price", Operator: "<"}, false},
	{"dear", "Which books cost more than %s?", Query{Select: "title", Table: "books", Column: "price", Operator: ">"}, false},
	{"older", "Who is older than %s?", Query{Select: "name", Table: "members", Column: "age", Operator: ">"}, false},
	{"younger", "Who is younger than %s?", Query{Select: "name", Table: "members", Column: "age", Operator: "<"}, false},
	{"busy", "Who has more than %s loans?", Query{Select: "name", Table: "members", Column: "loans", Operator: ">"}, false},
	{"count_older", "How many members are older than %s?", Query{Select: "count(*)", Table: "members", Column: "age", Operator: ">"}, false},
	{"count_long", "How many books have more than %s pages?", Query{Select: "count(*)", Table: "books", Column: "pages", Operator: ">"}, false},
	{"price_of", "What is the average price of books by %s?", Query{Select: "avg(price)", Table: "books", Column: "author", Operator: "="}, false},
	{"pages_of", "How many pages have all books by %s?", Query{Select: "sum(pages)", Table: "books", Column: "author", Operator: "="}, false},
	{"age_in", "What is the average age in %s?", Query{Select: "avg(age)", Table: "members", Column: "city", Operator: "="}, false},
	{"loans_of", "How many loans has every %s?", Query{Select: "sum(loans)", Table: "members", Column: "job", Operator: "="}, false},
	{"longest_by", "What is the longest book by %s?", Query{Select: "title", Table: "books", Column: "author", Operator: "=", Order: "pages", Desc: true}, false},
	{"cheapest_about", "What is the cheapest book about %s?", Query{Select: "title", Table: "books", Column: "genre", Operator: "=", Order: "price"}, false},
	{"oldest_in", "Who is the oldest in %s?", Query{Select: "name", Table: "members", Column: "city", Operator: "=", Order: "age", Desc: true}, false},
	{"youngest_job", "Who is the youngest %s?", Query{Select: "name", Table: "members", Column: "job", Operator: "=", Order: "age"}, false},

	{"count_about", "How many books are about %s?", Query{Select: "count(*)", Table: "books", Column: "genre", Operator: "="}, true},
	{"short", "Which books have less than %s pages?", Query{Select: "title", Table: "books", Column: "pages", Operator: "<"}, true},
	{"count_younger", "How many members are younger than %s?", Query{Select: "count(*)", Table: "members", Column: "age", Operator: "<"}, true},
	{"longest_about", "What is the longest book about %s?", Query{Select: "title", Table: "books", Column: "genre", Operator: "=", Order: "pages", Desc: true}, true},
	{"youngest_in", "Who is the youngest in %s?", Query{Select: "name", Table: "members", Column: "city", Operator: "=", Order: "age"}, true},
}

// Split are the questions of an experiment; none occurs twice.
type Split struct{ Train, Validation, Test []Question }

// Generate draws questions whose answers in the library are not empty: of the
// known templates as many validation texts as asked for and the rest for training,
// of the unseen ones all for the test. A text is asked in all branches that have
// an answer.
func Generate(ctx context.Context, l *Library, seed uint64, validation int) (Split, error) {
	var s Split
	var known [][]Question // those of a text
	for _, t := range templates {
		for _, value := range values(t.gold.Column) {
			asked, err := t.ask(ctx, l, value)
			switch {
			case err != nil:
				return s, err
			case t.unseen:
				s.Test = append(s.Test, asked...)
			case len(asked) > 0:
				known = append(known, asked)
			}
		}
	}
	if validation < 1 || validation >= len(known) {
		return s, fmt.Errorf("library: %d validation questions: must be at least 1 and below %d", validation, len(known))
	}
	rand.New(rand.NewPCG(seed, 0x5e1ec7)).Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
	s.Validation, s.Train = slices.Concat(known[:validation]...), slices.Concat(known[validation:]...)
	return s, nil
}

// ask returns the questions about a value.
func (t *template) ask(ctx context.Context, l *Library, value string) ([]Question, error) {
	var out []Question
	for _, branch := range branches {
		q := Question{
			ID: t.name + "-" + value + "-" + branch, Text: fmt.Sprintf(t.text, value), Branch: branch,
			Gold: t.gold.in(branch), Unseen: t.unseen,
		}
		q.Gold.Value = value
		answer, err := l.Query(ctx, branch, q.Gold.SQL())
		switch {
		case err != nil:
			return nil, err
		case answer.Problem != "":
			return nil, fmt.Errorf("library: question %s: %s", q.ID, answer.Problem)
		case !answer.Empty() && answer.Rows[0][0] != "0":
			out = append(out, q)
		}
	}
	return out, nil
}

// in is the query with the names of a branch.
func (q Query) in(branch string) Query {
	q.Column, q.Order = columnOf(branch, q.Column), columnOf(branch, q.Order)
	if function, column, found := strings.Cut(q.Select, "("); found {
		q.Select = function + "(" + columnOf(branch, strings.TrimSuffix(column, ")")) + ")"
	}
	return q
}

// Words is the vocabulary of models that read questions, write queries and read
// results. Values and columns are one token each, wherever they stand.
func Words() []string {
	out := []string{
		"select ", " from ", " where ", " = ", " > ", " < ", " order by ", " desc", " limit 1", "count(*)", "avg(", "sum(",
		"error: no such column: ", "no rows", " rows", "1 row", "error: ", "near \"", "\": syntax error", "again",
	}
	for _, list := range [][]string{authors, genres, cities, jobs, textColumns, numberColumns, {"title", "name", "books", "members"}} {
		out = append(out, list...)
	}
	for _, t := range templates {
		for word := range strings.FieldsSeq(t.text) {
			out = append(out, " "+word, word)
		}
	}
	out = slices.DeleteFunc(out, func(w string) bool { return strings.Contains(w, "%") })
	slices.SortStableFunc(out, cmp.Compare[string])
	return slices.Compact(out)
}
