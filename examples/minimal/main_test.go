package main

import (
	"bytes"
	"strings"
	"testing"

	"agentlightning/examples/internal/lessontest"
)

// The README shows what each part prints.
func TestPrintsWhatTheReadmeSays(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"traces", "metrics", "proxy", "--help"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			if status := mainStatus(t.Context(), []string{part}, &out, &errs); status != 0 {
				t.Fatalf("minimal %s = %d: %s", part, status, errs.String())
			}
			lessontest.ReadmeShows(t, out.String())
		})
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"name one part":            nil,
		`there is no part "spans"`: {"spans"},
		"minimal: name one part\n": {"traces", "proxy"},
	} {
		var out, errs bytes.Buffer
		if status := mainStatus(t.Context(), args, &out, &errs); status != 2 || !strings.Contains(errs.String(), want) || !strings.Contains(errs.String(), usage) {
			t.Errorf("minimal %v = %d, %q, want 2 and %q with the usage", args, status, errs.String(), want)
		}
	}
}
