package command

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// The lines of a trainer reach the logger whole, however they are written.
func TestLinesAreTold(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	l := &told{ctx: t.Context(), log: logger, stream: "stderr"}
	for _, part := range []string{"one\ntw", "o\r\n\n  \n10%\r50%\r100%\nlast", " line", "\n" + strings.Repeat("x", toldBytes+1) + "\n", "no end"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	l.end()
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.TrimPrefix(strings.TrimSpace(line), `level=INFO msg="trainer wrote" stream=stderr `))
	}
	want := []string{"line=one", "line=two", "line=100%", `line="last line"`, "line=" + strings.Repeat("x", toldBytes) + " bytes=2049", `line="no end"`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
