package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// The README shows what the program prints.
func TestPrintsWhatTheReadmeSays(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```\n"+out.String()+"```\n") {
		t.Errorf("the README lacks this output:\n%s", out.String())
	}
}
