package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"agentlightning/internal/cli"
)

// argsVariable makes a process of its own of the test program, which runs one
// command line.
const argsVariable = "AGL_TEST_COMMAND"

// roleVariable makes the test program be an agent.
const roleVariable = "AGL_CLI_TEST_ROLE"

func TestMain(m *testing.M) {
	if text := os.Getenv(argsVariable); text != "" {
		var args []string
		if err := json.Unmarshal([]byte(text), &args); err != nil {
			panic(err)
		}
		os.Args = append([]string{"agl"}, args...)
		os.Exit(cli.Main())
	}
	if role := os.Getenv(roleVariable); role != "" {
		if err := wordAgent(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
