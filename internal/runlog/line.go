package runlog

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

const (
	// longestMessage and longestValue are what is kept of one text, in bytes.
	longestMessage = 4 << 10
	longestValue   = 2 << 10
	// cutKey counts the attributes for which a line has no room.
	cutKey = "attributes_cut"
	// cutRoom is what that takes at the most.
	cutRoom = 40
)

// LevelOf is the level of a line for that of a record.
func LevelOf(l slog.Level) agl.LogLevel {
	switch {
	case l < slog.LevelInfo:
		return agl.LogDebug
	case l < slog.LevelWarn:
		return agl.LogInfo
	case l < slog.LevelError:
		return agl.LogWarn
	}
	return agl.LogError
}

// lineOf turns a record into a line, which is never longer than a store takes.
// given are the attributes of the logger, group what those of the record are in.
func lineOf(r *slog.Record, given []slog.Attr, group string) agl.LogLine {
	l := agl.LogLine{Time: agl.Seconds(r.Time), Level: LevelOf(r.Level), Message: cut(r.Message, longestMessage)}
	if r.Time.IsZero() {
		l.Time = agl.Seconds(time.Now())
	}
	o := members{}
	for _, a := range given {
		o.add("", a)
	}
	r.Attrs(func(a slog.Attr) bool {
		o.add(group, a)
		return true
	})
	l.Attributes = o.object(store.LogLineBytes - len(l.Message))
	return l
}

// members are attributes by their whole names. Of several of one name the last
// one counts, in the place of the first.
type members struct {
	names  []string
	values map[string]string // JSON
}

// add takes an attribute, those of a group under the name of the group.
func (m *members) add(group string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, inner := range v.Group() {
			m.add(group, inner)
		}
		return
	}
	if a.Key == "" && v.Equal(slog.Value{}) {
		return
	}
	name := cut(group+a.Key, longestValue)
	if m.values == nil {
		m.values = map[string]string{}
	}
	if _, known := m.values[name]; !known {
		m.names = append(m.names, name)
	}
	m.values[name] = valueOf(v)
}

// object writes the members as an object that takes no more than room bytes.
func (m *members) object(room int) []byte {
	dst := []byte{'{'}
	left := 0
	for _, name := range m.names {
		before := len(dst)
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(append(jsonx.AppendString(dst, name), ':'), m.values[name]...)
		if len(dst) > room-cutRoom {
			dst = dst[:before]
			left++
		}
	}
	if left > 0 {
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(jsonx.AppendString(dst, cutKey), ':'), int64(left), 10)
	}
	return append(dst, '}')
}

// valueOf is a value as JSON: a number, a truth value or a text. What is none of
// them is the text that people read.
func valueOf(v slog.Value) string {
	switch v.Kind() {
	case slog.KindInt64:
		return strconv.FormatInt(v.Int64(), 10)
	case slog.KindUint64:
		return strconv.FormatUint(v.Uint64(), 10)
	case slog.KindBool:
		return strconv.FormatBool(v.Bool())
	case slog.KindFloat64:
		if number, err := json.Marshal(v.Float64()); err == nil {
			return string(number)
		}
		return text(v.String()) // JSON has no NaN
	case slog.KindTime:
		return text(v.Time().Format(time.RFC3339Nano))
	case slog.KindString, slog.KindDuration, slog.KindGroup, slog.KindLogValuer:
		return text(v.String())
	case slog.KindAny:
	}
	switch a := v.Any().(type) {
	case nil:
		return "null"
	case error:
		return text(a.Error())
	case fmt.Stringer:
		return text(a.String())
	case []byte:
		return text(string(a))
	}
	if raw, err := json.Marshal(v.Any()); err == nil {
		var s string
		if json.Unmarshal(raw, &s) == nil { // a text of a type of its own
			return text(s)
		}
		return text(string(raw))
	}
	return text(fmt.Sprintf("%+v", v.Any()))
}

func text(s string) string { return string(jsonx.AppendString(nil, cut(s, longestValue))) }

// cut shortens a text, and says by how much.
func cut(s string, most int) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= most {
		return s
	}
	end := most - 32 // room for what follows
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes more)", s[:end], len(s)-end)
}
