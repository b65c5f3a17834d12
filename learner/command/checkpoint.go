package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Save implements [learner.Learner]. A model in the folder of the learner is
// linked into the checkpoint, or copied where the file system has no links; of
// one that is elsewhere only the path is kept. What the trainer's optimiser
// remembers is kept when it is part of the model.
func (l *Learner) Save(ctx context.Context, dir string) (err error) {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	defer func() {
		if err != nil {
			err = fmt.Errorf("command: save checkpoint %s: %w", dir, err)
		}
	}()
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".tmp-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(made)) }()
	if err := os.Chmod(made, 0o755); err != nil {
		return err
	}
	m := l.Model()
	if l.owns(m.Path) {
		if err := link(ctx, m.Path, filepath.Join(made, modelFolder)); err != nil {
			return err
		}
		m.Path = modelFolder // so that the checkpoint may be moved
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(made, checkpointFile), append(text, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(made, dir)
}

// Load implements [learner.Learner]. The model stays in the checkpoint.
func (l *Learner) Load(ctx context.Context, dir string) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("command: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, checkpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("command: %s is no checkpoint of this learner: %w", dir, err)
	}
	var m Model
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return fmt.Errorf("command: checkpoint %s: %w", dir, err)
	}
	if m.Path == modelFolder {
		m.Path = filepath.Join(dir, modelFolder)
	}
	if err := l.adopt(ctx, l.Model(), m); err != nil {
		return fmt.Errorf("command: checkpoint %s: %w", dir, err)
	}
	return nil
}

// owns reports whether a path is of a model whose files may be pruned: one that an
// update left, or one of an earlier checkpoint.
func (l *Learner) owns(path string) bool {
	if strings.HasPrefix(path, l.cfg.Dir+string(filepath.Separator)) {
		return true
	}
	_, err := os.Stat(filepath.Join(filepath.Dir(path), checkpointFile))
	return filepath.Base(path) == modelFolder && err == nil
}

// link copies a file or a folder by hard links where it can.
func link(ctx context.Context, from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rest, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rest)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type().IsRegular():
			if os.Link(path, target) == nil {
				return nil
			}
		}
		return copyFile(path, target) // of a symbolic link, what it leads to
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
