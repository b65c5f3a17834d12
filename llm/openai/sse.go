package openai

import (
	"bytes"
	"errors"
	"io"
)

// MaxEventBytes is how long one event may be.
const MaxEventBytes = 32 << 20

// ErrEventTooLong is returned for an event of more than [MaxEventBytes].
var ErrEventTooLong = errors.New("server-sent event is longer than 32 MiB")

// Done is the data of the event that ends a stream.
const Done = "[DONE]"

var utf8BOM = []byte("\xef\xbb\xbf")

// Event is one event of a stream. Its slices are valid until the next call of
// [EventReader.Next] or [EventReader.Ready].
type Event struct {
	// Raw are the bytes of the event, the blank line that ends it included.
	// The Raw of all events together are the stream, byte for byte.
	Raw []byte
	// Data are the lines of data, joined by a line feed. It is nil when the
	// event has none, as with comments that keep a connection alive.
	Data []byte
	// Name is the type of the event; empty means a plain message.
	Name string
	// Partial marks what was left when the stream ended inside an event.
	Partial bool
}

// Done reports whether the event says that the stream is complete.
func (e Event) Done() bool { return string(e.Data) == Done }

// EventReader reads server-sent events. Lines may end in LF, CRLF or CR, and
// reads may split the stream anywhere, inside a character too.
type EventReader struct {
	src io.Reader
	err error // from src, once it ended

	// The window buf[start:end] begins with the event that is being read.
	// The offsets below are relative to start.
	buf        []byte
	start, end int
	pos        int  // next byte to look at
	line       int  // where the current line begins
	complete   bool // the event is whole
	taken      bool // and Next has returned it
	skipLF     bool // the last line ended in CR, which may have been half of CRLF
	begun      bool // something was read of the first line, so no BOM can follow

	hasData          bool
	dataFrom, dataTo int    // the data while it is one line
	joined           []byte // the data once it is several; nil before
	name             string
}

// NewEventReader returns a reader of the events in src.
func NewEventReader(src io.Reader) *EventReader { return &EventReader{src: src} }

// Next returns the next event, waiting for the rest of it where necessary. At
// the end of the stream it returns what is left as a partial event, then the
// error of the source, which is [io.EOF] for a stream that ended in order.
func (r *EventReader) Next() (Event, error) {
	if r.taken {
		r.drop()
	}
	for !r.scan() {
		if r.err != nil {
			if r.start == r.end {
				return Event{}, r.err
			}
			if r.line < r.end-r.start {
				r.field(r.skipBOM(r.buf[r.start+r.line : r.end]))
			}
			r.pos, r.complete = r.end-r.start, true
			return r.event(true), nil
		}
		if r.end-r.start > MaxEventBytes {
			r.err = ErrEventTooLong
			continue
		}
		r.fill()
	}
	return r.event(false), nil
}

// Ready reports whether Next has a whole event at hand and will not wait. Data
// that was forwarded should be flushed when it has not.
func (r *EventReader) Ready() bool {
	if r.taken {
		r.drop()
	}
	return r.scan()
}

func (r *EventReader) event(partial bool) Event {
	r.taken = true
	window := r.buf[r.start:r.end]
	e := Event{Raw: window[:r.pos], Name: r.name, Partial: partial}
	switch {
	case r.joined != nil:
		e.Data = r.joined
	case r.hasData:
		e.Data = window[r.dataFrom:r.dataTo:r.dataTo]
	}
	return e
}

// drop forgets the event that was returned.
func (r *EventReader) drop() {
	r.start += r.pos
	r.pos, r.line = 0, 0
	r.complete, r.taken, r.hasData = false, false, false
	r.joined, r.name = nil, ""
}

// fill reads once from the source.
func (r *EventReader) fill() {
	const least = 4 << 10
	if r.start > 0 {
		copy(r.buf, r.buf[r.start:r.end])
		r.start, r.end = 0, r.end-r.start
	}
	if len(r.buf)-r.end < least {
		grown := make([]byte, max(2*len(r.buf), 2*least))
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	n, err := r.src.Read(r.buf[r.end:])
	r.end += n
	r.err = err
}

// scan looks at the lines that have arrived and reports whether they complete
// an event.
func (r *EventReader) scan() bool {
	for !r.complete {
		window := r.buf[r.start:r.end]
		if r.pos == len(window) {
			return false
		}
		if r.skipLF {
			r.skipLF = false
			if window[r.pos] == '\n' {
				r.pos++
				r.line = r.pos
				continue
			}
		}
		at := lineEnd(window[r.pos:])
		if at < 0 {
			r.pos = len(window)
			return false
		}
		at += r.pos
		line := window[r.line:at]
		r.pos = at + 1
		if window[at] == '\r' {
			switch {
			case r.pos == len(window):
				r.skipLF = true
			case window[r.pos] == '\n':
				r.pos++
			}
		}
		line = r.skipBOM(line)
		if len(line) == 0 {
			r.complete = true
			break
		}
		r.field(line)
		r.line = r.pos
	}
	return true
}

// skipBOM takes the byte order mark off the first line of the stream.
func (r *EventReader) skipBOM(line []byte) []byte {
	if !r.begun {
		r.begun = true
		if bytes.HasPrefix(line, utf8BOM) {
			r.line += len(utf8BOM)
			line = line[len(utf8BOM):]
		}
	}
	return line
}

// field takes in one line of the event; it begins at r.line.
func (r *EventReader) field(line []byte) {
	name, value, colon := bytes.Cut(line, []byte{':'})
	from := len(name)
	if colon {
		from++
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
			from++
		}
	}
	switch string(name) {
	case "data":
		switch {
		case !r.hasData:
			r.hasData = true
			r.dataFrom = r.line + from
			r.dataTo = r.dataFrom + len(value)
		case r.joined == nil:
			first := r.buf[r.start+r.dataFrom : r.start+r.dataTo]
			r.joined = append(append(append([]byte{}, first...), '\n'), value...)
		default:
			r.joined = append(append(r.joined, '\n'), value...)
		}
	case "event":
		r.name = string(value)
	}
}

// lineEnd returns the place of the first CR or LF, -1 when there is none.
func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf < 0 {
		return bytes.IndexByte(b, '\r')
	}
	if cr := bytes.IndexByte(b[:lf], '\r'); cr >= 0 {
		return cr
	}
	return lf
}
