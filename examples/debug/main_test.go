package main

import (
	"bytes"
	"strings"
	"testing"

	"agentlightning/examples/internal/lessontest"
)

// The README shows what each way prints.
func TestPrintsWhatTheReadmeSays(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"step", "hooks", "dev", "--help"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			if status := mainStatus(t.Context(), []string{way}, &out, &errs); status != 0 {
				t.Fatalf("debug %s = %d: %s", way, status, errs.String())
			}
			lessontest.ReadmeShows(t, out.String())
		})
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"name one way":          nil,
		`there is no way "run"`: {"run"},
		"debug: name one way\n": {"step", "dev"},
	} {
		var out, errs bytes.Buffer
		if status := mainStatus(t.Context(), args, &out, &errs); status != 2 || !strings.Contains(errs.String(), want) || !strings.Contains(errs.String(), usage) {
			t.Errorf("debug %v = %d, %q, want 2 and %q with the usage", args, status, errs.String(), want)
		}
	}
}
