package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// needNode returns the interpreter of the TypeScript programs, or skips the test
// for want of one.
func needNode(t *testing.T) string {
	t.Helper()
	node := os.Getenv("AGL_TEST_NODE")
	if node == "" {
		t.Skip("AGL_TEST_NODE is not set: run AGL_TEST_NODE=$(bash test/interop/node/setup.sh) go test ./test/interop")
	}
	return node
}

// callNode runs a program of node/ and decodes what its main returned.
func callNode(t *testing.T, node, program string, arguments map[string]any, result any) {
	t.Helper()
	answer, err := runNode(t, node, program, arguments)
	if err == nil {
		err = json.Unmarshal(answer, result)
	}
	if err != nil {
		t.Fatalf("%s.main(%v): %v", program, arguments, err)
	}
}

// runNode may be used from any goroutine of a test.
func runNode(t *testing.T, node, program string, arguments map[string]any) ([]byte, error) {
	request, err := json.Marshal(map[string]any{"program": program, "arguments": arguments})
	if err != nil {
		return nil, err
	}
	folder, err := nodePrograms(t, node, "node")
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, node, filepath.Join(folder, "driver.mjs"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &log, &log
	cmd.ExtraFiles = []*os.File{write}
	err = cmd.Start()
	_ = write.Close() // the program has its own
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(read)
	if ended := cmd.Wait(); ended != nil {
		err = errors.Join(ended, context.Cause(ctx))
	}
	if err != nil {
		lines := strings.Split(log.String(), "\n")
		err = fmt.Errorf("%w\nthe last of what it wrote:\n%s", err, strings.Join(lines[max(0, len(lines)-100):], "\n"))
	}
	return answer, err
}

// nodePrograms returns a folder with the programs of one here beside the packages
// that they import, which is where Node looks for them.
func nodePrograms(t *testing.T, node, programs string) (string, error) {
	packages := filepath.Join(filepath.Dir(node), "..", "node_modules")
	if _, err := os.Stat(packages); err != nil {
		return "", fmt.Errorf("%s has no packages beside it: %w", node, err)
	}
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(programs)); err != nil {
		return "", err
	}
	return folder, os.Symlink(packages, filepath.Join(folder, "node_modules"))
}
