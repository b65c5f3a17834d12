package logs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentlightning/internal/logs"
)

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func write(t *testing.T, f *logs.File, line string) {
	t.Helper()
	if _, err := f.Write([]byte(line)); err != nil {
		t.Error(err)
	}
}

// A rotation moves the file away: what comes later is in a new one, without a
// line lost.
func TestFileFollowsItsName(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be moved away on Windows")
	}
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "agl.log")
		if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := logs.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}()
		write(t, f, "one\n")
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		write(t, f, "two\n")
		time.Sleep(time.Second)
		write(t, f, "three\n")
		if err := os.Rename(path, path+".2"); err != nil {
			t.Fatal(err)
		}
		if err := f.Reopen(); err != nil {
			t.Fatal(err)
		}
		write(t, f, "four\n")
		for file, want := range map[string]string{path + ".1": "before\none\ntwo\n", path + ".2": "three\n", path: "four\n"} {
			if got := read(t, file); got != want {
				t.Errorf("%s holds %q, want %q", filepath.Base(file), got, want)
			}
		}
	})
}

// When no new file can be made, the old one goes on.
func TestFileWithoutFolder(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be moved away on Windows")
	}
	folder := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := logs.OpenFile(filepath.Join(folder, "agl.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := os.Rename(folder, folder+".1"); err != nil {
		t.Fatal(err)
	}
	if err := f.Reopen(); err == nil {
		t.Error("a file in a folder that is gone was opened")
	}
	write(t, f, "one\n")
	if got := read(t, filepath.Join(folder+".1", "agl.log")); got != "one\n" {
		t.Errorf("the old file holds %q", got)
	}
}

func TestFileIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.log")
	f, err := logs.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for j := range 50 {
				write(t, f, fmt.Sprintf("%d %d\n", i, j))
				if err := f.Reopen(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(read(t, path), "\n"); n != 400 {
		t.Errorf("%d lines, want 400", n)
	}
}
