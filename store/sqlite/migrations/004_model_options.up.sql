-- What a backend speaks and how much it takes. Keys of backends leave the
-- database: the process that is given one remembers it, the file does not.
ALTER TABLE models ADD COLUMN key_given INTEGER NOT NULL DEFAULT 0;
ALTER TABLE models ADD COLUMN api_key_env TEXT NOT NULL DEFAULT '';
ALTER TABLE models ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE models ADD COLUMN api_version TEXT NOT NULL DEFAULT '';
ALTER TABLE models ADD COLUMN weight INTEGER NOT NULL DEFAULT 0;
ALTER TABLE models ADD COLUMN retries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE models ADD COLUMN concurrency INTEGER NOT NULL DEFAULT 0;
ALTER TABLE models ADD COLUMN rpm INTEGER NOT NULL DEFAULT 0;
ALTER TABLE models ADD COLUMN tpm INTEGER NOT NULL DEFAULT 0;
UPDATE models SET key_given = 1 WHERE api_key <> '';
ALTER TABLE models DROP COLUMN api_key;
