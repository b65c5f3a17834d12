package library

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Branches are the parts of the library, a database each. The same things are
// there, but some columns have other names in the old branch: who asks cannot know
// before the database says so.
const (
	Main = "main"
	Old  = "old"
)

var branches = [...]string{Main, Old}

// renamed are the columns of the old branch that have other names there.
var renamed = map[string]string{"author": "writer", "price": "cost", "city": "town", "age": "years"}

// columnOf is the name of a column in a branch.
func columnOf(branch, column string) string {
	if name, ok := renamed[column]; ok && branch == Old {
		return name
	}
	return column
}

func schema(branch string) string {
	of := func(column string) string { return columnOf(branch, column) }
	return fmt.Sprintf(`
		create table books (title text, %s text, genre text, pages integer, %s integer);
		create table members (name text, %s text, job text, %s integer, loans integer);`,
		of("author"), of("price"), of("city"), of("age"))
}

const (
	rowsOfTable = 60
	// maxRows is how much of a result is read; no right answer is as long.
	maxRows = 100
	// longestProblem bounds what is said of a query, in bytes.
	longestProblem = 60
	// maxTime is how long a query may run.
	maxTime = 2 * time.Second
)

var (
	authors = []string{"adams", "brown", "clark", "davis", "evans", "foster", "green", "hughes", "irving", "jones"}
	genres  = []string{"crime", "horror", "poetry", "romance", "science", "travel"}
	cities  = []string{"athens", "berlin", "cairo", "dublin", "geneva", "lisbon", "madrid", "oslo", "paris", "rome"}
	jobs    = []string{"baker", "doctor", "farmer", "lawyer", "nurse", "teacher"}
	titles  = []string{"river", "mountain", "winter", "garden", "shadow", "island", "letter", "mirror", "harbour", "forest"}
	names   = []string{"anna", "bruno", "clara", "david", "emma", "felix", "grace", "hugo", "ida", "jonas"}
)

// Create writes the databases of the branches into an empty folder.
func Create(ctx context.Context, folder string, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 0xb00c))
	for _, branch := range branches {
		if err := create(ctx, file(folder, branch), branch, r); err != nil {
			return err
		}
	}
	return nil
}

func file(folder, branch string) string { return filepath.Join(folder, branch+".db") }

func create(ctx context.Context, path, branch string, r *rand.Rand) (err error) {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	defer func() { _ = tx.Rollback() }() // nothing to undo after the commit
	if _, err := tx.ExecContext(ctx, schema(branch)); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	// No two rows share a number that questions about the most and the least ask for.
	pages, prices, ages := distinct(r, 80, 900), distinct(r, 5, 95), distinct(r, 16, 90)
	loans := distinct(r, 1, 99)
	for i := range rowsOfTable {
		_, err := tx.ExecContext(ctx, "insert into books values (?, ?, ?, ?, ?)",
			called(titles, i), pick(r, authors), pick(r, genres), pages[i], prices[i])
		if err != nil {
			return fmt.Errorf("create %s: %w", path, err)
		}
		_, err = tx.ExecContext(ctx, "insert into members values (?, ?, ?, ?, ?)",
			called(names, i), pick(r, cities), pick(r, jobs), ages[i], loans[i])
		if err != nil {
			return fmt.Errorf("create %s: %w", path, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

func called(words []string, i int) string {
	return words[i%len(words)] + " " + strconv.Itoa(1+i/len(words))
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// distinct draws different numbers from low to high, one for each row.
func distinct(r *rand.Rand, low, high int) []int {
	all := r.Perm(high - low + 1)[:rowsOfTable]
	for i := range all {
		all[i] += low
	}
	return all
}

// Library is the databases, which are only read. It is safe for concurrent use.
type Library struct{ branches map[string]*sql.DB }

// Open opens a folder that [Create] filled.
func Open(folder string) (*Library, error) {
	l := &Library{map[string]*sql.DB{}}
	for _, branch := range branches {
		db, err := sql.Open("sqlite", "file:"+file(folder, branch)+"?mode=ro&_pragma=query_only(1)")
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the %s branch: %w", branch, err), l.Close())
		}
		l.branches[branch] = db
	}
	return l, nil
}

// Close closes the files.
func (l *Library) Close() error {
	var err error
	for _, db := range l.branches {
		err = errors.Join(err, db.Close())
	}
	return err
}

// Result is what a query came to.
type Result struct {
	// Problem is what the database says is wrong with the query; empty when it ran.
	Problem string
	Rows    [][]string
}

// Query runs a query of somebody who may be wrong. The error is not about the
// query.
func (l *Library) Query(ctx context.Context, branch, query string) (Result, error) {
	db := l.branches[branch]
	if db == nil {
		return Result{}, fmt.Errorf("the library has no branch %q", branch)
	}
	limited, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	out, err := read(limited, db, query)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case limited.Err() != nil:
		return Result{Problem: "the query takes too long"}, nil
	case ours(ctx, db, err):
		return Result{}, fmt.Errorf("query the %s branch: %w", branch, err)
	}
	return Result{Problem: plain(err)}, nil
}

// ours tells whether an error is about the database and not about the query.
func ours(ctx context.Context, db *sql.DB, err error) bool {
	var said *sqlite.Error
	if !errors.As(err, &said) {
		return db.PingContext(ctx) != nil
	}
	switch said.Code() & 0xff {
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_BUSY:
		return true
	}
	return false
}

func read(ctx context.Context, db *sql.DB, query string) (out Result, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return out, err
	}
	for rows.Next() && len(out.Rows) < maxRows {
		row, targets := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range row {
			targets[i] = &row[i]
		}
		if err := rows.Scan(targets...); err != nil {
			return out, err
		}
		texts := make([]string, len(row))
		for i, v := range row {
			if texts[i] = v.String; !v.Valid {
				texts[i] = "null"
			}
		}
		out.Rows = append(out.Rows, texts)
	}
	return out, rows.Err()
}

// plain is the message of the database without the words around it.
func plain(err error) string {
	text := err.Error()
	if _, after, found := strings.Cut(text, ": "); found {
		text = after
	}
	if at := strings.LastIndex(text, " ("); at > 0 {
		text = text[:at]
	}
	if len(text) > longestProblem {
		text = strings.ToValidUTF8(text[:longestProblem], "") + " …"
	}
	return text
}

// String is a result as agents are told it: what is wrong, or how many rows there
// are.
func (r Result) String() string {
	switch {
	case r.Problem != "":
		return "error: " + r.Problem
	case r.Empty():
		return "no rows"
	case len(r.Rows) == 1:
		return "1 row"
	}
	return strconv.Itoa(len(r.Rows)) + " rows"
}

// Empty tells that there is no row, or one of nothing.
func (r Result) Empty() bool {
	return len(r.Rows) == 0 || len(r.Rows) == 1 && !slices.ContainsFunc(r.Rows[0], func(v string) bool { return v != "null" })
}

// Same tells whether two results hold the same rows, in any order.
func Same(a, b Result) bool {
	return a.Problem == "" && b.Problem == "" && slices.Equal(sorted(a.Rows), sorted(b.Rows))
}

func sorted(rows [][]string) []string {
	out := make([]string, len(rows))
	for i, row := range rows {
		out[i] = strings.Join(row, "\x00")
	}
	slices.Sort(out)
	return out
}
