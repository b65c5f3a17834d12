// Command gotest runs go test, prints a line for each package and the output of
// what failed or was skipped, and appends the counts to a file.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// event is one line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64
}

type key struct{ pkg, test string }

type counts struct{ passed, failed, skipped int }

func main() {
	totals := flag.String("totals", "", "append `passed failed skipped` to this file")
	flag.Parse()
	sum, ok, err := run(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
	fmt.Printf("%d passed, %d failed, %d skipped in this stage\n", sum.passed, sum.failed, sum.skipped)
	if err := appendTo(*totals, sum); err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(args []string) (sum counts, ok bool, err error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return sum, false, err
	}
	if err := cmd.Start(); err != nil {
		return sum, false, err
	}
	output := map[key]*strings.Builder{}
	failedTests := map[string]int{} // by package
	skipped := map[string]int{}     // by reason
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text()) // not an event: the go command's own words
			continue
		}
		if e.Package == "" {
			e.Package = e.ImportPath
		}
		k := key{e.Package, e.Test}
		if output[k] == nil {
			output[k] = &strings.Builder{}
		}
		switch e.Action {
		case "output", "build-output":
			output[k].WriteString(e.Output)
		case "pass", "fail", "skip":
			sum.add(e, failedTests)
			report(e, output[k].String())
			if e.Test != "" && e.Action == "skip" {
				skipped[reason(output[k].String())]++
			}
			delete(output, k)
		}
	}
	if err := lines.Err(); err != nil {
		return sum, false, err
	}
	// Builds that failed have output and no end of their own, and neither have
	// tests that ran when their process died: the stacks are in their output.
	for k, o := range output {
		if o.Len() > 0 {
			fmt.Printf("unfinished  %s %s\n%s", k.pkg, k.test, o)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Printf("%d skipped: %s\n", skipped[why], why)
	}
	return sum, cmd.Wait() == nil, nil
}

// add counts one result. A package that failed without a failed test (it did
// not compile, it timed out, it exited) counts as one.
func (c *counts) add(e event, failedTests map[string]int) {
	switch {
	case e.Test == "":
		if e.Action == "fail" && failedTests[e.Package] == 0 {
			c.failed++
		}
	case e.Action == "pass":
		c.passed++
	case e.Action == "skip":
		c.skipped++
	case e.Action == "fail":
		c.failed++
		failedTests[e.Package]++
	}
}

// report prints what a reader of the log needs: packages always, tests when
// they failed.
func report(e event, output string) {
	switch {
	case e.Test == "" && e.Action == "pass":
		fmt.Printf("ok    %8.2fs  %s\n", e.Elapsed, e.Package)
	case e.Test == "" && e.Action == "skip":
		fmt.Printf("      no tests   %s\n", e.Package)
	case e.Test == "":
		fmt.Printf("%sFAIL  %8.2fs  %s\n", output, e.Elapsed, e.Package)
	case e.Action == "fail", strings.Contains(output, "WARNING: DATA RACE"):
		// The report of a race may stand with another test than the one that
		// fails for it.
		fmt.Print(output)
	}
}

// reason returns what a test that was skipped said last.
func reason(output string) string {
	said := "no reason given"
	for line := range strings.Lines(output) {
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "===") && !strings.HasPrefix(text, "---") {
			said = text
		}
	}
	return said
}

func appendTo(file string, c counts) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, c.passed, c.failed, c.skipped)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
