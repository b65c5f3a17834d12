// Package logs makes the loggers of a server: levels by area, text or JSON, and
// the id of the request in every line that belongs to one.
package logs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
)

// Areas are the parts of a server that have a level of their own.
func Areas() []string { return []string{"http", "store", "db", "proxy", "otlp", "gateway"} }

// Levels says how much each area says.
type Levels struct {
	// Default is for whatever has no level of its own.
	Default slog.Level
	area    map[string]slog.Level
}

// ParseLevels reads a list such as "warn,store=debug,proxy=info". An entry
// without an area is for all others; without any, those are at info.
func ParseLevels(text string) (Levels, error) {
	l := Levels{area: map[string]slog.Level{}}
	for entry := range strings.SplitSeq(text, ",") {
		area, name, found := strings.Cut(strings.TrimSpace(entry), "=")
		if !found {
			area, name = "", area
		}
		level, err := parseLevel(name)
		switch {
		case err != nil:
			return l, fmt.Errorf("%q: must be debug, info, warning or error", entry)
		case !found:
			l.Default = level
		case !slices.Contains(Areas(), area):
			return l, fmt.Errorf("%q: there is no area %q; the areas are %s", entry, area, strings.Join(Areas(), ", "))
		default:
			l.area[area] = level
		}
	}
	return l, nil
}

func parseLevel(name string) (slog.Level, error) {
	if strings.EqualFold(name, "warning") {
		name = "warn"
	}
	var level slog.Level
	return level, level.UnmarshalText([]byte(name))
}

// Loggers makes loggers that write to one place.
type Loggers struct {
	out    slog.Handler // takes every level
	levels Levels
}

// Formats are the forms that lines can have.
func Formats() []string { return []string{"text", "json"} }

// New returns loggers that write lines of a format to w.
func New(w io.Writer, format string, levels Levels) (*Loggers, error) {
	all := &slog.HandlerOptions{Level: slog.LevelDebug - 4}
	switch format {
	case "text":
		return &Loggers{slog.NewTextHandler(w, all), levels}, nil
	case "json":
		return &Loggers{slog.NewJSONHandler(w, all), levels}, nil
	}
	return nil, fmt.Errorf("%q: must be %s", format, strings.Join(Formats(), " or "))
}

// Logger returns the logger of an area, or of the server as a whole when it is
// empty.
func (l *Loggers) Logger(area string) *slog.Logger {
	level, ok := l.levels.area[area]
	if !ok {
		level = l.levels.Default
	}
	log := slog.New(handler{l.out, level})
	if area != "" {
		log = log.With("area", area)
	}
	return log
}

type requestKey struct{}

// WithRequestID returns a context whose lines carry the id of a request.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

// handler lets through what is loud enough and adds the id of the request.
type handler struct {
	next  slog.Handler
	level slog.Level
}

const requestAttr = "request_id"

// Enabled implements [slog.Handler].
func (h handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	id, ok := ctx.Value(requestKey{}).(string)
	if !ok {
		return h.next.Handle(ctx, r)
	}
	said := false
	r.Attrs(func(a slog.Attr) bool {
		said = a.Key == requestAttr
		return !said
	})
	if !said {
		r = r.Clone()
		r.AddAttrs(slog.String(requestAttr, id))
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.next.WithAttrs(attrs), h.level}
}

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler { return handler{h.next.WithGroup(name), h.level} }
