package problem

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds one line of a file.
const maxLine = 1 << 20

// LineError says which line of a file is not a problem and why.
type LineError struct {
	File string
	Line int // from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap returns the broken rule.
func (e *LineError) Unwrap() error { return e.Err }

// Write writes one problem a line as JSON.
func Write(w io.Writer, problems []Problem) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	for _, p := range problems {
		if err := enc.Encode(p); err != nil {
			return fmt.Errorf("write problem %q: %w", p.ID, err)
		}
	}
	return b.Flush()
}

// Read reads what [Write] wrote. It is strict: an unknown or missing member, a
// second use of an id and a solution that does not add up are all refused with
// a [LineError] under the given file name. Lines that are empty are skipped.
func Read(r io.Reader, file string) ([]Problem, error) {
	var (
		problems []Problem
		line     int
		seen     = make(map[string]int)
	)
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	for in.Scan() {
		line++
		text := bytes.TrimSpace(in.Bytes())
		if len(text) == 0 {
			continue
		}
		p, err := parse(text)
		if err == nil && seen[p.ID] > 0 {
			err = fmt.Errorf("id %q: is used in line %d already", p.ID, seen[p.ID])
		}
		if err != nil {
			return nil, &LineError{file, line, err}
		}
		seen[p.ID] = line
		problems = append(problems, p)
	}
	if err := in.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("must not be longer than %d bytes", maxLine)
		}
		return nil, &LineError{file, line + 1, err}
	}
	return problems, nil
}

func parse(line []byte) (Problem, error) {
	var p Problem
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("ends in the middle of a value")
		}
		return Problem{}, fmt.Errorf("must be one JSON object with the members of a problem: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Problem{}, errors.New("must hold one JSON object and nothing after it")
	}
	return p, p.Validate()
}
