package sqlite

import (
	"errors"
	"fmt"
	"math"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

const (
	selectRunLog    = `SELECT log, first, last, bytes FROM run_logs WHERE run_id = ?`
	insertRunLog    = `INSERT INTO run_logs (run_id, first, last, bytes) VALUES (?, 1, 0, 0)`
	updateRunLog    = `UPDATE run_logs SET first = ?2, last = ?3, bytes = ?4 WHERE log = ?1`
	insertLogLine   = `INSERT INTO log_lines (log, position, time, level, message, attributes) VALUES (?, ?, ?, ?, ?, ?)`
	selectLogLines  = `SELECT position, time, level, message, attributes FROM log_lines WHERE log = ? AND position > ? AND position < ? ORDER BY position`
	selectNewestLog = selectLogLines + ` DESC`
	selectLogSizes  = `SELECT octet_length(message) + octet_length(attributes) FROM log_lines WHERE log = ? ORDER BY position`
	deleteLogLines  = `DELETE FROM log_lines WHERE log = ? AND position < ?`

	deleteLinesOfRun   = `DELETE FROM log_lines WHERE log = (SELECT log FROM run_logs WHERE run_id = ?)`
	deleteLogOfRun     = `DELETE FROM run_logs WHERE run_id = ?`
	deleteMetricsOfRun = `DELETE FROM step_metrics WHERE run_id = ?`
	deletePointsOfRun  = `DELETE FROM checkpoints WHERE run_id = ?`
	deleteRun          = `DELETE FROM runs WHERE run_id = ?`

	emptyRunLog = `UPDATE run_logs SET first = last + 1, bytes = 0 WHERE run_id = ?`
)

// errEnough ends a query before its last row.
var errEnough = errors.New("enough rows")

// runLog is a row of run_logs.
type runLog struct{ log, first, last, bytes int64 }

func (r reader) runLog(runID string) (l runLog, found bool, err error) {
	found, err = r.c.one(func(row row) error {
		l = runLog{row.int(0), row.int(1), row.int(2), row.int(3)}
		return nil
	}, selectRunLog, runID)
	return l, found, err
}

func (r reader) RunLog(q store.LogQuery) (store.LogPage, error) {
	log, found, err := r.runLog(q.RunID)
	if err != nil {
		return store.LogPage{}, fmt.Errorf("log of run %s: %w", q.RunID, err)
	}
	page := store.LogPage{First: 1}
	if !found {
		return page, nil
	}
	page.First, page.Last = log.first, log.last
	sql := selectLogLines
	if q.Newest {
		sql = selectNewestLog
	}
	before := q.Before
	if before == 0 {
		before = math.MaxInt64
	}
	page.Lines, page.More = engine.SelectLog(func(yield func(*agl.LogLine) bool) {
		err = r.c.query(func(row row) error {
			l := agl.LogLine{
				Position: row.int(0), Time: row.float(1), Level: agl.LogLevel(row.text(2)),
				Message: row.text(3), Attributes: row.raw(4),
			}
			if !yield(&l) {
				return errEnough
			}
			return nil
		}, sql, log.log, q.After, before)
	}, &q)
	if err != nil && !errors.Is(err, errEnough) {
		return store.LogPage{}, fmt.Errorf("log of run %s: %w", q.RunID, err)
	}
	return page, nil
}

func (t *tx) AppendLogLines(runID string, lines []agl.LogLine, keep engine.LogBounds) error {
	t.write()
	if err := t.appendLogLines(runID, lines, keep); err != nil {
		return fmt.Errorf("append to the log of run %s: %w", runID, err)
	}
	return nil
}

func (t *tx) appendLogLines(runID string, lines []agl.LogLine, keep engine.LogBounds) error {
	log, found, err := t.runLog(runID)
	if err == nil && !found {
		log.first = 1
		log.log, err = t.c.insert(insertRunLog, runID)
	}
	if err != nil {
		return err
	}
	for i := range lines {
		l := &lines[i]
		log.last++
		log.bytes += int64(l.Size())
		if _, err := t.c.exec(insertLogLine, log.log, log.last, l.Time, string(l.Level), l.Message, string(l.Attributes)); err != nil {
			return err
		}
	}
	was := log.first
	tooMuch := func() bool {
		return log.first < log.last && (log.last-log.first+1 > keep.Lines || log.bytes > keep.Bytes)
	}
	if tooMuch() {
		err := t.c.query(func(row row) error {
			if !tooMuch() {
				return errEnough
			}
			log.first++
			log.bytes -= row.int(0)
			return nil
		}, selectLogSizes, log.log)
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	if log.first > was {
		if _, err := t.c.exec(deleteLogLines, log.log, log.first); err != nil {
			return err
		}
	}
	_, err = t.c.exec(updateRunLog, log.log, log.first, log.last, log.bytes)
	return err
}

func (t *tx) DeleteRun(id string) error {
	t.write()
	var n int64
	var err error
	for _, sql := range []string{deleteLinesOfRun, deleteLogOfRun, deleteMetricsOfRun, deletePointsOfRun, deleteRun} {
		if n, err = t.c.exec(sql, id); err != nil {
			return fmt.Errorf("delete run %s: %w", id, err)
		}
	}
	if n == 0 {
		return fmt.Errorf("delete run %s: %w", id, errMissing)
	}
	return nil
}

func (r reader) LogSize(runID string) (lines, bytes int64, err error) {
	log, found, err := r.runLog(runID)
	if err != nil || !found {
		return 0, 0, err
	}
	return log.last - log.first + 1, log.bytes, nil
}

func (t *tx) EmptyLog(runID string) error {
	t.write()
	for _, sql := range []string{deleteLinesOfRun, emptyRunLog} {
		if _, err := t.c.exec(sql, runID); err != nil {
			return fmt.Errorf("empty the log of run %s: %w", runID, err)
		}
	}
	return nil
}
