package logs_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"agentlightning/internal/logs"
)

func TestLevelsByArea(t *testing.T) {
	t.Parallel()
	levels, err := logs.ParseLevels("WARNING, store=debug,proxy=info")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	l, err := logs.New(&out, "text", levels)
	if err != nil {
		t.Fatal(err)
	}
	for _, area := range []string{"", "store", "proxy", "otlp"} {
		log := l.Logger(area)
		log.Debug("debug")
		log.Info("info")
		log.Warn("warn")
	}
	got := map[string]int{}
	for line := range strings.Lines(out.String()) {
		area := "none"
		if _, rest, ok := strings.Cut(line, "area="); ok {
			area = strings.TrimSpace(rest)
		}
		got[area]++
	}
	want := map[string]int{"none": 1, "store": 3, "proxy": 2, "otlp": 1}
	for area, n := range want {
		if got[area] != n {
			t.Errorf("area %s has %d lines, want %d:\n%s", area, got[area], n, &out)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"loud": "must be debug", "": "must be debug", "shop=info": `there is no area "shop"`, "store=": "must be debug", "info,": "must be debug",
	} {
		if _, err := logs.ParseLevels(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseLevels(%q) = %v, want an error with %q", text, err, want)
		}
	}
	if _, err := logs.New(nil, "xml", logs.Levels{}); err == nil || !strings.Contains(err.Error(), "text or json") {
		t.Errorf("New with format xml = %v, want an error that lists the formats", err)
	}
}

func TestLinesNameTheRequestOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l, err := logs.New(&out, "json", logs.Levels{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := logs.WithRequestID(t.Context(), "r1")
	log := l.Logger("store")
	log.InfoContext(ctx, "a")
	log.InfoContext(ctx, "b", "request_id", "r1")
	log.InfoContext(t.Context(), "c")
	want := map[string]int{"a": 1, "b": 1, "c": 0}
	for line := range strings.Lines(out.String()) {
		var fields struct{ Msg, Area string }
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(line, `"request_id":"r1"`); n != want[fields.Msg] || fields.Area != "store" {
			t.Errorf("line %q names the request %d times, want %d", line, n, want[fields.Msg])
		}
	}
}
