package sqlite

import (
	"context"
	"errors"
	"fmt"

	"agentlightning/store"
)

// Report is what [Check] found.
type Report struct {
	Bytes  int64 // of the file, without its log
	Schema int64 // version
	Counts store.Statistics
	Queued int64
	// Problems are what is wrong, a line each; empty for a sound database.
	Problems []string
}

// maxProblems bounds what is listed of each kind: a damaged page shows in
// thousands of rows.
const maxProblems = 20

// rule is what must hold beyond SQLite's own checks: a question that counts what
// breaks it, and what that means. Zero is no bound.
type rule struct {
	count, problem string
	since, until   int64 // the schemas that it can be asked of
}

var rules = []rule{
	{
		`SELECT count(*) FROM attempts WHERE NOT EXISTS (SELECT 1 FROM rollouts WHERE seq = attempts.rollout)`,
		"attempts belong to no rollout", 0, 0,
	},
	{
		`SELECT count(*) FROM (SELECT DISTINCT rollout FROM spans) s WHERE NOT EXISTS (SELECT 1 FROM rollouts WHERE seq = s.rollout)`,
		"rollouts that spans belong to do not exist", 0, 0,
	},
	{
		`SELECT count(*) FROM queue WHERE NOT EXISTS (SELECT 1 FROM rollouts WHERE seq = queue.rollout)`,
		"places in the queue hold no rollout", 0, 0,
	},
	{
		`SELECT count(*) FROM rollouts WHERE status IN ('queuing', 'requeuing') AND seq NOT IN (SELECT rollout FROM queue)`,
		unqueued, 0, 4,
	},
	{
		`SELECT count(*) FROM rollouts WHERE status IN ('queuing', 'requeuing') AND control IS NULL AND seq NOT IN (SELECT rollout FROM queue)`,
		unqueued, 5, 0,
	},
	{
		`SELECT count(*) FROM log_lines WHERE NOT EXISTS (SELECT 1 FROM run_logs WHERE log = log_lines.log AND position BETWEEN first AND last)`,
		"lines are outside of the logs that they belong to", 6, 0,
	},
	{
		`SELECT count(*) FROM run_logs WHERE NOT EXISTS (SELECT 1 FROM runs WHERE run_id = run_logs.run_id)`,
		"logs belong to no run", 6, 0,
	},
}

const unqueued = "rollouts wait to be claimed but are not in the queue"

// Check looks for damage: SQLite's own checks of every page and index, and the
// promises that the tables keep to each other. A server may be running on the
// database. An error means that it could not be looked at.
func Check(ctx context.Context, path string) (r Report, err error) {
	left, err := idleLeftover(path)
	if err != nil {
		return r, explain(path, err)
	}
	c, err := visit(ctx, path)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if r.Bytes, err = fileSize(path); err != nil {
		return r, err
	}
	if _, err := c.exec(beginRead); err != nil {
		return r, explain(path, err)
	}
	defer func() { _, _ = c.exec(rollback) }() // nothing was written
	if r.Problems, err = c.problems(fmt.Sprintf("PRAGMA integrity_check(%d)", maxProblems)); err != nil {
		return r, explain(path, err)
	}
	if left.lost > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("the log was damaged at byte %d, and the %d commits behind that are lost", left.broken, left.lost))
	}
	if len(r.Problems) > 0 {
		return r, nil // what the tables say cannot be relied on
	}
	if r.Schema, err = c.number(lastMigration); err != nil {
		return r, explain(path, err)
	}
	all, err := migrations()
	if err != nil {
		return r, err
	}
	if err := notNewer(path, r.Schema, all); err != nil {
		return r, err
	}
	if err := r.compare(c); err != nil {
		return r, explain(path, err)
	}
	r.Queued, err = c.number(queueLength)
	return r, err
}

func (r *Report) compare(c *conn) error {
	var err error
	if r.Counts, err = (reader{c}).Counts(); err != nil {
		return err
	}
	for _, noun := range []struct {
		name string
		kept int64
	}{
		{"rollouts", r.Counts.TotalRollouts}, {"attempts", r.Counts.TotalAttempts}, {"spans", r.Counts.TotalSpans},
	} {
		n, err := c.number("SELECT count(*) FROM " + noun.name)
		if err != nil {
			return err
		}
		if n != noun.kept {
			r.Problems = append(r.Problems, fmt.Sprintf("there are %d %s, but statistics say %d", n, noun.name, noun.kept))
		}
	}
	for _, rule := range rules {
		if r.Schema < rule.since || rule.until > 0 && r.Schema > rule.until {
			continue
		}
		n, err := c.number(rule.count)
		if err != nil {
			return err
		}
		if n > 0 {
			r.Problems = append(r.Problems, fmt.Sprintf("%d %s", n, rule.problem))
		}
	}
	return nil
}
