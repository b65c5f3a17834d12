package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
)

// maxStatements bounds the prepared statements that a connection keeps. The
// fixed ones are about a hundred; the rest are shapes of queries.
const maxStatements = 250

// conn is a connection with its prepared statements. One goroutine at a time
// uses it. Statements run without the caller's context: they are short, and one
// that can end would cost a goroutine each. What may take long is waiting for a
// connection, and that does end with the context.
type conn struct {
	dc    driver.Conn
	stmts map[string]*statement
	args  []driver.NamedValue
	// configs remembers decoded rollout configurations by their text: there
	// are few, and every rollout has one.
	configs configCache
	// queued counts the entries of the queue, so that nobody has to; nil where
	// nobody keeps count.
	queued *atomic.Int64
}

type statement struct {
	stmt  driver.Stmt
	exec  driver.StmtExecContext
	query driver.StmtQueryContext
	dest  []driver.Value
}

func newConn(ctx context.Context, path string, pragmas ...string) (*conn, error) {
	return connect(ctx, fileURI(path), pragmas...)
}

// connect is newConn with options in the URI of the file.
func connect(ctx context.Context, uri string, pragmas ...string) (*conn, error) {
	dc, err := dial(ctx, uri)
	if err != nil {
		return nil, err
	}
	c := &conn{dc: dc, stmts: make(map[string]*statement)}
	for _, p := range pragmas {
		if err := c.run("PRAGMA " + p); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.stmt.Close())
	}
	return errors.Join(append(errs, c.dc.Close())...)
}

// run executes SQL that is used once, several statements too.
func (c *conn) run(sql string) error {
	_, err := c.dc.(driver.ExecerContext).ExecContext(context.Background(), sql, nil)
	return err
}

func (c *conn) prepare(sql string) (*statement, error) {
	if s, ok := c.stmts[sql]; ok {
		return s, nil
	}
	if len(c.stmts) >= maxStatements {
		for text, s := range c.stmts {
			if err := s.stmt.Close(); err != nil {
				return nil, err
			}
			delete(c.stmts, text)
		}
	}
	ds, err := c.dc.(driver.ConnPrepareContext).PrepareContext(context.Background(), sql)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", sql, err)
	}
	s := &statement{stmt: ds, exec: ds.(driver.StmtExecContext), query: ds.(driver.StmtQueryContext)}
	c.stmts[sql] = s
	return s, nil
}

func (c *conn) bind(args []any) []driver.NamedValue {
	c.args = c.args[:0]
	for i, a := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return c.args
}

// exec runs a prepared statement and returns how many rows it changed.
func (c *conn) exec(sql string, args ...any) (int64, error) {
	res, err := c.result(sql, args)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// insert runs a prepared statement that inserts one row and returns its seq.
func (c *conn) insert(sql string, args ...any) (int64, error) {
	res, err := c.result(sql, args)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

func (c *conn) result(sql string, args []any) (driver.Result, error) {
	s, err := c.prepare(sql)
	if err != nil {
		return nil, err
	}
	return s.exec.ExecContext(context.Background(), c.bind(args))
}

// query runs a prepared statement and gives every row to scan, which must not
// use the connection and must not keep the row.
func (c *conn) query(scan func(row) error, sql string, args ...any) (err error) {
	s, err := c.prepare(sql)
	if err != nil {
		return err
	}
	rows, err := s.query.QueryContext(context.Background(), c.bind(args))
	if err != nil {
		return err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	if s.dest == nil {
		s.dest = make([]driver.Value, len(rows.Columns()))
	}
	for {
		if err := rows.Next(s.dest); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := scan(s.dest); err != nil {
			return err
		}
	}
}

// one runs a query for at most one row and reports whether there was one.
func (c *conn) one(scan func(row) error, sql string, args ...any) (bool, error) {
	found := false
	err := c.query(func(r row) error {
		found = true
		return scan(r)
	}, sql, args...)
	return found, err
}

// number runs a query for one integer, 0 when there is no row.
func (c *conn) number(sql string, args ...any) (int64, error) {
	var n int64
	_, err := c.one(func(r row) error { n = r.int(0); return nil }, sql, args...)
	return n, err
}

// row is one row of a result. The columns are read by position.
type row []driver.Value

func (r row) int(i int) int64 { n, _ := r[i].(int64); return n }

func (r row) text(i int) string { s, _ := r[i].(string); return s }

func (r row) bytes(i int) []byte { b, _ := r[i].([]byte); return b }

func (r row) optionalText(i int) *string {
	if s, ok := r[i].(string); ok {
		return &s
	}
	return nil
}

func (r row) raw(i int) json.RawMessage {
	if s, ok := r[i].(string); ok {
		return json.RawMessage(s)
	}
	return nil
}

// float reads a time. SQLite has no NaN and stores it as null.
func (r row) float(i int) float64 {
	if f := r.optionalFloat(i); f != nil {
		return *f
	}
	return math.NaN()
}

func (r row) optionalFloat(i int) *float64 {
	switch v := r[i].(type) {
	case float64:
		return &v
	case int64:
		f := float64(v)
		return &f
	}
	return nil
}

func orNull[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func rawOrNull(raw json.RawMessage) any {
	if raw == nil {
		return nil
	}
	return string(raw)
}
