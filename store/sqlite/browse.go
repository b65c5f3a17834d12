package sqlite

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

const (
	// countByStatus leaves one status out, the one that most rollouts end in: it
	// is what remains of all of them.
	countByStatus = `SELECT status, count(*) FROM rollouts WHERE status IN (SELECT value FROM json_each(?)) GROUP BY status`
	// fewOfStatus counts no further than it has to.
	fewOfStatus = `SELECT count(*) FROM (SELECT 1 FROM rollouts WHERE status IN (SELECT value FROM json_each(?)) LIMIT ?)`
	// seqsOfID reads the index on ids, which has the seq too, and seqsOfPrefix
	// only a part of it.
	seqsOfID     = `SELECT seq FROM rollouts WHERE instr(lower(rollout_id), ?) > 0 LIMIT ?`
	seqsOfPrefix = `SELECT seq FROM rollouts WHERE rollout_id >= ? AND rollout_id < ? LIMIT ?`

	// Of the spans of an attempt the rollout is given by its seq.
	countAttemptSpans  = `SELECT count(*) FROM spans WHERE rollout = ? AND attempt_id = ?`
	selectAttemptSpans = `SELECT CAST(body AS BLOB) FROM spans WHERE rollout = ? AND attempt_id = ? ORDER BY seq`
	// selectFewSpans leaves the order to the caller: SQLite would copy the bodies
	// to sort them.
	selectFewSpans = `SELECT seq, CAST(body AS BLOB) FROM spans WHERE rollout = ? AND attempt_id = ? LIMIT ?`

	selectLatestBySeq = `SELECT ` + latestColumns + ` FROM json_each(?) AS wanted
		CROSS JOIN attempts a ON a.seq = (SELECT seq FROM attempts WHERE rollout = wanted.value
			ORDER BY sequence_id DESC LIMIT 1)`

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
	rest, err := r.c.number(countRollouts)
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(agl.RolloutStatuses(), func(s agl.RolloutStatus) bool { return s == agl.RolloutSucceeded })
	err = r.c.query(func(row row) error {
		n := row.int(1)
		out[agl.RolloutStatus(row.text(0))] = n
		rest -= n
		return nil
	}, countByStatus, jsonList(texts(others)))
	if rest > 0 {
		out[agl.RolloutSucceeded] = rest
	}
	return out, err
}

// WalkRollouts lists the keys first, which an index has, and then reads the rows
// part by part, so that a walk that ends soon costs little.
func (r reader) WalkRollouts(w engine.Walk, f func(*agl.AttemptedRollout, engine.SpansOf) (bool, error)) error {
	keys, err := r.walkKeys(&w)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(keys, streamRows) {
		more, err := r.walkPart(part, w.Keep, f)
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

func (r reader) walkPart(keys []int64, keep func(*agl.Rollout) (keep, more bool), f func(*agl.AttemptedRollout, engine.SpansOf) (bool, error)) (more bool, err error) {
	var met []walked
	ended := false // as far as keep is asked
	if err := r.c.query(func(row row) error {
		if ended {
			return nil
		}
		ro, err := r.c.scanRollout(row[1:])
		if err != nil {
			return err
		}
		kept := true
		if keep != nil {
			kept, more = keep(&ro)
			ended = !more
		}
		if kept && !ended {
			met = append(met, walked{seq: row.int(1), rollout: agl.AttemptedRollout{Rollout: ro}})
		}
		return nil
	}, selectRolloutsBySeq, seqList(keys)); err != nil {
		return false, err
	}
	if err := r.latestOf(met); err != nil {
		return false, err
	}
	for i := range met {
		m := &met[i]
		spans := func(limit int) ([]store.SpanJSON, int, error) {
			if m.rollout.Attempt == nil {
				return nil, 0, nil
			}
			return r.spansOf(m.seq, m.rollout.Attempt.AttemptID, limit)
		}
		if more, err := f(&m.rollout, spans); !more || err != nil {
			return false, err
		}
	}
	return !ended, nil
}

// walked is a rollout that a walk meets.
type walked struct {
	seq     int64
	rollout agl.AttemptedRollout
}

// latestOf adds the latest attempts. It asks by seq: looking up ids, which are
// random, takes longer than all the rest.
func (r reader) latestOf(met []walked) error {
	seqs := make([]int64, len(met))
	place := make(map[int64]int, len(met))
	for i := range met {
		seqs[i], place[met[i].seq] = met[i].seq, i
	}
	return r.c.query(func(row row) error {
		met[place[row.int(1)]].rollout.Attempt = new(scanAttempt(row))
		return nil
	}, selectLatestBySeq, seqList(seqs))
}

func seqList(keys []int64) string {
	list := make([]byte, 0, 8*len(keys)+2)
	list = append(list, '[')
	for i, key := range keys {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, key, 10)
	}
	return string(append(list, ']'))
}

// idPrefix is how all ids begin, and nothing within them does.
const idPrefix = "ro-"

// seqsWith lists rollouts with a part in their id, up to limit of them.
func (r reader) seqsWith(part string, limit int) ([]int64, error) {
	sql, args := seqsOfID, []any{part, int64(limit)}
	if strings.HasPrefix(part, idPrefix) {
		sql, args = seqsOfPrefix, []any{part, part + "\x7f", int64(limit)}
	}
	var seqs []int64
	err := r.c.query(func(row row) error {
		seqs = append(seqs, row.int(0))
		return nil
	}, sql, args...)
	return seqs, err
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
		seqs, err := r.seqsWith(w.IDContains, w.Most)
		if err != nil {
			return "", nil, err
		}
		if len(seqs) < w.Most {
			where, args = append(where, "seq IN (SELECT value FROM json_each(?))"), append(args, seqList(seqs))
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

// fewSpans is how many spans nearly all attempts have at the most. Theirs are read
// without being counted before.
const fewSpans = 64

func (r reader) AttemptSpans(at store.Attempted, limit int) ([]store.SpanJSON, int, error) {
	seq, err := r.c.number(selectRolloutSeq, at.RolloutID)
	if err != nil {
		return nil, 0, err
	}
	return r.spansOf(seq, at.AttemptID, limit)
}

func (r reader) spansOf(rollout int64, attemptID string, limit int) ([]store.SpanJSON, int, error) {
	out, err := r.fewSpansOf(rollout, attemptID)
	if err != nil || len(out) <= min(fewSpans, limit) {
		return out, len(out), err
	}
	n, err := r.c.number(countAttemptSpans, rollout, attemptID)
	if err != nil || n > int64(limit) {
		return nil, int(n), err
	}
	out = make([]store.SpanJSON, 0, n)
	err = r.c.query(func(row row) error {
		out = append(out, row.bytes(0))
		return nil
	}, selectAttemptSpans, rollout, attemptID)
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

// fewSpansOf returns the spans of an attempt, or more than fewSpans of them.
func (r reader) fewSpansOf(rollout int64, attemptID string) ([]store.SpanJSON, error) {
	type placed struct {
		seq  int64
		body store.SpanJSON
	}
	var found []placed
	err := r.c.query(func(row row) error {
		found = append(found, placed{row.int(0), row.bytes(1)})
		return nil
	}, selectFewSpans, rollout, attemptID, int64(fewSpans+1))
	slices.SortFunc(found, func(a, b placed) int { return cmp.Compare(a.seq, b.seq) })
	out := make([]store.SpanJSON, len(found))
	for i := range found {
		out[i] = found[i].body
	}
	return out, err
}
