package openai_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"agentlightning/llm/openai"
)

// readEvents reads a stream to its end; it returns the data of the events that
// have some, and all raw bytes.
func readEvents(src io.Reader) (data []string, raw []byte, err error) {
	r := openai.NewEventReader(src)
	for {
		e, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return data, raw, err
		}
		raw = append(raw, e.Raw...)
		if e.Data != nil {
			data = append(data, string(e.Data))
		}
	}
}

func TestEventReader(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, stream string
		want         []string
	}{
		{"plain", "data: a\n\ndata: b\n\n", []string{"a", "b"}},
		{"carriage returns", "data: a\r\rdata: b\r\n\r\ndata: c\r\n\n", []string{"a", "b", "c"}},
		{"several lines", "data: a\ndata\ndata:b\n\n", []string{"a\n\nb"}},
		{"comments and other fields", ": hi\nid: 3\nevent: x\ndata: a\nretry: 4\n\n: alone\n\n", []string{"a"}},
		{"one space is dropped", "data:  a \n\n", []string{" a "}},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", []string{"a"}},
		{"no end", "data: a\n\ndata: [DONE]", []string{"a", "[DONE]"}},
		{"empty data", "data\n\ndata:\n\n", []string{"", ""}},
		{"a field that begins like data", "database: x\n\n", nil},
		{"blank lines", "\n\n\r\n\rdata: a\n\n", []string{"a"}},
		{"nothing", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for name, src := range map[string]io.Reader{
				"at once":       strings.NewReader(tt.stream),
				"byte by byte":  iotest.OneByteReader(strings.NewReader(tt.stream)),
				"data with EOF": iotest.DataErrReader(strings.NewReader(tt.stream)),
			} {
				got, raw, err := readEvents(src)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s: data (-want +got):\n%s", name, diff)
				}
				if string(raw) != tt.stream {
					t.Errorf("%s: raw bytes are %q, want %q", name, raw, tt.stream)
				}
			}
		})
	}
}

func TestEventReaderDoesNotWait(t *testing.T) {
	t.Parallel()
	// Every ending of an event counts at once, before anything follows it.
	for _, stream := range []string{"data: a\n\n", "data: a\r\n\r\n", "data: a\r\r", "data: a\r\n\r"} {
		in, out := io.Pipe()
		r := openai.NewEventReader(in)
		go func() { _, _ = io.WriteString(out, stream) }()
		if e, err := r.Next(); err != nil || string(e.Data) != "a" {
			t.Errorf("event of %q is %q (%v)", stream, e.Data, err)
		}
		_ = in.Close()
	}
}

func TestEventReaderReady(t *testing.T) {
	t.Parallel()
	r := openai.NewEventReader(strings.NewReader("data: a\n\ndata: b\n\ndata: c"))
	for i, want := range []bool{true, false, false} {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		// Asking must not lose an event.
		if got := r.Ready(); got != want || r.Ready() != got {
			t.Errorf("Ready after event %d = %t, want %t", i, got, want)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("error is %v, want EOF", err)
	}
}

func TestEventReaderReportsTheError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	r := openai.NewEventReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken)))
	var got []string
	for {
		e, err := r.Next()
		if err != nil {
			if !errors.Is(err, broken) {
				t.Errorf("error is %v, want %v", err, broken)
			}
			break
		}
		got = append(got, fmt.Sprintf("%s %t", e.Data, e.Partial))
	}
	if diff := cmp.Diff([]string{"a false", "b true"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestEventTooLong(t *testing.T) {
	t.Parallel()
	r := openai.NewEventReader(io.LimitReader(endless{}, 2*openai.MaxEventBytes))
	_, err := r.Next() // what came is handed out before the error
	if err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, openai.ErrEventTooLong) {
		t.Errorf("error is %v, want %v", err, openai.ErrEventTooLong)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// naiveEvents reads a stream that is there as a whole, as the standard says it.
func naiveEvents(stream []byte) []string {
	text := strings.TrimPrefix(string(stream), "\xef\xbb\xbf")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	var out, lines []string
	has := false
	all := strings.Split(text, "\n")
	for i, line := range all {
		if field, value, _ := strings.Cut(line, ":"); field == "data" {
			lines = append(lines, strings.TrimPrefix(value, " "))
			has = true
		}
		// The end of the stream ends an event, too.
		if line == "" || i == len(all)-1 {
			if has {
				out = append(out, strings.Join(lines, "\n"))
			}
			lines, has = nil, false
		}
	}
	return out
}

func FuzzEventReader(f *testing.F) {
	for _, seed := range []string{
		"data: {\"a\":1}\n\ndata: [DONE]\n\n", "data: a\r\rdata: b\r\n\r\n: c\n\n", "\xef\xbb\xbfdata: x", "data\n\r\n\rdata:\xff\n",
		"event: e\ndata: a\ndata: b\n\n", "\r\n\r", "data: é\r",
	} {
		f.Add([]byte(seed), uint8(1))
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		got, raw, err := readEvents(&pieces{rest: stream, size: int(size)%9 + 1})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(raw, stream) {
			t.Errorf("raw bytes of %q are %q", stream, raw)
		}
		if diff := cmp.Diff(naiveEvents(stream), got); diff != "" {
			t.Errorf("data of %q in pieces of %d (-want +got):\n%s", stream, int(size)%9+1, diff)
		}
	})
}

// pieces hands out a stream in reads of one size.
type pieces struct {
	rest []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(p.size, len(b))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}
