package sqlite

import (
	"cmp"
	"slices"
	"strings"

	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

// filter collects the conditions of a query.
type filter struct {
	// scopes always hold; conds are joined by "and" or "or".
	scopes, conds       []string
	scopeArgs, condArgs []any
	noneUnderOr         bool // joined by "or", no condition matches nothing
}

func (f *filter) scope(cond, value string) {
	f.scopes = append(f.scopes, cond)
	f.scopeArgs = append(f.scopeArgs, value)
}

func (f *filter) equal(column string, value *string) {
	if value != nil {
		f.add(column+" = ?", *value)
	}
}

// contains asks for a part, bytes as they are: LIKE would fold cases and know wildcards.
func (f *filter) contains(column string, part *string) {
	if part != nil {
		f.add("instr("+column+", ?) > 0", *part)
	}
}

// within hands the list over as one value, so that its length does not make
// another statement.
func (f *filter) within(column string, list []string) {
	f.add(column+" IN (SELECT value FROM json_each(?))", jsonList(list))
}

func (f *filter) add(cond string, arg any) {
	f.conds = append(f.conds, cond)
	f.condArgs = append(f.condArgs, arg)
}

// selection is a query ready to run.
type selection struct {
	from string // table and conditions
	keys string // the same, read in the order of the table, when that differs
	// filtered says that the conditions are more than those that always hold.
	filtered bool
	args     []any
	order    string
	paging   store.Paging
	key      string // what is sorted by, empty for the order of insertion
}

// selection joins the conditions to a query. A name that cannot be sorted by
// keeps the order of insertion; refusing it is not for a backend.
func (f *filter) selection(table string, p store.Paging, sorts map[string]sortKind) selection {
	s := selection{from: table, order: "seq", paging: p, filtered: len(f.conds) > 0}
	if kind, ok := sorts[p.SortBy]; ok {
		s.key = kind.key(p.SortBy)
		s.order = s.key
		if p.Desc {
			s.order += " DESC"
		}
		s.order += ", seq" // ties keep the order of insertion, downwards too
	}
	where := slices.Clone(f.scopes)
	s.args = append(s.args, f.scopeArgs...)
	switch {
	case len(f.conds) > 0:
		join := " AND "
		if p.Any {
			join = " OR "
		}
		where = append(where, "("+strings.Join(f.conds, join)+")")
		s.args = append(s.args, f.condArgs...)
	case p.Any && f.noneUnderOr:
		where = append(where, "FALSE")
	}
	if len(where) > 0 {
		s.from += " WHERE " + strings.Join(where, " AND ")
	}
	return s
}

func (s selection) sql(columns string) string {
	return "SELECT " + columns + " FROM " + s.from + " ORDER BY " + s.order
}

// page is sql for a page of rows that are large: it sorts keys, which an index
// may have, and fetches the rows of the page. Sql would have SQLite sort all rows
// in memory, and read those before the page to throw them away. Back is for a
// page that is counted from the other end.
func (s selection) page(columns, table string, back bool) string {
	const limit = " LIMIT ? OFFSET ?"
	if s.key == "" {
		return s.sql(columns) + limit
	}
	down, order := "", s.order
	if s.paging.Desc {
		down = " DESC"
	}
	if back {
		order = s.key + " DESC, seq DESC"
		if s.paging.Desc {
			order = s.key + ", seq DESC"
		}
	}
	return "SELECT " + columns + " FROM (SELECT seq AS place, " + s.key + " AS sorted FROM " + cmp.Or(s.keys, s.from) +
		" ORDER BY " + order + limit + ") CROSS JOIN " + table + " ON seq = place ORDER BY sorted" + down + ", place"
}

// fetch runs a selection.
func fetch[T any](c *conn, s selection, columns string, scan func(row) (T, error)) (store.Page[T], error) {
	page := store.Page[T]{Items: []T{}}
	sql := s.sql(columns)
	args := s.args
	paged := s.paging.Limit > 0 || s.paging.Offset > 0
	if paged {
		count := "SELECT count(*) FROM " + s.from
		if s.filtered {
			count = "SELECT count(*) FROM " + cmp.Or(s.keys, s.from)
		}
		if s.from == "rollouts" { // all of them, which are counted already
			count = countRollouts
		}
		total, err := c.number(count, s.args...)
		if err != nil {
			return page, err
		}
		page.Total = int(total)
		limit, offset := int64(-1), int64(max(s.paging.Offset, 0))
		if s.paging.Limit > 0 {
			limit = int64(s.paging.Limit)
		}
		if table, _, _ := strings.Cut(s.from, " "); (table == "spans" || table == "rollouts") && limit > 0 {
			// What is skipped is read, so the page is counted from the nearer end.
			back := s.key != "" && offset > total/2
			sql = s.page(columns, table, back)
			if back {
				limit = max(0, min(limit, total-offset))
				offset = max(0, total-offset-limit)
			}
		} else {
			sql += " LIMIT ? OFFSET ?"
		}
		args = append(slices.Clip(args), limit, offset)
	}
	err := c.query(func(r row) error {
		item, err := scan(r)
		page.Items = append(page.Items, item)
		return err
	}, sql, args...)
	if !paged {
		page.Total = len(page.Items)
	}
	return page, err
}

// sortKind says what null counts as when a column is sorted by.
type sortKind int

const (
	sortPlain sortKind = iota // never null
	sortText                  // null is the empty string
	sortTime                  // null is later than any time
)

func (k sortKind) key(column string) string {
	switch k {
	case sortText:
		return "coalesce(" + column + ", '')"
	case sortTime:
		return "coalesce(" + column + ", 9e999)"
	case sortPlain:
	}
	return column
}

// What each noun can be sorted by, by JSON name, which is the column's name too.
var (
	rolloutSorts = map[string]sortKind{
		"rollout_id": sortPlain, "status": sortPlain, "mode": sortPlain,
		"start_time": sortTime, "end_time": sortTime, "resources_id": sortText,
	}
	attemptSorts = map[string]sortKind{
		"attempt_id": sortPlain, "sequence_id": sortPlain,
		"status": sortPlain, "start_time": sortTime, "end_time": sortTime, "worker_id": sortText,
		"last_heartbeat_time": sortTime,
	}
	// All spans, and all attempts, of a query have one rollout_id: it does not sort them.
	spanSorts = map[string]sortKind{
		"attempt_id": sortPlain, "sequence_id": sortPlain,
		"trace_id": sortPlain, "span_id": sortPlain, "parent_id": sortText, "name": sortPlain,
		"start_time": sortTime, "end_time": sortTime,
	}
	resourcesSorts = map[string]sortKind{
		"resources_id": sortPlain, "create_time": sortTime,
		"update_time": sortTime, "version": sortPlain,
	}
	workerSorts = map[string]sortKind{
		"worker_id": sortPlain, "status": sortPlain, "last_heartbeat_time": sortTime,
		"last_dequeue_time": sortTime, "last_busy_time": sortTime, "last_idle_time": sortTime,
		"current_rollout_id": sortText, "current_attempt_id": sortText,
	}
)

func texts[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

func jsonList(list []string) string {
	dst := []byte{'['}
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonx.AppendString(dst, s)
	}
	return string(append(dst, ']'))
}
