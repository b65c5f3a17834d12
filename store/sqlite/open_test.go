package sqlite

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

var rewrite = flag.Bool("update", false, "rewrite the files in testdata")

// refused opens a database that cannot be used and checks the message: one
// line that names the file and holds what it says.
func refused(t *testing.T, path string, want ...string) {
	t.Helper()
	b, err := Open(t.Context(), Config{Path: path})
	if err == nil {
		t.Fatalf("Open(%s) succeeded, want an error", path)
	}
	if b != nil {
		t.Error("Open returned a backend beside its error")
	}
	text := err.Error()
	if strings.Contains(text, "\n") || !strings.HasPrefix(text, "cannot open database ") || !strings.Contains(text, filepath.Base(path)) {
		t.Errorf("error = %q, want one line that begins with what failed and names the file", text)
	}
	for _, part := range want {
		if !strings.Contains(text, part) {
			t.Errorf("error = %q, want it to hold %q", text, part)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	file := func(t *testing.T, content string) string {
		path := filepath.Join(t.TempDir(), "agl.db")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("not a database", func(t *testing.T) {
		t.Parallel()
		refused(t, file(t, "dear diary, today I was mistaken for a database"), "not an SQLite database", "move it away")
	})
	t.Run("too short", func(t *testing.T) {
		t.Parallel()
		refused(t, file(t, "x"), "not an SQLite database")
	})
	t.Run("damaged", func(t *testing.T) {
		t.Parallel()
		refused(t, file(t, magic+strings.Repeat("\x07", 8192)), "another file")
	})
	t.Run("damaged behind the header", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "agl.db")
		fill(t, path)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte(strings.Repeat("\x07", 2000)), 100); err != nil {
			t.Fatal(err)
		}
		refused(t, path, "damaged", "restore a backup")
	})
	t.Run("a folder", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "agl.db")
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		refused(t, path, "it is a folder")
	})
	t.Run("no folder", func(t *testing.T) {
		t.Parallel()
		refused(t, filepath.Join(t.TempDir(), "nowhere", "agl.db"), "does not exist; create it")
	})
	t.Run("unreadable", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS == "windows" || os.Geteuid() == 0 {
			t.Skip("permissions do not stop this user")
		}
		path := file(t, "")
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		refused(t, path, "permission denied", "change the permissions")
	})
	t.Run("of another program", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "agl.db")
		alter(t, path, "CREATE TABLE bookmarks (url TEXT)")
		refused(t, path, "belongs to another program")
		alter(t, path, "DROP TABLE bookmarks", "PRAGMA application_id = 7")
		refused(t, path, "belongs to another program")
	})
	t.Run("of a newer version", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "agl.db")
		fill(t, path)
		alter(t, path, "INSERT INTO schema_migrations VALUES (99, 'future', 0)")
		refused(t, path, "a newer version wrote it (schema 99", "upgrade")
		_, checked := Check(t.Context(), path)
		_, _, vacuumed := Vacuum(t.Context(), Config{Path: path})
		for _, err := range []error{checked, vacuumed} {
			if err == nil || !strings.Contains(err.Error(), "a newer version wrote it (schema 99") {
				t.Errorf("error %v, want a refusal that names the schema", err)
			}
		}
	})
	t.Run("bad configuration", func(t *testing.T) {
		t.Parallel()
		for _, cfg := range []Config{{}, {Path: "x", Sync: "sometimes"}, {Path: "x", CacheBytes: -1}, {Path: "x", Readers: -1}} {
			if _, err := Open(t.Context(), cfg); err == nil {
				t.Errorf("Open(%+v) succeeded", cfg)
			}
		}
	})
}

// fill makes a small database and closes it.
func fill(t *testing.T, path string) {
	t.Helper()
	b, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Update(t.Context(), insert("ro-1")), b.Close()); err != nil {
		t.Fatal(err)
	}
}

// alter runs SQL on a database that nobody has open.
func alter(t *testing.T, path string, sql ...string) {
	t.Helper()
	c, err := newConn(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sql {
		if err := c.run(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
}

func TestLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	b := openTest(t, Config{Path: path})
	refused(t, path, "has it open", "stop that one")

	link := filepath.Join(t.TempDir(), "agl.db")
	if err := os.Symlink(path, link); err == nil {
		refused(t, link, "has it open")
	}
	// What the second one tried did no harm to the first.
	if err := b.Update(t.Context(), insert("a")); err != nil {
		t.Errorf("Update() = %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	again := openTest(t, Config{Path: path})
	if diff := cmp.Diff([]string{"a"}, idsOf(t, again)); diff != "" {
		t.Errorf("rollouts (-want +got):\n%s", diff)
	}
}

// TestLockedByAnotherProcess finds the lock of a process, and that the lock
// ends with it although the process cleaned nothing up.
func TestLockedByAnotherProcess(t *testing.T) { // not parallel, as TestCrash
	path := filepath.Join(t.TempDir(), "agl.db")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), crashChild+"="+path, crashPoint+"="+string(killAnywhere))
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it works now
		t.Fatal(err)
	}
	refused(t, path, "has it open", "process ")
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	openTest(t, Config{Path: path})
}

func TestClose(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	b := openTest(t, Config{Path: path})
	var last int64
	for range 3 {
		err := b.Update(t.Context(), func(tx engine.Tx) (err error) { last, err = tx.TakeSequenceIDs("ro-1", 1); return err })
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	}
	if err := b.Update(t.Context(), insert("a")); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Update() after Close = %v, want ErrClosed", err)
	}
	if err := b.View(t.Context(), func(engine.Reader) error { return nil }); !errors.Is(err, store.ErrClosed) {
		t.Errorf("View() after Close = %v, want ErrClosed", err)
	}
	for _, side := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(path + side); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left behind: %v", path+side, err)
		}
	}
	again := openTest(t, Config{Path: path})
	var next int64
	err := again.Update(t.Context(), func(tx engine.Tx) (err error) { next, err = tx.TakeSequenceIDs("ro-1", 1); return err })
	if err != nil || next != last+1 {
		t.Errorf("the first sequence id after a clean stop = %d, %v, want %d", next, err, last+1)
	}
}

// TestPathIsTakenLiterally opens files whose names mean something in an URI.
func TestPathIsTakenLiterally(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b.db", "50%.db", "what?mode=memory", "a#b.db", "ü.db"} {
		if runtime.GOOS == "windows" && strings.ContainsAny(name, "?") {
			continue
		}
		path := filepath.Join(t.TempDir(), name)
		fill(t, path)
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("database %q: %v", name, err)
		}
	}
}

// TestFull fills the space that the database may take: the write is refused as
// what it is, leaves nothing, and others go on.
func TestFull(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{})
	limit := func(pages string) {
		t.Helper()
		err := b.Update(t.Context(), func(tx_ engine.Tx) error { return tx_.(*tx).c.run("PRAGMA max_page_count = " + pages) })
		if err != nil {
			t.Fatal(err)
		}
	}
	limit("1") // no more than there are
	big := agl.Rollout{RolloutID: "big", Status: agl.RolloutQueuing, Input: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)}
	errs := together(t, b,
		update{t.Context(), insert("a")},
		update{t.Context(), func(tx engine.Tx) error { return tx.InsertRollouts([]agl.Rollout{big}) }},
		update{t.Context(), insert("b")})
	if errs[0] != nil || !errors.Is(errs[1], store.ErrFull) || errs[2] != nil {
		t.Errorf("answers = %v, want nil, ErrFull, nil", errs)
	}
	limit("1000000")
	if err := b.Update(t.Context(), func(tx engine.Tx) error { return tx.InsertRollouts([]agl.Rollout{big}) }); err != nil {
		t.Errorf("Update() with room again = %v", err)
	}
	if diff := cmp.Diff([]string{"a", "b", "big"}, idsOf(t, b)); diff != "" {
		t.Errorf("rollouts (-want +got):\n%s", diff)
	}
}
