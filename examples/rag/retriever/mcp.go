package retriever

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentlightning/examples/rag/world"
)

// Name is the name of the tool.
const Name = "search"

// Description tells the model what the tool does.
const Description = "Finds the article that fits a query best."

// Query is what the tool takes.
type Query struct {
	Query string `json:"query" jsonschema:"the words to search for"`
}

// result is what it answers.
type result struct {
	Articles []world.Article `json:"articles"`
}

// Serve answers MCP requests about articles on standard input and output until the
// input ends. Interrupts are left to the parent, which closes the input when it
// stops.
func Serve(ctx context.Context, articles []world.Article) error {
	signal.Ignore(os.Interrupt)
	index := NewIndex(articles)
	server := mcp.NewServer(&mcp.Implementation{Name: "encyclopaedia", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: Name, Description: Description},
		func(_ context.Context, _ *mcp.CallToolRequest, in Query) (*mcp.CallToolResult, result, error) {
			return nil, result{index.Search(in.Query, 1)}, nil
		})
	if err := server.Run(ctx, &mcp.StdioTransport{}); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("retriever: %w", err)
	}
	return nil
}

// Client calls a retriever that runs as a child process. Its methods are safe for
// concurrent use.
type Client struct{ session *mcp.ClientSession }

// Start runs a command that calls [Serve] and connects to it.
func Start(ctx context.Context, command string, args ...string) (*Client, error) {
	// The child lives as long as its input is open, not as long as ctx.
	cmd := exec.Command(command, args...) //nolint:noctx // ended by Close
	cmd.Stderr = os.Stderr
	client := mcp.NewClient(&mcp.Implementation{Name: "rag-agent", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return nil, fmt.Errorf("start the retriever %s: %w", command, err)
	}
	return &Client{session}, nil
}

// Search returns the best article for a query; false when none has a word of it.
func (c *Client) Search(ctx context.Context, query string) (world.Article, bool, error) {
	answer, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: Name, Arguments: Query{query}})
	if err != nil {
		return world.Article{}, false, fmt.Errorf("call the retriever: %w", err)
	}
	if answer.IsError {
		return world.Article{}, false, fmt.Errorf("call the retriever: %w", answer.GetError())
	}
	text, err := json.Marshal(answer.StructuredContent)
	if err != nil {
		return world.Article{}, false, fmt.Errorf("answer of the retriever: %w", err)
	}
	var found result
	if err := json.Unmarshal(text, &found); err != nil {
		return world.Article{}, false, fmt.Errorf("answer of the retriever: %w", err)
	}
	if len(found.Articles) == 0 {
		return world.Article{}, false, nil
	}
	return found.Articles[0], true, nil
}

// Close ends the child process and waits for it.
func (c *Client) Close() error { return c.session.Close() }
