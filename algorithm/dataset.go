package algorithm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"unicode/utf8"
)

// Tasks encodes values as the tasks of a data set.
func Tasks[T any](values []T) ([]json.RawMessage, error) {
	out := make([]json.RawMessage, len(values))
	for i, v := range values {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("task %d: %w", i, err)
		}
		out[i] = raw
	}
	return out, nil
}

// LineError says which line of a data set breaks which rule.
type LineError struct {
	File string
	Line int // from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap returns the rule that is broken.
func (e *LineError) Unwrap() error { return e.Err }

// LoadJSONL reads the tasks of a file, one JSON object a line. It refuses files
// without tasks, empty lines, text that is not UTF-8, a byte order mark, values
// that are no objects and more than one value a line; the error is a
// [*LineError] that names file, line and rule.
func LoadJSONL(path string) ([]json.RawMessage, error) {
	return loadJSONL(path, func(json.RawMessage) error { return nil })
}

// LoadJSONLAs is [LoadJSONL] for tasks that an agent decodes into T: a line that
// does not fit T is refused, too, and the error names the member.
func LoadJSONLAs[T any](path string) ([]json.RawMessage, error) {
	return loadJSONL(path, func(raw json.RawMessage) error {
		var task T
		err := json.Unmarshal(raw, &task)
		if u, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && u.Field != "" {
			return fmt.Errorf("member %q: a JSON %s does not fit %s", u.Field, u.Value, u.Type)
		}
		return err
	})
}

func loadJSONL(path string, check func(json.RawMessage) error) ([]json.RawMessage, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("data set: %w", err)
	}
	tasks, err := readJSONL(f, path, check)
	return tasks, errors.Join(err, f.Close())
}

// ReadJSONL is [LoadJSONL] for a stream; name stands for it in errors.
func ReadJSONL(r io.Reader, name string) ([]json.RawMessage, error) {
	return readJSONL(r, name, func(json.RawMessage) error { return nil })
}

func readJSONL(r io.Reader, name string, check func(json.RawMessage) error) ([]json.RawMessage, error) {
	var out []json.RawMessage
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("data set %s: %w", name, err)
		}
		last := err != nil
		if last && len(line) == 0 {
			break
		}
		line = bytes.TrimRight(line, "\r\n")
		if err := checkLine(line); err != nil {
			return nil, &LineError{name, n, err}
		}
		if err := check(line); err != nil {
			return nil, &LineError{name, n, err}
		}
		out = append(out, line)
		if last {
			break
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("data set %s: there are no tasks in it; it must hold one JSON object a line", name)
	}
	return out, nil
}

func checkLine(line []byte) error {
	switch {
	case len(bytes.TrimSpace(line)) == 0:
		return errors.New("the line is empty; every line must hold a task")
	case bytes.HasPrefix(line, []byte("\xef\xbb\xbf")):
		return errors.New("the file begins with a byte order mark; save it as plain UTF-8")
	case !utf8.Valid(line):
		return errors.New("the line is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	var object map[string]json.RawMessage
	switch err := d.Decode(&object); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the JSON object does not end; a task must be on one line")
	case err != nil:
		if u, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return fmt.Errorf("a task must be a JSON object, this is a JSON %s", u.Value)
		}
		if s, ok := errors.AsType[*json.SyntaxError](err); ok {
			return fmt.Errorf("not JSON: %w at byte %d of the line", err, s.Offset)
		}
		return err
	case object == nil:
		return errors.New("a task must be a JSON object, this is null")
	}
	if d.InputOffset() != int64(len(bytes.TrimRight(line, " \t"))) {
		return fmt.Errorf("there is more than one value on the line; what begins at byte %d is too much", d.InputOffset())
	}
	return nil
}

// Order returns the indices 0 … n-1 in the order in which an epoch (counted
// from 0) visits them. Equal arguments give the equal order, each index once.
func Order(n int, seed int64, epoch int) []int {
	return rand.New(rand.NewPCG(uint64(seed), uint64(epoch))).Perm(n)
}

// Batches yields batches of indices into a data set of n tasks, without end.
// All batches have size members (n, if that is smaller), none twice in a batch.
// Passes over the data set follow [Order]; a batch may span two of them, and
// between the first visits of two passes every task is visited once. With no
// tasks or a size below 1 nothing is yielded. Every use of the sequence starts
// from the beginning.
func Batches(n, size int, seed int64) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		if n < 1 || size < 1 {
			return
		}
		size := min(size, n)
		var batch, later []int
		for epoch := 0; ; epoch++ {
			pass := slices.Concat(later, Order(n, seed, epoch))
			later = nil
			for len(pass) > 0 {
				i := pass[0]
				pass = pass[1:]
				if slices.Contains(batch, i) {
					later = append(later, i)
					continue
				}
				if batch = append(batch, i); len(batch) == size {
					if !yield(batch) {
						return
					}
					batch = nil
					pass = slices.Concat(later, pass)
					later = nil
				}
			}
		}
	}
}
