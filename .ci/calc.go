// Command calc runs the example as a newcomer does and holds it to what the
// README says: how accurate the model is before and after, and how long it takes.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// report is what examples/calc writes with --report.
type report struct {
	Before, After, Test float64
	Seconds             float64
	Steps               int
	TokensPerSecond     float64 `json:"tokens_per_second"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "calc:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "agl-calc-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "calc")
	if out, err := exec.Command("go", "build", "-o", binary, "./examples/calc").CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	file := filepath.Join(dir, "report.json")
	cmd := exec.Command(binary, "--seed", "1", "--report", file)
	cmd.Dir = dir // it leaves its database and its problems here
	out, err := cmd.CombinedOutput()
	os.Stdout.Write(out)
	if err != nil {
		return fmt.Errorf("examples/calc: %w", err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var r report
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	fmt.Printf("before %.3f, after %.3f, test %.3f, %d steps in %.0f s, %.0f tokens/s\n",
		r.Before, r.After, r.Test, r.Steps, r.Seconds, r.TokensPerSecond)
	return errors.Join(
		between("before", r.Before, 0.15, 0.6),
		between("after", r.After, 0.9, 1),
		between("test", r.Test, 0.85, 1),
		between("seconds", r.Seconds, 1, 180),
	)
}

func between(name string, got, low, high float64) error {
	if got < low || got > high {
		return fmt.Errorf("%s is %g: must lie between %g and %g", name, got, low, high)
	}
	return nil
}
