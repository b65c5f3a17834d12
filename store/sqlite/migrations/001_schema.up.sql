-- seq is the order of insertion everywhere: a row keeps it for life. Tables refer
-- to rollouts by seq and not by id: ids are random, so indexes on them would
-- touch another page for every rollout in flight.

CREATE TABLE rollouts (
  seq          INTEGER PRIMARY KEY,
  rollout_id   TEXT NOT NULL UNIQUE,
  status       TEXT NOT NULL,
  mode         TEXT NOT NULL,
  start_time   REAL,
  end_time     REAL,
  resources_id TEXT,
  limited      INTEGER NOT NULL, -- 1 when the config sets a time limit
  config       TEXT NOT NULL,
  metadata     TEXT,
  input        TEXT
);
CREATE INDEX rollouts_status ON rollouts (status);
-- What the health scan reads; rollouts without a limit never enter it.
CREATE INDEX rollouts_open ON rollouts (limited)
  WHERE limited = 1 AND status IN ('preparing', 'running');

-- Front pushes take positions below the smallest, so both ends are O(log n).
CREATE TABLE queue (
  position INTEGER PRIMARY KEY,
  rollout  INTEGER NOT NULL UNIQUE
);

CREATE TABLE attempts (
  seq                 INTEGER PRIMARY KEY,
  rollout             INTEGER NOT NULL,
  sequence_id         INTEGER NOT NULL,
  attempt_id          TEXT NOT NULL,
  rollout_id          TEXT NOT NULL,
  status              TEXT NOT NULL,
  start_time          REAL,
  end_time            REAL,
  worker_id           TEXT,
  last_heartbeat_time REAL,
  metadata            TEXT
);
-- One index serves both "this attempt" and "the latest attempt": a rollout has few.
CREATE UNIQUE INDEX attempts_of_rollout ON attempts (rollout, sequence_id, attempt_id);

-- An ordinary rowid table on purpose: bodies of a kilobyte inside the tree of
-- the key halve the insert rate and triple the file.
CREATE TABLE spans (
  seq         INTEGER PRIMARY KEY,
  rollout     INTEGER NOT NULL,
  attempt_id  TEXT NOT NULL,
  span_id     TEXT NOT NULL,
  sequence_id INTEGER NOT NULL,
  trace_id    TEXT NOT NULL,
  parent_id   TEXT,
  name        TEXT NOT NULL,
  start_time  REAL,
  end_time    REAL,
  body        TEXT NOT NULL
);
CREATE UNIQUE INDEX spans_key ON spans (rollout, attempt_id, span_id);

CREATE TABLE sequences (
  rollout_id TEXT PRIMARY KEY,
  last       INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE resources (
  seq          INTEGER PRIMARY KEY,
  resources_id TEXT NOT NULL UNIQUE,
  create_time  REAL,
  update_time  REAL,
  version      INTEGER NOT NULL,
  touched      INTEGER NOT NULL, -- counts additions and updates: the highest is the latest
  resources    TEXT NOT NULL
);
CREATE UNIQUE INDEX resources_touched ON resources (touched);

CREATE TABLE workers (
  seq                 INTEGER PRIMARY KEY,
  worker_id           TEXT NOT NULL UNIQUE,
  status              TEXT NOT NULL,
  heartbeat_stats     TEXT,
  last_heartbeat_time REAL,
  last_dequeue_time   REAL,
  last_busy_time      REAL,
  last_idle_time      REAL,
  current_rollout_id  TEXT,
  current_attempt_id  TEXT
);

CREATE TABLE runs (
  seq        INTEGER PRIMARY KEY,
  run_id     TEXT NOT NULL UNIQUE,
  algorithm  TEXT NOT NULL,
  config     TEXT,
  seed       INTEGER NOT NULL,
  status     TEXT NOT NULL,
  start_time REAL,
  end_time   REAL,
  error      TEXT NOT NULL
);

CREATE TABLE step_metrics (
  run_id TEXT NOT NULL,
  step   INTEGER NOT NULL,
  time   REAL,
  "values" TEXT NOT NULL,
  PRIMARY KEY (run_id, step)
);

CREATE TABLE checkpoints (
  run_id TEXT NOT NULL,
  step   INTEGER NOT NULL,
  time   REAL,
  path   TEXT NOT NULL,
  score  REAL,
  state  TEXT,
  PRIMARY KEY (run_id, step)
);

CREATE TABLE models (
  position INTEGER PRIMARY KEY,
  name     TEXT NOT NULL,
  endpoint TEXT NOT NULL,
  version  INTEGER NOT NULL,
  target   TEXT NOT NULL,
  api_key  TEXT NOT NULL
);

CREATE TABLE answers (
  key     TEXT PRIMARY KEY,
  answer  BLOB NOT NULL,
  expires REAL NOT NULL
);
CREATE INDEX answers_expires ON answers (expires);

-- Rows are counted as the highest seq less the gaps below it: counting millions
-- of them would make statistics slow, and keeping a total would touch one more
-- page in every commit. Whoever deletes rows keeps the gaps right.
CREATE TABLE gaps (
  noun TEXT PRIMARY KEY,
  n    INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO gaps VALUES ('rollouts', 0), ('attempts', 0), ('spans', 0);
