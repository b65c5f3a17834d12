package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"agentlightning/internal/proc"
)

// ExitError says that a program did not end as it has to.
type ExitError struct {
	// Command is the name of the program.
	Command string
	// Code is its exit status, -1 when a signal or a limit ended it.
	Code int
	// End says how it ended, as in "exit status 2".
	End string
	// Said is the last line of what it wrote to standard error; may be empty.
	Said string
}

func (e *ExitError) Error() string {
	text := fmt.Sprintf("program %q: %s", e.Command, e.End)
	if e.Said != "" {
		text += ": " + e.Said
	}
	return text
}

func exitError(command []string, exit proc.Exit, stderr *output) *ExitError {
	said, _ := stderr.lastLine()
	e := &ExitError{Command: command[0], Code: exit.Code, End: exit.String(), Said: clip(said)}
	if exit.Err != nil {
		e.Code = -1
	}
	return e
}

// mostSaid bounds what is quoted of a program.
const mostSaid = 500

func clip(s string) string {
	if len(s) > mostSaid {
		s = s[:mostSaid] + "…"
	}
	return strings.Map(func(r rune) rune { // errors are shown in terminals
		if unicode.IsControl(r) && r != '\t' {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

var errNoReward = errors.New(`a reward is a number, or an object whose member "reward" is one`)

// parseReward reads the last line of a stream.
func parseReward(stdout *output) (float64, error) {
	line, whole := stdout.lastLine()
	switch {
	case line == "":
		return 0, fmt.Errorf("nothing was written to standard output: %w", errNoReward)
	case !whole:
		return 0, fmt.Errorf("the last line of standard output is longer than what is kept of it (Config.Output): %w", errNoReward)
	}
	reward, err := readReward([]byte(line))
	if err != nil {
		return 0, fmt.Errorf("the last line of standard output, %q: %w", clip(line), err)
	}
	return reward, nil
}

func readReward(text []byte) (float64, error) {
	var number *float64
	if err := json.Unmarshal(text, &number); err == nil && number != nil {
		return *number, nil
	}
	var object struct {
		Reward *float64 `json:"reward"`
	}
	if err := json.Unmarshal(text, &object); err != nil || object.Reward == nil {
		return 0, errNoReward
	}
	return *object.Reward, nil
}
