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

	// selectEnded reads the next rollouts in the order of their seq, as far as one of them.
	selectEnded = `SELECT seq, rollout_id, end_time,
		(SELECT count(*) FROM attempts WHERE rollout = rollouts.seq), (SELECT count(*) FROM spans WHERE rollout = rollouts.seq)
		FROM rollouts WHERE seq > ? AND seq <= ? AND +status IN ('succeeded', 'failed', 'cancelled') AND end_time < ? ORDER BY seq`
	selectNextSeqs = `SELECT coalesce(max(seq), 0), count(*) FROM (SELECT seq FROM rollouts WHERE seq > ? ORDER BY seq LIMIT ?)`
	// weighRollouts adds up the bodies, without reading them, and what a row and
	// its entries in indexes take besides. A row of two to four kilobytes leaves
	// little room for another one in its page. Of 54 MB it finds 52.
	weighRollouts = `SELECT sum(coalesce(octet_length(input), 0) + coalesce(octet_length(metadata), 0) + 400
		+ (SELECT 150 * count(*) FROM attempts WHERE rollout = rollouts.seq)
		+ (SELECT coalesce(sum(200 + iif(octet_length(body) BETWEEN 2000 AND 3800, 3800, octet_length(body))), 0) FROM spans WHERE rollout = rollouts.seq))
		FROM rollouts WHERE rollout_id IN (SELECT value FROM json_each(?))`

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

// EndedRollouts reads the rows of one part of the table.
func (r reader) EndedRollouts(before float64, after int64, most int) (ended []engine.Ended, next int64, looked int, err error) {
	if _, err = r.c.one(func(row row) error {
		next, looked = row.int(0), int(row.int(1))
		return nil
	}, selectNextSeqs, after, int64(most)); err != nil || looked == 0 {
		return nil, 0, 0, err
	}
	err = r.c.query(func(row row) error {
		ended = append(ended, engine.Ended{RolloutID: row.text(1), EndTime: row.float(2), Attempts: row.int(3), Spans: row.int(4)})
		return nil
	}, selectEnded, after, next, before)
	if looked < most {
		next = 0
	}
	return ended, next, looked, err
}

// RolloutBytes adds up what the rows say of their length.
func (r reader) RolloutBytes(ids []string) (int64, error) {
	return r.c.number(weighRollouts, jsonList(ids))
}
