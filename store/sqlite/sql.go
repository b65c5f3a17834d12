package sqlite

// The SQL of the backend that does not depend on the question. What a query
// adds to it is built in query.go; the schema is in migrations.

// Rollouts.
const (
	rolloutColumns = `seq, rollout_id, status, mode, start_time, end_time, resources_id, config, metadata, input, control`

	selectRollout  = `SELECT ` + rolloutColumns + ` FROM rollouts WHERE rollout_id = ?`
	selectRollouts = `SELECT ` + rolloutColumns + ` FROM rollouts WHERE rollout_id IN (SELECT value FROM json_each(?))`
	// selectRolloutsBySeq keeps the order of the list, and tells the place in it.
	selectRolloutsBySeq = `SELECT wanted.key, ` + rolloutColumns + ` FROM json_each(?) AS wanted
		CROSS JOIN rollouts ON seq = wanted.value`
	selectOpen = `SELECT ` + rolloutColumns + ` FROM rollouts
		WHERE limited = 1 AND status IN ('preparing', 'running') ORDER BY seq`

	selectRolloutSeq = `SELECT seq FROM rollouts WHERE rollout_id = ?`

	insertRollout = `INSERT INTO rollouts (rollout_id, status, mode, start_time, end_time, resources_id,
		limited, config, metadata, input, control) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	updateRollout = `UPDATE rollouts SET status = ?2, mode = ?3, start_time = ?4, end_time = ?5, resources_id = ?6,
		limited = ?7, config = ?8, metadata = ?9, input = ?10, control = ?11 WHERE seq = ?12 AND rollout_id = ?1`
	// moveRollout is an update of what changes in the life of a rollout. It
	// leaves the index on the start alone, which SQLite otherwise writes again.
	moveRollout = `UPDATE rollouts SET status = ?1, end_time = ?2 WHERE seq = ?3`
)

// The queue.
const (
	queueLength = `SELECT count(*) FROM queue`
	pushQueue   = `INSERT INTO queue (position, rollout)
		VALUES ((SELECT coalesce(max(position), 0) + 1 FROM queue), ?) ON CONFLICT (rollout) DO NOTHING`
	pushQueueFront = `INSERT INTO queue (position, rollout)
		VALUES ((SELECT coalesce(min(position), 0) - 1 FROM queue), ?) ON CONFLICT (rollout) DO NOTHING`
	// queueFront reads the rollouts along with the queue, since whoever pops one
	// looks at it next; the last column tells whether it has attempts.
	queueFront = `SELECT ` + rolloutColumns + `, position,
		EXISTS (SELECT 1 FROM attempts WHERE attempts.rollout = queue.rollout)
		FROM queue CROSS JOIN rollouts ON seq = rollout ORDER BY position LIMIT ?`
	popQueue = `DELETE FROM queue WHERE position <= ?`
)

// Attempts.
const (
	attemptColumns = `seq, rollout, sequence_id, attempt_id, rollout_id, status, start_time, end_time,
		worker_id, last_heartbeat_time, metadata`

	ofRollout     = `rollout = (SELECT seq FROM rollouts WHERE rollout_id = ?)`
	selectAttempt = `SELECT ` + attemptColumns + ` FROM attempts WHERE ` + ofRollout + ` AND attempt_id = ?`

	selectLatestAttempt = `SELECT ` + attemptColumns + ` FROM attempts WHERE ` + ofRollout + `
		ORDER BY sequence_id DESC LIMIT 1`
	latestColumns = `a.seq, a.rollout, a.sequence_id, a.attempt_id, a.rollout_id, a.status,
		a.start_time, a.end_time, a.worker_id, a.last_heartbeat_time, a.metadata`
	selectLatestAttempts = `SELECT ` + latestColumns + `
		FROM json_each(?) AS wanted CROSS JOIN rollouts r ON r.rollout_id = wanted.value
		CROSS JOIN attempts a ON a.seq = (SELECT seq FROM attempts WHERE rollout = r.seq
			ORDER BY sequence_id DESC LIMIT 1)`

	latestAttemptID = `(SELECT attempt_id FROM attempts WHERE ` + ofRollout + ` ORDER BY sequence_id DESC LIMIT 1)`

	insertAttempt = `INSERT INTO attempts (rollout, sequence_id, attempt_id, rollout_id, status, start_time, end_time,
		worker_id, last_heartbeat_time, metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	updateAttempt = `UPDATE attempts SET sequence_id = ?2, status = ?5, start_time = ?6, end_time = ?7,
		worker_id = ?8, last_heartbeat_time = ?9, metadata = ?10
		WHERE rollout = ?1 AND attempt_id = ?3 AND rollout_id = ?4`
	// heartbeatAttempt is an update that leaves the indexed columns alone,
	// which nearly all do.
	heartbeatAttempt = `UPDATE attempts SET status = ?2, start_time = ?3, end_time = ?4,
		worker_id = ?5, last_heartbeat_time = ?6, metadata = ?7 WHERE seq = ?1`
	// touchAttempt is what most of those do.
	touchAttempt  = `UPDATE attempts SET last_heartbeat_time = ?2 WHERE seq = ?1`
	deleteAttempt = `DELETE FROM attempts WHERE ` + ofRollout + ` AND attempt_id = ?`
)

// Spans and their numbers.
const (
	insertSpan = `INSERT INTO spans (rollout, attempt_id, span_id, sequence_id, trace_id, parent_id, name,
		start_time, end_time, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (rollout, attempt_id, span_id) DO NOTHING`

	// selectSpanBodies asks for the rollout too: the seq of what is deleted is
	// used again.
	selectSpanBodies = `SELECT wanted.key, body FROM json_each(?) AS wanted
		CROSS JOIN spans ON seq = wanted.value WHERE ` + ofRollout

	// advanceSequence does not return the number itself: RETURNING builds a
	// table of its own every time, which takes as long as three statements.
	advanceSequence = `INSERT INTO sequences (rollout_id, last) VALUES (?1, ?2)
		ON CONFLICT (rollout_id) DO UPDATE SET last = last + ?2`
	selectSequence = `SELECT last FROM sequences WHERE rollout_id = ?`
	raiseSequence  = `INSERT INTO sequences (rollout_id, last) VALUES (?1, ?2)
		ON CONFLICT (rollout_id) DO UPDATE SET last = ?2 WHERE last < ?2`
)

// Events and the log of rollouts that ended.
const (
	selectLastSpan = `SELECT body FROM spans WHERE ` + ofRollout + ` AND attempt_id = ? AND name = ?
		ORDER BY seq DESC LIMIT 1`
	selectSpanned = `SELECT attempt_id FROM spans WHERE ` + ofRollout + ` GROUP BY attempt_id ORDER BY min(seq)`
	updateSpan    = `UPDATE spans SET sequence_id = ?4, trace_id = ?5, parent_id = ?6, name = ?7, start_time = ?8,
		end_time = ?9, body = ?10 WHERE rollout = ?1 AND attempt_id = ?2 AND span_id = ?3`

	appendCompletion  = `INSERT INTO completions (rollout_id) VALUES (?)`
	selectCompletions = `SELECT rollout_id FROM completions WHERE position > ? ORDER BY position LIMIT ?`
	countCompletions  = `SELECT coalesce(max(position), 0) FROM completions`
)

// Resources.
const (
	resourcesColumns = `resources_id, create_time, update_time, version, resources`

	selectResources       = `SELECT ` + resourcesColumns + ` FROM resources WHERE resources_id = ?`
	selectLatestResources = `SELECT ` + resourcesColumns + ` FROM resources ORDER BY touched DESC LIMIT 1`

	putResources = `INSERT INTO resources (resources_id, create_time, update_time, version, touched, resources)
		VALUES (?1, ?2, ?3, ?4, (SELECT coalesce(max(touched), 0) + 1 FROM resources), ?5)
		ON CONFLICT (resources_id) DO UPDATE SET create_time = excluded.create_time, update_time = excluded.update_time,
			version = excluded.version, touched = excluded.touched, resources = excluded.resources`
)

// Workers.
const (
	workerColumns = `worker_id, status, heartbeat_stats, last_heartbeat_time, last_dequeue_time,
		last_busy_time, last_idle_time, current_rollout_id, current_attempt_id`

	selectWorker  = `SELECT ` + workerColumns + ` FROM workers WHERE worker_id = ?`
	selectWorkers = `SELECT ` + workerColumns + ` FROM workers WHERE worker_id IN (SELECT value FROM json_each(?))`

	putWorker = `INSERT INTO workers (` + workerColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (worker_id) DO UPDATE SET status = excluded.status, heartbeat_stats = excluded.heartbeat_stats,
			last_heartbeat_time = excluded.last_heartbeat_time, last_dequeue_time = excluded.last_dequeue_time,
			last_busy_time = excluded.last_busy_time, last_idle_time = excluded.last_idle_time,
			current_rollout_id = excluded.current_rollout_id, current_attempt_id = excluded.current_attempt_id`
)

// Runs.
const (
	runColumns = `run_id, algorithm, config, seed, status, start_time, end_time, error`

	selectRun  = `SELECT ` + runColumns + ` FROM runs WHERE run_id = ?`
	selectRuns = `SELECT ` + runColumns + ` FROM runs ORDER BY seq DESC LIMIT ?`
	insertRun  = `INSERT INTO runs (` + runColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
	updateRun  = `UPDATE runs SET algorithm = ?2, config = ?3, seed = ?4, status = ?5, start_time = ?6,
		end_time = ?7, error = ?8 WHERE run_id = ?1`

	selectStepMetrics = `SELECT step, time, "values" FROM step_metrics WHERE run_id = ? AND step > ? ORDER BY step`
	putStepMetrics    = `INSERT OR REPLACE INTO step_metrics (run_id, step, time, "values") VALUES (?, ?, ?, ?)`

	selectLatestCheckpoint = `SELECT step, time, path, score, state FROM checkpoints WHERE run_id = ?
		ORDER BY step DESC LIMIT 1`
	selectCheckpoints = `SELECT step, time, path, score FROM checkpoints WHERE run_id = ? ORDER BY step`
	putCheckpoint     = `INSERT OR REPLACE INTO checkpoints (run_id, step, time, path, score, state)
		VALUES (?, ?, ?, ?, ?, ?)`
)

// Models, answers and counts.
const (
	selectModels = `SELECT name, endpoint, version, target, key_given, api_key_env, kind, api_version,
		weight, retries, concurrency, rpm, tpm FROM models ORDER BY position`
	deleteModels = `DELETE FROM models`
	insertModel  = `INSERT INTO models (position, name, endpoint, version, target, key_given, api_key_env, kind, api_version,
		weight, retries, concurrency, rpm, tpm) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	selectAnswer = `SELECT answer FROM answers WHERE key = ? AND expires > ?`
	putAnswer    = `INSERT OR REPLACE INTO answers (key, answer, expires) VALUES (?, ?, ?)`
	// pruneAnswers forgets a few expired answers whenever one is added, so that
	// no call ever pays for many.
	pruneAnswers = `DELETE FROM answers WHERE rowid IN
		(SELECT rowid FROM answers WHERE expires <= ? ORDER BY expires LIMIT 4)`

	// takeSecret answers the value that there was, if there was one.
	takeSecret = `INSERT INTO secrets (name, value) VALUES (?1, ?2)
		ON CONFLICT (name) DO UPDATE SET value = value RETURNING value`

	countRollouts  = `SELECT coalesce(max(seq), 0) - (SELECT n FROM gaps WHERE noun = 'rollouts') FROM rollouts`
	countAttempts  = `SELECT coalesce(max(seq), 0) - (SELECT n FROM gaps WHERE noun = 'attempts') FROM attempts`
	countSpans     = `SELECT coalesce(max(seq), 0) - (SELECT n FROM gaps WHERE noun = 'spans') FROM spans`
	addGaps        = `UPDATE gaps SET n = n + ? WHERE noun = ?`
	lastAttempt    = `SELECT coalesce(max(seq), 0) FROM attempts`
	countResources = `SELECT count(*) FROM resources`
	countWorkers   = `SELECT count(*) FROM workers`
)

// Deleting. Lists of rollouts are JSON, of their seq unless it says otherwise.
const (
	deleteSpansOf     = `DELETE FROM spans WHERE rollout IN (SELECT value FROM json_each(?))`
	deleteAttemptsOf  = `DELETE FROM attempts WHERE rollout IN (SELECT value FROM json_each(?))`
	deleteQueuedOf    = `DELETE FROM queue WHERE rollout IN (SELECT value FROM json_each(?))`
	deleteRolloutsOf  = `DELETE FROM rollouts WHERE seq IN (SELECT value FROM json_each(?))`
	deleteSequencesOf = `DELETE FROM sequences WHERE rollout_id IN (SELECT value FROM json_each(?))` // by id
	deleteAnswers     = `DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers WHERE expires <= ? LIMIT ?)`
	lastRollout       = `SELECT coalesce(max(seq), 0) FROM rollouts`
	lastSpan          = `SELECT coalesce(max(seq), 0) FROM spans`
)

// Transactions.
const (
	beginRead  = `BEGIN`
	beginWrite = `BEGIN IMMEDIATE`
	commit     = `COMMIT`
	rollback   = `ROLLBACK`
)
