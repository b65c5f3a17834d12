package sqlite

import (
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

//go:embed migrations/*.up.sql
var migrationFiles embed.FS

// applicationID marks a file as ours ("AGLS"), so that the database of another
// program is not written to by mistake.
const applicationID = 0x41474c53

// migration is one numbered change of the schema.
type migration struct {
	version int64
	name    string
	sql     string
}

// migrations lists the embedded files in order; ReadDir sorts by name.
func migrations() ([]migration, error) {
	entries, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		return nil, err
	}
	out := make([]migration, 0, len(entries))
	for _, e := range entries {
		number, name, _ := strings.Cut(strings.TrimSuffix(e.Name(), ".up.sql"), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", e.Name(), err)
		}
		text, err := migrationFiles.ReadFile("migrations/" + e.Name())
		if err != nil {
			return nil, err
		}
		out = append(out, migration{version, name, string(text)})
	}
	return out, nil
}

// Only what a migration of any version needs is outside the migrations.
const (
	createMigrations = `CREATE TABLE IF NOT EXISTS schema_migrations (
		version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied INTEGER NOT NULL)`
	recordMigration = `INSERT INTO schema_migrations (version, name, applied) VALUES (?, ?, unixepoch())`
	lastMigration   = `SELECT coalesce(max(version), 0) FROM schema_migrations`
	anyTables       = `SELECT count(*) FROM sqlite_schema`
	foreignTables   = `SELECT count(*) FROM sqlite_schema WHERE name <> 'schema_migrations'`
)

// migrate brings the schema up to date, each step in a transaction of its own.
func migrate(c *conn, path string) error {
	if err := claim(c, path); err != nil {
		return err
	}
	last, err := c.number(lastMigration)
	if err != nil {
		return err
	}
	all, err := migrations()
	if err != nil {
		return err
	}
	if err := notNewer(path, last, all); err != nil {
		return err
	}
	for _, m := range all {
		if m.version <= last {
			continue
		}
		if err := m.apply(c); err != nil {
			return fmt.Errorf("migrate database %s to schema %d (%s): %w", path, m.version, m.name, err)
		}
	}
	return nil
}

// notNewer refuses a schema that is newer than every migration.
func notNewer(path string, schema int64, all []migration) error {
	if newest := all[len(all)-1].version; schema > newest {
		return fmt.Errorf("cannot open database %s: a newer version wrote it (schema %d, this one knows %d); "+
			"upgrade this program or choose another file", path, schema, newest)
	}
	return nil
}

func (m migration) apply(c *conn) error {
	if _, err := c.exec(beginWrite); err != nil {
		return err
	}
	err := c.run(m.sql)
	if err == nil {
		_, err = c.exec(recordMigration, m.version, m.name)
	}
	if err == nil {
		_, err = c.exec(commit)
	}
	if err != nil {
		_, back := c.exec(rollback)
		return errors.Join(err, back)
	}
	return nil
}

// claim marks an empty file as ours and refuses one that belongs to another program.
func claim(c *conn, path string) error {
	id, err := c.number("PRAGMA application_id")
	if err != nil {
		return err
	}
	switch id {
	case applicationID:
	case 0:
		if tables, err := c.number(foreignTables); err != nil {
			return err
		} else if tables > 0 {
			return foreign(path)
		}
		if err := c.run(fmt.Sprintf("PRAGMA application_id = %d", applicationID)); err != nil {
			return err
		}
	default:
		return foreign(path)
	}
	_, err = c.exec(createMigrations)
	return err
}

func foreign(path string) error {
	return fmt.Errorf("cannot open database %s: it belongs to another program; choose another file", path)
}
