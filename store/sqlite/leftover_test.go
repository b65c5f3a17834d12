package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"agentlightning/store/engine"
)

// writeOneByOne says after each write how long the log is by then.
func writeOneByOne(ctx context.Context, b *Backend, path string) error {
	err := b.Update(ctx, func(engine.Tx) error {
		b.writer.tidy = func(*conn, bool) {} // on a slow machine the log would begin anew in between
		return nil
	})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		id := fmt.Sprintf("ro-%05d", i)
		if err := b.Update(ctx, insert(id)); err != nil {
			return err
		}
		info, err := os.Stat(path + "-wal")
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, id, info.Size())
	}
}

// killed is what a process that was killed left behind.
type killed struct {
	db, log []byte
	ids     []string
	ends    []int64 // of the log after each id
}

// killWriter starts a process that writes, and kills it after some writes.
func killWriter(t *testing.T, writes int) killed {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agl.db")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), crashChild+"="+path, crashPoint+"="+string(writeInTurn))
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var k killed
	lines := bufio.NewScanner(out)
	for len(k.ids) < writes && lines.Scan() {
		var id string
		var end int64
		if _, err := fmt.Sscan(lines.Text(), &id, &end); err != nil {
			t.Fatalf("the child said %q", lines.Text())
		}
		k.ids, k.ends = append(k.ids, id), append(k.ends, end)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if len(k.ids) < writes {
		t.Fatalf("the child wrote %d times, want %d", len(k.ids), writes)
	}
	if k.db, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if k.log, err = os.ReadFile(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	return k
}

// open opens the database with another log and returns what is in it and what
// the program says about it.
func (k *killed) open(t *testing.T, log []byte) (ids []string, said string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agl.db")
	for name, content := range map[string][]byte{path: k.db, path + "-wal": log} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var text bytes.Buffer
	b := openTest(t, Config{Path: path, Logger: slog.New(slog.NewTextHandler(&text, nil))})
	ids = idsOf(t, b)
	if err := b.Update(t.Context(), insert("new")); err != nil {
		t.Errorf("a write after the recovery: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	report, err := Check(t.Context(), path)
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("Check after the recovery = %v, %v", report.Problems, err)
	}
	again := openTest(t, Config{Path: path})
	if got := idsOf(t, again); len(got) != len(ids)+1 {
		t.Errorf("%d rollouts after another start, want %d", len(got), len(ids)+1)
	}
	return ids, text.String()
}

// expect checks that the first n writes are there and no other, unless more is
// true: of a write that was cut short nobody knows whether it was whole.
func (k *killed) expect(t *testing.T, ids []string, n int) {
	t.Helper()
	if len(ids) != n {
		t.Errorf("%d writes are there, want the first %d", len(ids), n)
	}
	for i := range min(len(ids), len(k.ids)) {
		if ids[i] != k.ids[i] {
			t.Fatalf("write %d is %s, want %s", i, ids[i], k.ids[i])
		}
	}
}

// TestTornLog cuts and spoils the log of a process that was killed. What was
// committed before the place is there, and a line says what happened.
func TestTornLog(t *testing.T) {
	t.Parallel()
	k := killWriter(t, 60)
	whole := k.ends[len(k.ends)-1]

	t.Run("as it was left", func(t *testing.T) {
		ids, said := k.open(t, k.log[:whole])
		k.expect(t, ids, len(k.ids))
		if !strings.Contains(said, "level=INFO") || !strings.Contains(said, "did not stop cleanly") {
			t.Errorf("said %q", said)
		}
	})
	for _, at := range []int{0, 1, 20, 59} {
		t.Run(fmt.Sprintf("cut in write %d", at), func(t *testing.T) {
			for _, missing := range []int64{1, 24, 4096, 4119} {
				ids, said := k.open(t, k.log[:k.ends[at]-missing])
				k.expect(t, ids, at)
				if !strings.Contains(said, "level=WARN") || !strings.Contains(said, "last write was not finished") {
					t.Errorf("%d bytes missing: said %q", missing, said)
				}
			}
		})
		t.Run(fmt.Sprintf("a bit of write %d", at), func(t *testing.T) {
			for _, back := range []int64{1, 100, 4100, 4110, 4120} { // in the last frame of the write, or its header
				log := bytes.Clone(k.log[:whole])
				log[k.ends[at]-back] ^= 1 << (back % 8)
				ids, said := k.open(t, log)
				k.expect(t, ids, at)
				lost := fmt.Sprintf("commits_lost=%d", len(k.ids)-at)
				if back == 4110 { // a mark that tells it from an older frame: what follows shows that it is not one
					lost = fmt.Sprintf("commits_lost=%d", len(k.ids)-at-1)
				}
				if back == 4110 && at == len(k.ids)-1 {
					continue // nothing follows
				}
				if !strings.Contains(said, "level=ERROR") || !strings.Contains(said, lost) || !strings.Contains(said, "restore a backup") {
					t.Errorf("bit %d bytes before the end of the write: said %q, want %s", back, said, lost)
				}
			}
		})
	}
	t.Run("check", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "agl.db")
		log := bytes.Clone(k.log[:whole])
		log[k.ends[20]-1] ^= 1
		for name, content := range map[string][]byte{path: k.db, path + "-wal": log} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var said bytes.Buffer
		if err := ReportLog(path, slog.New(slog.NewTextHandler(&said, nil))); err != nil || !strings.Contains(said.String(), "commits_lost=40") {
			t.Errorf("ReportLog = %v, said %q", err, said.String())
		}
		r, err := Check(t.Context(), path)
		if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "the 40 commits behind that are lost") {
			t.Errorf("Check = %q, %v, want that commits are lost", r.Problems, err)
		}
		// Looking took the log over: what is left is whole.
		if r, err := Check(t.Context(), path); err != nil || len(r.Problems) > 0 || r.Counts.TotalRollouts != 20 {
			t.Errorf("Check again = %+v, %v, want the 20 rollouts from before", r, err)
		}
	})
	t.Run("the header", func(t *testing.T) {
		log := bytes.Clone(k.log[:whole])
		log[9] ^= 1 // the page size
		_, said := k.open(t, log)
		if !strings.Contains(said, "level=ERROR") || !strings.Contains(said, "byte=0") {
			t.Errorf("said %q", said)
		}
	})
	t.Run("half a header", func(t *testing.T) {
		_, said := k.open(t, k.log[:17])
		if !strings.Contains(said, "level=WARN") {
			t.Errorf("said %q", said)
		}
	})
}

// TestLogThatBeganAnew takes over a log whose end is older than its beginning.
func TestLogThatBeganAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	b := openTest(t, Config{Path: path})
	for i := range 30 {
		if err := b.Update(t.Context(), insert(fmt.Sprint("old-", i))); err != nil {
			t.Fatal(err)
		}
	}
	c, err := newConn(t.Context(), path, "busy_timeout = 10000")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.number("PRAGMA wal_checkpoint(RESTART)"); err != nil {
		t.Fatal(err)
	}
	if err := b.Update(t.Context(), insert("new")); err != nil {
		t.Fatal(err)
	}
	l, err := findLeftover(path)
	if err != nil || l.commits != 1 || l.broken >= 0 || l.lost != 0 {
		t.Errorf("findLeftover = %+v, %v, want one commit and nothing broken", l, err)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

// FuzzLeftover reads any bytes as the log of a database: nothing breaks, and it
// counts no more commits than there is room for.
func FuzzLeftover(f *testing.F) {
	log := smallLog()
	for _, seed := range [][]byte{log, log[:len(log)-9], log[:40], log[:31], nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, log []byte) {
		l := leftover{bytes: int64(len(log)), broken: -1}
		if err := l.read(bytes.NewReader(log)); err != nil {
			t.Errorf("read = %v", err)
		}
		if most := len(log) / (frameHeader + 512); l.commits < 0 || l.lost < 0 || l.commits+l.lost > most || l.broken >= max(l.bytes, 1) {
			t.Errorf("%d bytes are read as %+v", len(log), l)
		}
	})
}

// smallLog is a log of three frames, of which one commits, with the smallest pages that there are.
func smallLog() []byte {
	const page = 512
	put := binary.BigEndian.AppendUint32
	log := put(put(put(put(nil, logMagic), 3007000), page), 0)
	log = append(log, "saltsalt"...)
	sums := checksum{order: binary.LittleEndian}
	sums.add(log)
	log = put(put(log, sums.s0), sums.s1)
	for n := range uint32(3) {
		commit := n % 2 // the second ends a transaction
		frame := append(put(put(nil, n+1), commit*2), "saltsalt"...)
		content := bytes.Repeat([]byte{byte(n)}, page)
		sums.add(frame[:8])
		sums.add(content)
		log = append(append(log, put(put(frame, sums.s0), sums.s1)...), content...)
	}
	return log
}

func TestSmallLog(t *testing.T) {
	t.Parallel()
	log := smallLog()
	l := leftover{bytes: int64(len(log)), broken: -1}
	if err := l.read(bytes.NewReader(log)); err != nil || l.commits != 1 || l.broken >= 0 || l.lost != 0 {
		t.Errorf("read = %+v, %v, want one commit", l, err)
	}
}
