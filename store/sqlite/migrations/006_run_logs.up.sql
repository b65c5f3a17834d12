-- The logs of runs. first and last are positions, bytes those of the lines
-- between them: what was before first has gone.
CREATE TABLE run_logs (
  log    INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL UNIQUE,
  first  INTEGER NOT NULL,
  last   INTEGER NOT NULL,
  bytes  INTEGER NOT NULL
);
-- Most lines are short, and they are read and dropped in the order of the key,
-- so they live in its tree.
CREATE TABLE log_lines (
  log        INTEGER NOT NULL,
  position   INTEGER NOT NULL,
  time       REAL,
  level      TEXT NOT NULL,
  message    TEXT NOT NULL,
  attributes TEXT NOT NULL,
  PRIMARY KEY (log, position)
) WITHOUT ROWID;
