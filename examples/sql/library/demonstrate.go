package library

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

var (
	textColumns   = []string{"author", "writer", "genre", "city", "town", "job"}
	numberColumns = []string{"pages", "price", "cost", "age", "years", "loans"}
)

// Care says how often a demonstration chooses with care, from 0 to 1. What is not
// chosen with care is chosen without reading the question; only values are always
// copied.
type Care struct {
	Table, Select, Column, Operator, Order float64
}

// Attempt is a query and what came of it.
type Attempt struct {
	Query  string
	Result Result
}

// MaxAttempts is how often a question is tried.
const MaxAttempts = 3

// Demonstrate works on a question as somebody who knows how queries are written
// and knows little of what they mean. One that fails, or finds nothing, is followed
// by another one, without the column that the database does not know.
func Demonstrate(ctx context.Context, l *Library, q Question, care Care, r *rand.Rand) ([]Attempt, error) {
	var out []Attempt
	for range MaxAttempts {
		query := careless(q.Gold, care, r)
		for slices.ContainsFunc(out, func(a Attempt) bool { return a.rulesOut(query.SQL()) }) {
			query = careless(q.Gold, care, r)
		}
		result, err := l.Query(ctx, q.Branch, query.SQL())
		if err != nil {
			return nil, err
		}
		out = append(out, Attempt{query.SQL(), result})
		if result.Problem == "" && !result.Empty() {
			break
		}
	}
	return out, nil
}

// rulesOut tells that a query need not be tried after the attempt.
func (a *Attempt) rulesOut(query string) bool {
	column, unknown := strings.CutPrefix(a.Result.Problem, "no such column: ")
	return a.Query == query || unknown && slices.Contains(words.FindAllString(query, -1), column)
}

var words = regexp.MustCompile(`[a-z]+`)

// Spoil cuts a piece out of a query, so that the database does not understand it
// any more, or understands something else.
func Spoil(ctx context.Context, l *Library, q Question, a Attempt, r *rand.Rand) (Attempt, error) {
	from := r.IntN(len(a.Query))
	to := min(len(a.Query), from+1+r.IntN(4))
	a.Query = a.Query[:from] + a.Query[to:]
	var err error
	a.Result, err = l.Query(ctx, q.Branch, a.Query)
	return a, err
}

// careless is the query of somebody who looks at a part of the question now and
// then.
func careless(gold Query, care Care, r *rand.Rand) Query {
	careful := func(share float64) bool { return r.Float64() < share }
	q := gold
	if !careful(care.Table) {
		q.Table = pick(r, []string{"books", "members"})
	}
	own := "title"
	if q.Table == "members" {
		own = "name"
	}
	if !careful(care.Select) {
		q.Select = pick(r, []string{own, own, "count(*)"})
	}
	columns := textColumns
	if number.MatchString(q.Value) {
		columns = numberColumns
	}
	if !careful(care.Column) {
		q.Column = pick(r, columns)
	}
	if columns[0] == "pages" && !careful(care.Operator) {
		q.Operator = pick(r, []string{"=", ">"})
	}
	if !careful(care.Order) {
		q.Order, q.Desc = "", false
		if r.IntN(8) == 0 {
			q.Order, q.Desc = pick(r, numberColumns), r.IntN(2) == 0
		}
	}
	return q
}
