// Package calculator is the tool of the example agent: an MCP server with one
// tool, and the client that starts it as a child process and calls it.
package calculator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentlightning/examples/calc/problem"
)

// Name is the name of the tool.
const Name = "calc"

// Description tells the model what the tool does.
const Description = "Evaluates an arithmetic expression, such as 17+25."

type arguments struct {
	Expression string `json:"expression" jsonschema:"the expression to evaluate, with + - * / and parentheses"`
}

// Serve answers MCP requests on standard input and output until the input
// ends. Interrupts are left to the parent, which closes the input when it stops.
func Serve(ctx context.Context) error {
	signal.Ignore(os.Interrupt)
	server := mcp.NewServer(&mcp.Implementation{Name: "calculator", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: Name, Description: Description},
		func(_ context.Context, _ *mcp.CallToolRequest, in arguments) (*mcp.CallToolResult, any, error) {
			value, err := problem.Calculate(in.Expression)
			if err != nil {
				return nil, nil, err // becomes a result that is marked as an error
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: value}}}, nil, nil
		})
	if err := server.Run(ctx, &mcp.StdioTransport{}); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("calculator: %w", err)
	}
	return nil
}

// Client calls a calculator that runs as a child process. Its methods are safe
// for concurrent use.
type Client struct{ session *mcp.ClientSession }

// Start runs a command that calls [Serve] and connects to it.
func Start(ctx context.Context, command string, args ...string) (*Client, error) {
	// The child lives as long as its input is open, not as long as ctx.
	cmd := exec.Command(command, args...) //nolint:noctx // ended by Close
	cmd.Stderr = os.Stderr
	client := mcp.NewClient(&mcp.Implementation{Name: "calc-agent", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return nil, fmt.Errorf("start the calculator %s: %w", command, err)
	}
	return &Client{session}, nil
}

// Evaluate calls the tool. What the tool says of a broken expression is an
// answer, too: the model shall see it.
func (c *Client) Evaluate(ctx context.Context, expression string) (string, error) {
	result, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: Name, Arguments: arguments{expression}})
	if err != nil {
		return "", fmt.Errorf("call the calculator: %w", err)
	}
	var texts []string
	for _, content := range result.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	answer := strings.Join(texts, "\n")
	if result.IsError {
		answer = "error: " + answer
	}
	return answer, nil
}

// Close ends the child process and waits for it.
func (c *Client) Close() error { return c.session.Close() }
