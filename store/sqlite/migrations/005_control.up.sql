-- What the 1.0 protocol keeps of rollouts made through it, as JSON; null for others.
ALTER TABLE rollouts ADD COLUMN control TEXT;
CREATE INDEX rollouts_controlled ON rollouts (status) WHERE control IS NOT NULL;

-- Rollouts in the order in which they ended, by id: a rollout that was deleted
-- may be made again and end again. Nothing is removed, so the positions have no
-- gaps and the last one is the length.
CREATE TABLE completions (
  position   INTEGER PRIMARY KEY,
  rollout_id TEXT NOT NULL
);
INSERT INTO completions (rollout_id)
  SELECT rollout_id FROM rollouts WHERE status IN ('succeeded', 'failed', 'cancelled') ORDER BY end_time, seq;
