package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/examples/internal/lesson"
)

// What the agent is given beside its model: how to look, how large its pictures
// are, and the API that it speaks.
const (
	instructions = "instructions"
	scale        = "scale"
	dialect      = "dialect"
)

const (
	openAI = "openai"
	claude = "anthropic"

	maxAnswer = 64 // tokens
)

// reader is the agent: it shows a chart to a model and asks about it.
type reader struct{ http *http.Client }

func (r *reader) agent() agent.Agent {
	return agent.New(func(ctx context.Context, t task, c *agent.Call) (float64, error) {
		llm, err := c.LLM("")
		if err != nil {
			return 0, err
		}
		how, size, api, err := given(c)
		if err != nil {
			return 0, err
		}
		picture, err := t.Chart.Draw(size)
		if err != nil {
			return 0, err
		}
		ask := r.askOpenAI
		if api == claude {
			ask = r.askAnthropic
		}
		texts := make([]string, len(t.Questions))
		for i, q := range t.Questions {
			texts[i] = q.Text
		}
		answers, err := ask(ctx, llm, how, picture, texts)
		if err != nil {
			return 0, err
		}
		sum := 0.0
		for i, q := range t.Questions {
			sum += q.reward(answers[i])
		}
		return sum / float64(len(answers)), nil
	}, agent.NeedLLM(""), agent.NeedPrompt(instructions), agent.NeedPrompt(scale), agent.NeedPrompt(dialect))
}

// given reads the resources of the agent.
func given(c *agent.Call) (how string, size int, api string, err error) {
	var texts [3]string
	for i, name := range []string{instructions, scale, dialect} {
		template, err := c.Prompt(name)
		if err != nil {
			return "", 0, "", err
		}
		texts[i] = template.Template
	}
	if size, err = strconv.Atoi(texts[1]); err != nil {
		return "", 0, "", fmt.Errorf("resource %s: %w", scale, err)
	}
	if texts[2] != openAI && texts[2] != claude {
		return "", 0, "", fmt.Errorf("resource %s: %q must be %s or %s", dialect, texts[2], openAI, claude)
	}
	return texts[0], size, texts[2], nil
}

func key(llm agl.LLM) string {
	if llm.APIKey != nil {
		return *llm.APIKey
	}
	return "none"
}

// askOpenAI shows the picture as an image part of OpenAI's chat completions.
func (r *reader) askOpenAI(ctx context.Context, llm agl.LLM, how string, picture []byte, questions []string) ([]string, error) {
	client := openai.NewClient(option.WithBaseURL(llm.Endpoint), option.WithAPIKey(key(llm)), option.WithHTTPClient(r.http))
	messages := []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(how)}
	var answers []string
	for i, q := range questions {
		next := openai.UserMessage(q)
		if i == 0 {
			next = openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
				openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: dataURL(picture)}), openai.TextContentPart(q),
			})
		}
		messages = append(messages, next)
		completion, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
			Model: llm.Model, Messages: messages, MaxCompletionTokens: openai.Int(maxAnswer),
		})
		if err != nil {
			return nil, lesson.Readable(err)
		}
		if len(completion.Choices) == 0 {
			return nil, errors.New("the model's answer has no choices")
		}
		messages = append(messages, completion.Choices[0].Message.ToParam())
		answers = append(answers, completion.Choices[0].Message.Content)
	}
	return answers, nil
}

// askAnthropic shows it as an image block of Anthropic's Messages.
func (r *reader) askAnthropic(ctx context.Context, llm agl.LLM, how string, picture []byte, questions []string) ([]string, error) {
	client := anthropic.NewClient(anthropicoption.WithBaseURL(strings.TrimSuffix(llm.Endpoint, "/v1")),
		anthropicoption.WithAPIKey(key(llm)), anthropicoption.WithHTTPClient(r.http))
	var messages []anthropic.MessageParam
	var answers []string
	for i, q := range questions {
		blocks := []anthropic.ContentBlockParamUnion{anthropic.NewTextBlock(q)}
		if i == 0 {
			blocks = append([]anthropic.ContentBlockParamUnion{
				anthropic.NewImageBlockBase64("image/png", base64.StdEncoding.EncodeToString(picture)),
			}, blocks...)
		}
		messages = append(messages, anthropic.NewUserMessage(blocks...))
		answer, err := client.Messages.New(ctx, anthropic.MessageNewParams{
			Model: llm.Model, MaxTokens: maxAnswer, System: []anthropic.TextBlockParam{{Text: how}}, Messages: messages,
		})
		if err != nil {
			return nil, err
		}
		messages = append(messages, answer.ToParam())
		var text strings.Builder
		for _, b := range answer.Content {
			text.WriteString(b.Text)
		}
		answers = append(answers, text.String())
	}
	return answers, nil
}

// dataURL is a picture as an address that holds it.
func dataURL(picture []byte) string {
	return pngPrefix + base64.StdEncoding.EncodeToString(picture)
}

const pngPrefix = "data:image/png;base64,"
