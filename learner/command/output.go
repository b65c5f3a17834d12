package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"agentlightning/learner"
)

// result is what a trainer said in the lines of its output.
type result struct {
	metrics                 learner.Metrics // last value of each
	model, endpoint, target string
	lines                   int
}

// reader takes a trainer's standard output apart: lines that are JSON objects
// hold numbers, which are metrics, and where the model is; all others are for
// people. It is used by one goroutine.
type reader struct {
	log       io.Writer
	onMetrics func(learner.Metrics)
	rest      []byte // of a line that has not ended
	result    result
	err       error // the first
}

// longestLine bounds a line of a trainer's output, in bytes.
const longestLine = 1 << 20

func (r *reader) Write(p []byte) (int, error) {
	if _, err := r.log.Write(p); err != nil {
		return 0, err
	}
	r.rest = append(r.rest, p...)
	for {
		end := bytes.IndexByte(r.rest, '\n')
		if end < 0 {
			break
		}
		r.line(r.rest[:end])
		r.rest = r.rest[end+1:]
	}
	if len(r.rest) > longestLine {
		r.fail(fmt.Errorf("a line of its output has more than %d bytes", longestLine))
		r.rest = r.rest[:0]
	}
	return len(p), nil
}

// end reads a last line without an end.
func (r *reader) end() {
	if len(r.rest) > 0 {
		r.line(r.rest)
		r.rest = nil
	}
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) line(line []byte) {
	line = bytes.TrimSpace(line)
	r.result.lines++
	if len(line) < 2 || line[0] != '{' || line[len(line)-1] != '}' {
		return
	}
	var members map[string]any
	if err := json.Unmarshal(line, &members); err != nil {
		// Python writes dictionaries much like this, and NaN, which JSON has not.
		if bytes.Contains(line, []byte(`"`)) {
			r.fail(fmt.Errorf("line %d of its output looks like JSON and is not (%w): %.200s", r.result.lines, err, line))
		}
		return
	}
	measured := learner.Metrics{}
	for name, v := range members {
		text, isText := v.(string)
		switch number, isNumber := v.(float64); {
		case isNumber:
			measured[name] = number
			if r.result.metrics == nil {
				r.result.metrics = learner.Metrics{}
			}
			r.result.metrics[name] = number
		case name == "model" && isText:
			r.result.model = text
		case name == "endpoint" && isText:
			r.result.endpoint = text
		case name == "target" && isText:
			r.result.target = text
		case name == "model" || name == "endpoint" || name == "target":
			r.fail(fmt.Errorf("line %d of its output: %s must be a text", r.result.lines, name))
		}
	}
	if len(measured) > 0 && r.onMetrics != nil {
		r.onMetrics(measured)
	}
}

// tail keeps the end of what is written, for errors.
type tail struct {
	log io.Writer

	mu   sync.Mutex
	last []byte
}

// tailBytes is how much of a trainer's errors is shown.
const tailBytes = 2048

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.last = append(t.last, p...)
	if over := len(t.last) - tailBytes; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	t.mu.Unlock()
	return t.log.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.last))
}

// shared is a writer that several goroutines write to.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// told hands the lines of a stream to a logger. It is used by one goroutine.
type told struct {
	ctx    context.Context //nolint:containedctx // it lives as long as the trainer
	log    *slog.Logger
	stream string
	rest   []byte // of a line that has not ended
}

// toldBytes is how much of a line a logger is given.
const toldBytes = 2048

func (t *told) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			t.rest = append(t.rest, rest[:min(len(rest), max(longestLine-len(t.rest), 0))]...)
			break
		}
		t.line(append(t.rest, rest[:end]...))
		t.rest, rest = t.rest[:0], rest[end+1:]
	}
	return len(p), nil
}

// end hands on a last line without an end.
func (t *told) end() {
	t.line(t.rest)
	t.rest = nil
}

func (t *told) line(line []byte) {
	// A bar of progress rewrites its line: what counts is how it looked last.
	line = bytes.TrimRight(line, "\r\n\t ")
	line = line[bytes.LastIndexByte(line, '\r')+1:]
	if len(line) == 0 {
		return
	}
	attrs := []slog.Attr{slog.String("stream", t.stream), slog.String("line", string(line[:min(len(line), toldBytes)]))}
	if len(line) > toldBytes {
		attrs = append(attrs, slog.Int("bytes", len(line)))
	}
	t.log.LogAttrs(t.ctx, slog.LevelInfo, "trainer wrote", attrs...)
}
