package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"agentlightning/emit"
	"agentlightning/semconv"
)

// output keeps the beginning and the end of a stream, half of most each.
type output struct {
	most int

	mu    sync.Mutex
	head  []byte
	tail  []byte // at most twice its share, so that bytes are moved seldom
	total int64
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	o.total += int64(n)
	share := o.most / 2
	if room := share - len(o.head); room > 0 {
		room = min(room, len(p))
		o.head = append(o.head, p[:room]...)
		p = p[room:]
	}
	if len(p) > share {
		p = p[len(p)-share:]
	}
	o.tail = append(o.tail, p...)
	if len(o.tail) > 2*share {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-share:]...)
	}
	return n, nil
}

// text returns what is kept, and how many bytes of the middle are not.
func (o *output) text() (text string, omitted, total int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	tail := o.tail
	if share := o.most / 2; len(tail) > share {
		tail = tail[len(tail)-share:]
	}
	omitted = o.total - int64(len(o.head)) - int64(len(tail))
	head := strings.ToValidUTF8(string(o.head), "\uFFFD")
	if omitted > 0 {
		head += fmt.Sprintf("\n[… %d bytes left out …]\n", omitted)
	}
	return head + strings.ToValidUTF8(string(tail), "\uFFFD"), omitted, o.total
}

// lastLine returns the last line that is not blank. It is whole when it is
// shorter than the share of the tail.
func (o *output) lastLine() (line string, whole bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	tail := o.tail
	complete := o.total == int64(len(o.head)+len(o.tail))
	if complete { // nothing is missing between the two
		tail = append(slices.Clip(o.head), o.tail...)
	}
	tail = bytes.TrimRight(tail, " \t\r\n")
	i := bytes.LastIndexByte(tail, '\n')
	return strings.TrimSpace(string(tail[i+1:])), complete || i >= 0
}

// record keeps what was written as a message of the attempt. Nothing is recorded
// of a stream without output.
func (o *output) record(ctx context.Context, stream string) error {
	text, omitted, total := o.text()
	if total == 0 {
		return nil
	}
	options := []emit.Option{emit.Attr(semconv.ProgramStream, stream), emit.Attr(semconv.ProgramBytes, total)}
	if omitted > 0 {
		options = append(options, emit.Attr(semconv.ProgramOmitted, omitted))
	}
	err := emit.Message(ctx, text, options...)
	if errors.Is(err, emit.ErrNoTrace) {
		return nil // run by hand, outside of a runner
	}
	return err
}
