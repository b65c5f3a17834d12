package library_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/examples/sql/library"
)

func Example() {
	folder, err := os.MkdirTemp("", "library")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	ctx := context.Background()
	if err := library.Create(ctx, folder, 1); err != nil {
		fmt.Println(err)
		return
	}
	l, err := library.Open(folder)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	for _, query := range []string{"select count(*) from books", "select count(*) from members where city = 'rome'", "drop table books"} {
		result, err := l.Query(ctx, library.Old, query)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(result, result.Rows)
	}
	// Output:
	// 1 row [[60]]
	// error: no such column: city []
	// error: attempt to write a readonly database []
}

func open(t *testing.T, seed uint64) *library.Library {
	t.Helper()
	folder := t.TempDir()
	if err := library.Create(t.Context(), folder, seed); err != nil {
		t.Fatal(err)
	}
	l, err := library.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return l
}

func TestQuery(t *testing.T) {
	t.Parallel()
	l := open(t, 1)
	for query, want := range map[string]string{
		"select title from books where pages > 9000": "no rows",
		"select avg(price) from books where 1 = 0":   "no rows", // a row of nothing
		"selec title from books":                     `error: near "selec": syntax error`,
		"select name from members where age = ?":     "error: missing argument with index 1",
		"":                                           "no rows",
		"with recursive n(i) as (select 1 union all select i+1 from n) select count(*) from n": "error: the query takes too long",
	} {
		got, err := l.Query(t.Context(), library.Main, query)
		if err != nil || got.String() != want {
			t.Errorf("Query(%q) = %q, %v, want %q", query, got, err, want)
		}
	}
	// What is not the query's fault is an error.
	if _, err := l.Query(t.Context(), "north", "select 1"); err == nil || !strings.Contains(err.Error(), `"north"`) {
		t.Errorf("an unknown branch: %v, want it named", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Query(ended, library.Main, "select 1"); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	missing, err := library.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = missing.Close() }()
	if _, err := missing.Query(t.Context(), library.Main, "select 1"); err == nil {
		t.Error("a library without files answers")
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	rows := func(rows ...[]string) library.Result { return library.Result{Rows: rows} }
	for _, tt := range []struct {
		a, b library.Result
		want bool
	}{
		{rows([]string{"a"}, []string{"b"}), rows([]string{"b"}, []string{"a"}), true},
		{rows([]string{"a"}, []string{"a"}), rows([]string{"a"}), false},
		{rows([]string{"a", "b"}), rows([]string{"a"}, []string{"b"}), false},
		{rows([]string{"a", "b"}), rows([]string{"ab"}), false},
		{library.Result{Problem: "x"}, library.Result{Problem: "x"}, false},
	} {
		if got := library.Same(tt.a, tt.b); got != tt.want {
			t.Errorf("Same(%v, %v) = %v", tt.a.Rows, tt.b.Rows, got)
		}
	}
}

// The gold query of every question has an answer, no text is in two splits, and
// where the branches differ the query of one fails in the other.
func TestGenerate(t *testing.T) {
	t.Parallel()
	l := open(t, 3)
	split, err := library.Generate(t.Context(), l, 3, 80)
	if err != nil {
		t.Fatal(err)
	}
	where := map[string]string{}
	failed := 0
	for name, questions := range map[string][]library.Question{"train": split.Train, "validation": split.Validation, "test": split.Test} {
		for _, q := range questions {
			if other := where[q.Text]; other != "" && other != name {
				t.Errorf("%q is in %s and in %s", q.Text, other, name)
			}
			where[q.Text] = name
			if q.Unseen != (name == "test") {
				t.Errorf("%s is in %s, unseen is %v", q.ID, name, q.Unseen)
			}
			answer, err := l.Query(t.Context(), q.Branch, q.Gold.SQL())
			if err != nil || answer.Problem != "" || answer.Empty() {
				t.Errorf("%s: %v, %v", q.Gold.SQL(), answer, err)
			}
			other := library.Main
			if q.Branch == library.Main {
				other = library.Old
			}
			if answer, err = l.Query(t.Context(), other, q.Gold.SQL()); err != nil {
				t.Fatal(err)
			}
			if answer.Problem != "" {
				failed++
			}
		}
	}
	if failed < len(where)/2 {
		t.Errorf("%d queries of %d texts fail in the other branch, want many", failed, len(where))
	}
	again, err := library.Generate(t.Context(), open(t, 3), 3, 80)
	if diff := cmp.Diff(split, again); err != nil || diff != "" {
		t.Errorf("the same seed gives other questions: %v\n%s", err, diff)
	}
	if _, err := library.Generate(t.Context(), l, 3, 100000); err == nil {
		t.Error("more validation questions than there are were drawn")
	}
}

// Demonstrations are sound in form: a query that failed is not repeated, nor a
// column that is not there used again; what is careful is right.
func TestDemonstrate(t *testing.T) {
	t.Parallel()
	l := open(t, 4)
	split, err := library.Generate(t.Context(), l, 4, 80)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	rewritten := 0
	for _, q := range split.Train {
		careful, err := library.Demonstrate(t.Context(), l, q, library.Care{Table: 1, Select: 1, Column: 1, Operator: 1, Order: 1}, r)
		if err != nil || len(careful) != 1 || careful[0].Query != q.Gold.SQL() {
			t.Fatalf("%s: %v, %v, want the right query", q.ID, careful, err)
		}
		attempts, err := library.Demonstrate(t.Context(), l, q, library.Care{}, r)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range attempts {
			column, unknown := strings.CutPrefix(a.Result.Problem, "no such column: ")
			for _, later := range attempts[i+1:] {
				rewritten++
				if later.Query == a.Query || unknown && strings.Contains(" "+later.Query+" ", " "+column+" ") {
					t.Errorf("%s: %q, then %q", a.Result.Problem, a.Query, later.Query)
				}
			}
		}
		if _, err := library.Spoil(t.Context(), l, q, attempts[0], r); err != nil {
			t.Fatal(err)
		}
	}
	if rewritten == 0 {
		t.Error("no query was written again")
	}
}
