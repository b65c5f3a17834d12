package main

import (
	"bytes"
	"testing"

	"agentlightning/examples/internal/lessontest"
)

// The README shows what the program prints.
func TestPrintsWhatTheReadmeSays(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	lessontest.ReadmeShows(t, out.String())
}
