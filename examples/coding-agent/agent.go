package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/emit"
	"agentlightning/examples/coding-agent/sandbox"
)

const (
	// maxTurns is how often the model is asked.
	maxTurns = 16
	// maxTokens bounds one answer.
	maxTokens = 4096
	// tampering is what it costs to have touched the tests.
	tampering = 0.5

	instructions = "instructions" // the prompt that is chosen
)

// The tools of the agent.
const (
	listFiles = "list_files"
	readFile  = "read_file"
	writeFile = "write_file"
	editFile  = "edit_file"
	runTests  = "run_tests"
)

// Dimensions of the reward beside the primary one.
const (
	byShare    = "share"    // of the tests that pass, put back as they were
	byAsLeft   = "as_left"  // 1 when the tests pass as the agent left them
	byTampered = "tampered" // 1 when the agent touched the tests
)

// coder is the agent: a model works on a repository with tools until it says that
// it is done.
type coder struct {
	workshop *sandbox.Workshop
	http     *http.Client
}

func (k *coder) agent() agent.Agent {
	return agent.New(func(ctx context.Context, j job, c *agent.Call) (_ agent.Result, err error) {
		llm, err := c.LLM("")
		if err != nil {
			return agent.Result{}, err
		}
		how, err := c.Prompt(instructions)
		if err != nil {
			return agent.Result{}, err
		}
		folder, err := k.workshop.Folder(j.Files)
		if err != nil {
			return agent.Result{}, err
		}
		defer func() { err = errors.Join(err, folder.Close()) }()
		if err := k.work(ctx, llm, how.Template, j.Issue, folder); err != nil {
			return agent.Result{}, err
		}
		g, err := folder.Grade(ctx)
		if err != nil {
			return agent.Result{}, err
		}
		return agent.Result{}, emit.Rewards(ctx, rewards(g))
	}, agent.NeedLLM(""), agent.NeedPrompt(instructions))
}

// rewards are what a grade is worth: the share of the tests that pass, less when
// the agent touched them.
func rewards(g sandbox.Grade) []agl.RewardDimension {
	share, left, tampered := float64(g.Passed)/float64(g.Total), 0.0, 0.0
	if g.AsLeft {
		left = 1
	}
	if len(g.Edited) > 0 {
		tampered = 1
	}
	return []agl.RewardDimension{
		{Name: "primary", Value: max(0, share-tampering*tampered)},
		{Name: byShare, Value: share},
		{Name: byAsLeft, Value: left},
		{Name: byTampered, Value: tampered},
	}
}

// work is the loop of every agent with tools, in Anthropic's API.
func (k *coder) work(ctx context.Context, llm agl.LLM, how, issue string, folder *sandbox.Folder) error {
	key := "none"
	if llm.APIKey != nil {
		key = *llm.APIKey
	}
	// Clients of Anthropic's API add the /v1 themselves.
	client := anthropic.NewClient(option.WithBaseURL(strings.TrimSuffix(llm.Endpoint, "/v1")), option.WithAPIKey(key), option.WithHTTPClient(k.http))
	messages := []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(issue))}
	for turn := range maxTurns {
		answer, err := client.Messages.New(ctx, anthropic.MessageNewParams{
			Model: llm.Model, MaxTokens: maxTokens, System: []anthropic.TextBlockParam{{Text: how}}, Messages: messages, Tools: tools(),
		})
		if err != nil {
			return fmt.Errorf("turn %d: %w", turn+1, err)
		}
		messages = append(messages, answer.ToParam())
		var results []anthropic.ContentBlockParamUnion
		for _, block := range answer.Content {
			call, ok := block.AsAny().(anthropic.ToolUseBlock)
			if !ok {
				continue
			}
			result, err := emit.Do(ctx, call.Name, func(ctx context.Context) (string, error) { return use(ctx, folder, call.Name, call.Input) })
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				result = "error: " + err.Error() // the model's mistake, which it gets to read
			}
			results = append(results, anthropic.NewToolResultBlock(call.ID, result, err != nil))
		}
		if len(results) == 0 {
			return nil
		}
		messages = append(messages, anthropic.NewUserMessage(results...))
	}
	return nil // out of turns: what is there is graded
}

// arguments are those of all tools.
type arguments struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Old     string `json:"old"`
	New     string `json:"new"`
}

// use is a call of a tool.
func use(ctx context.Context, folder *sandbox.Folder, name string, input json.RawMessage) (string, error) {
	var in arguments
	if err := json.Unmarshal(input, &in); err != nil {
		return "", fmt.Errorf("the input of %s: %w", name, err)
	}
	switch name {
	case listFiles:
		names, err := folder.List()
		return strings.Join(names, "\n"), err
	case readFile:
		return folder.Read(in.Path)
	case writeFile:
		return "written", folder.Write(in.Path, in.Content)
	case editFile:
		return "edited", folder.Edit(in.Path, in.Old, in.New)
	case runTests:
		output, _, err := folder.Test(ctx)
		return output, err
	}
	return "", fmt.Errorf("there is no tool %q", name)
}

func tools() []anthropic.ToolUnionParam {
	tool := func(name, what string, inputs ...string) anthropic.ToolUnionParam {
		properties := map[string]any{}
		for _, in := range inputs {
			properties[in] = map[string]any{"type": "string"}
		}
		return anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{
			Name: name, Description: anthropic.String(what),
			InputSchema: anthropic.ToolInputSchemaParam{Properties: properties, Required: inputs},
		}}
	}
	return []anthropic.ToolUnionParam{
		tool(listFiles, "Lists the files of the repository."),
		tool(readFile, "Returns what is in a file.", "path"),
		tool(writeFile, "Replaces a .go file or makes a new one.", "path", "content"),
		tool(editFile, "Replaces a text that occurs exactly once in a .go file.", "path", "old", "new"),
		tool(runTests, "Compiles the code, runs all tests and returns what they print."),
	}
}
