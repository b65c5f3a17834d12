package apo

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	agl "agentlightning"
	"agentlightning/algorithm/prompt"
)

// Placeholders of instructions.
const (
	promptPlaceholder      = "prompt"
	experimentsPlaceholder = "experiments"
	critiquePlaceholder    = "critique"
)

// Placeholders of [Instruction.Experiment].
const (
	numberPlaceholder   = "number"
	statusPlaceholder   = "status"
	rewardPlaceholder   = "reward"
	messagesPlaceholder = "messages"
	spansPlaceholder    = "spans"
	feedbackPlaceholder = "feedback"
)

var gradientPrompts = []Instruction{
	{User: `The prompt below was given to a language model that works on tasks of one kind.

# Prompt

{prompt}

# What happened

{experiments}

# Your part

Find what in the prompt led to low rewards. Answer with a few bullet points. Each names one change of the prompt that is concrete enough to be tried and checked.`, Experiment: `## Task {number}: {status}, reward {reward}

{messages}
{feedback}`},
	{User: `You improve prompts for a living. This one is under review:

{prompt}

Traces of what a model did with it:

{experiments}

Write "Critique:" and below it three to five bullet points: which rules are missing from the prompt, which come in the wrong order, which form of answer is not asked for.`, Experiment: `Run {number} (status {status}, reward {reward}):
{spans}`},
	{System: `You review a prompt by what came of it. Go through these points and speak of those alone that the runs show to matter:

1. Structure: are the parts separate, and in the order in which they are needed?
2. Instructions: is each of them clear, and possible to follow?
3. Control: does the prompt say when to stop, when to use a tool, what to do when something fails?
4. Input and output: is it said what comes in, and the exact form of what is to go out?
5. Scope: is it said what is not to be done?
6. Length: what can go without loss?
7. Test: by which observation would one see that a change helped?

Take less than 350 words.`, User: `The prompt:

{prompt}

The runs:

{experiments}
`, Experiment: `Run {number}: status {status}, score {reward}
{messages}
{feedback}`},
}

var editPrompts = []Instruction{
	{System: `You rewrite prompts. Take up what the review says; build the prompt anew where that is simpler. Say how to work before you say anything else. State the form of the answer when the review asks for one. Keep every name in braces exactly as it is: a program puts values there. Answer with the new prompt alone, without a word before or after.`, User: `The prompt:

{prompt}

The review:

{critique}`},
	{System: `You mend prompts with a light hand. Choose the one point of the review that matters most and change the prompt for that and nothing else. Length, tone and order stay as they are, and so does every name in braces. Answer with the prompt alone.`, User: `The prompt:

{prompt}

The review:

{critique}`},
}

// validate checks the texts; names are the placeholders that they must have. The
// error begins with what follows on the name of the instruction.
func (in Instruction) validate(names ...string) error {
	if strings.TrimSpace(in.User) == "" {
		return errors.New(".User: must not be empty")
	}
	experiment := []string{numberPlaceholder, statusPlaceholder, rewardPlaceholder, messagesPlaceholder, spansPlaceholder, feedbackPlaceholder}
	for _, part := range [...]struct {
		field, text string
		names       []string
	}{{"System", in.System, names}, {"User", in.User, names}, {"Experiment", in.Experiment, experiment}} {
		for _, p := range fString(part.text).Parts() {
			if p.Name != "" && (p.Text != inBraces(p.Name) || !slices.Contains(part.names, p.Name)) {
				return fmt.Errorf(".%s: placeholder %s: must be one of %s; write {%s} for braces that stay",
					part.field, p.Text, listInBraces(part.names), p.Text)
			}
		}
	}
	used := append(fString(in.System).Placeholders(), fString(in.User).Placeholders()...)
	for _, name := range names {
		if !slices.Contains(used, name) {
			return fmt.Errorf(": lacks the placeholder %s; System and User must use %s", inBraces(name), listInBraces(names))
		}
	}
	if in.Experiment != "" && !slices.Contains(names, experimentsPlaceholder) {
		return errors.New(".Experiment: must be empty; only GradientPrompts tell of experiments")
	}
	return nil
}

func fString(text string) agl.PromptTemplate {
	return agl.PromptTemplate{Template: text, Engine: agl.EngineFString}
}

func inBraces(name string) string { return "{" + name + "}" }

func listInBraces(names []string) string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = inBraces(name)
	}
	return strings.Join(out, ", ")
}

// experiment is a rollout as instructions tell of it.
type experiment struct {
	status   string
	reward   *float64 // nil when there was none
	spans    []agl.Span
	messages any // the model calls among the spans
	feedback []string
}

// gradient makes the chat that asks for a critique.
func (in Instruction) gradient(text string, experiments []experiment) ([]prompt.Message, error) {
	if in.Experiment == "" {
		in.Experiment = gradientPrompts[0].Experiment
	}
	told := make([]string, len(experiments))
	for i, e := range experiments {
		one, err := e.tell(in.Experiment, i)
		if err != nil {
			return nil, fmt.Errorf("experiment %d: %w", i, err)
		}
		told[i] = strings.TrimRight(one, "\n")
	}
	return in.chat(map[string]string{promptPlaceholder: text, experimentsPlaceholder: strings.Join(told, "\n\n")})
}

// edit makes the chat that asks for a new prompt.
func (in Instruction) edit(text, critique string) ([]prompt.Message, error) {
	return in.chat(map[string]string{promptPlaceholder: text, critiquePlaceholder: critique})
}

func (in Instruction) chat(values map[string]string) ([]prompt.Message, error) {
	var out []prompt.Message
	for _, part := range [...]struct{ role, text string }{{prompt.RoleSystem, in.System}, {prompt.RoleUser, in.User}} {
		if part.text == "" {
			continue
		}
		content, err := fString(part.text).Format(values)
		if err != nil {
			return nil, fmt.Errorf("instruction: %w", err)
		}
		out = append(out, prompt.Message{Role: part.role, Content: content})
	}
	return out, nil
}

func (e experiment) tell(template string, number int) (string, error) {
	messages, err := json.Marshal(e.messages)
	if err != nil {
		return "", fmt.Errorf("model calls: %w", err)
	}
	var spans, feedback []string
	for i := range e.spans {
		raw, err := json.Marshal(e.spans[i])
		if err != nil {
			return "", fmt.Errorf("span %s: %w", e.spans[i].SpanID, err)
		}
		spans = append(spans, string(raw))
	}
	for _, f := range e.feedback {
		feedback = append(feedback, "- "+f)
	}
	reward := "none"
	if e.reward != nil {
		reward = strconv.FormatFloat(*e.reward, 'g', -1, 64)
	}
	return fString(template).Format(map[string]string{
		numberPlaceholder: strconv.Itoa(number), statusPlaceholder: e.status, rewardPlaceholder: reward,
		messagesPlaceholder: string(messages), spansPlaceholder: strings.Join(spans, "\n"), feedbackPlaceholder: strings.Join(feedback, "\n"),
	})
}
