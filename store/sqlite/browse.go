package sqlite

import (
	"slices"
	"strconv"
	"strings"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

const (
	countByStatus = `SELECT status, count(*) FROM rollouts GROUP BY status`
	// fewOfStatus counts no further than it has to.
	fewOfStatus = `SELECT count(*) FROM (SELECT 1 FROM rollouts WHERE status IN (SELECT value FROM json_each(?)) LIMIT ?)`
	// idContains reads the index on ids, which has the seq too.
	idContains = `instr(lower(rollout_id), ?) > 0`
	fewOfID    = `SELECT count(*) FROM (SELECT 1 FROM rollouts WHERE ` + idContains + ` LIMIT ?)`

	countAttemptSpans  = `SELECT count(*) FROM spans WHERE ` + ofRollout + ` AND attempt_id = ?`
	selectAttemptSpans = `SELECT body FROM spans WHERE ` + ofRollout + ` AND attempt_id = ? ORDER BY seq`

	startKey = `coalesce(start_time, 9e999)`
)

func (r reader) CountRollouts() (map[agl.RolloutStatus]int64, error) {
	out := map[agl.RolloutStatus]int64{}
	err := r.c.query(func(row row) error {
		out[agl.RolloutStatus(row.text(0))] = row.int(1)
		return nil
	}, countByStatus)
	return out, err
}

// WalkRollouts lists the keys first, which an index has, and then reads the rows
// part by part, so that a walk that ends soon costs little.
func (r reader) WalkRollouts(w engine.Walk, f func(*agl.AttemptedRollout) (bool, error)) error {
	keys, err := r.walkKeys(&w)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(keys, streamRows) {
		more, err := r.walkPart(part, f)
		if !more || err != nil {
			return err
		}
	}
	return nil
}

// WalkLength counts the keys.
func (r reader) WalkLength(w engine.Walk) (int, error) {
	keys, err := r.walkKeys(&w)
	return len(keys), err
}

func (r reader) walkKeys(w *engine.Walk) ([]int64, error) {
	sql, args, err := r.walk(w)
	if err != nil {
		return nil, err
	}
	var keys []int64
	err = r.c.query(func(row row) error {
		keys = append(keys, row.int(0))
		return nil
	}, sql, args...)
	return keys, err
}

func (r reader) walkPart(keys []int64, f func(*agl.AttemptedRollout) (bool, error)) (more bool, err error) {
	list := make([]byte, 0, 8*len(keys))
	for i, key := range keys {
		list = append(list, "[,"[min(i, 1)])
		list = strconv.AppendInt(list, key, 10)
	}
	list = append(list, ']')
	var rollouts []agl.Rollout
	if err := r.c.query(func(row row) error {
		ro, err := r.c.scanRollout(row[1:])
		rollouts = append(rollouts, ro)
		return err
	}, selectRolloutsBySeq, string(list)); err != nil {
		return false, err
	}
	met, err := r.withAttempts(rollouts)
	if err != nil {
		return false, err
	}
	for i := range met {
		if more, err := f(&met[i]); !more || err != nil {
			return false, err
		}
	}
	return true, nil
}

// walk writes the statement that lists the keys. Conditions that no index serves
// are not in it, so that it never reads rows to throw them away.
func (r reader) walk(w *engine.Walk) (sql string, args []any, err error) {
	var where []string
	if w.From != nil {
		where, args = append(where, startKey+" >= ?"), append(args, *w.From)
	}
	if w.To != nil {
		where, args = append(where, startKey+" <= ?"), append(args, *w.To)
	}
	if w.IDContains != "" {
		n, err := r.c.number(fewOfID, w.IDContains, int64(w.Most))
		if err != nil {
			return "", nil, err
		}
		if n < int64(w.Most) {
			where, args = append(where, "seq IN (SELECT seq FROM rollouts WHERE "+idContains+")"), append(args, w.IDContains)
		}
	}
	if w.StatusIn != nil {
		list := jsonList(texts(w.StatusIn))
		n, err := r.c.number(fewOfStatus, list, int64(w.Most))
		if err != nil {
			return "", nil, err
		}
		if n < int64(w.Most) {
			where, args = append(where, "status IN (SELECT value FROM json_each(?))"), append(args, list)
		}
	}
	return walkKeys(where, w.Desc), append(args, int64(w.Most)), nil
}

func walkKeys(where []string, desc bool) string {
	sql := "SELECT seq FROM rollouts"
	if len(where) > 0 {
		sql += " WHERE " + strings.Join(where, " AND ")
	}
	sql += " ORDER BY " + startKey
	if desc {
		sql += " DESC"
	}
	return sql + ", seq LIMIT ?"
}

func (r reader) AttemptSpans(at store.Attempted, limit int) ([]store.SpanJSON, int, error) {
	n, err := r.c.number(countAttemptSpans, at.RolloutID, at.AttemptID)
	if err != nil || n > int64(limit) {
		return nil, int(n), err
	}
	out := make([]store.SpanJSON, 0, n)
	err = r.c.query(func(row row) error {
		out = append(out, store.SpanJSON(row.text(0)))
		return nil
	}, selectAttemptSpans, at.RolloutID, at.AttemptID)
	return out, len(out), err
}
