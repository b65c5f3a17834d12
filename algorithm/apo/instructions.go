package apo

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

	"agentlightning/algorithm/prompt"
)

var functions = template.FuncMap{
	"json": func(v any) (string, error) {
		raw, err := json.Marshal(v)
		return string(raw), err
	},
}

var gradientPrompts = []Instruction{
	{User: `The prompt below was given to a language model that works on tasks of one kind.

# Prompt

{{.Prompt}}

# What happened
{{range $i, $e := .Experiments}}
## Task {{$i}}: {{$e.Status}}, reward {{with $e.Reward}}{{.}}{{else}}none{{end}}

{{json $e.Messages}}
{{range $e.Feedback}}- {{.}}
{{end}}{{end}}
# Your part

Find what in the prompt led to low rewards. Answer with a few bullet points. Each names one change of the prompt that is concrete enough to be tried and checked.`},
	{User: `You improve prompts for a living. This one is under review:

{{.Prompt}}

Traces of what a model did with it:
{{range $i, $e := .Experiments}}
Run {{$i}} (status {{$e.Status}}, reward {{with $e.Reward}}{{.}}{{else}}none{{end}}):
{{range $e.Spans}}{{json .}}
{{end}}{{end}}
Write "Critique:" and below it three to five bullet points: which rules are missing from the prompt, which come in the wrong order, which form of answer is not asked for.`},
	{System: `You review a prompt by what came of it. Go through these points and speak of those alone that the runs show to matter:

1. Structure: are the parts separate, and in the order in which they are needed?
2. Instructions: is each of them clear, and possible to follow?
3. Control: does the prompt say when to stop, when to use a tool, what to do when something fails?
4. Input and output: is it said what comes in, and the exact form of what is to go out?
5. Scope: is it said what is not to be done?
6. Length: what can go without loss?
7. Test: by which observation would one see that a change helped?

Take less than 350 words.`, User: `The prompt:

{{.Prompt}}

The runs:
{{range $i, $e := .Experiments}}
Run {{$i}}: status {{$e.Status}}, score {{with $e.Reward}}{{.}}{{else}}none{{end}}
{{json $e.Messages}}
{{range $e.Feedback}}- {{.}}
{{end}}{{end}}`},
}

var editPrompts = []Instruction{
	{System: `You rewrite prompts. Take up what the review says; build the prompt anew where that is simpler. Say how to work before you say anything else. State the form of the answer when the review asks for one. Keep every name in braces exactly as it is: a program puts values there. Answer with the new prompt alone, without a word before or after.`, User: `The prompt:

{{.Prompt}}

The review:

{{.Critique}}`},
	{System: `You mend prompts with a light hand. Choose the one point of the review that matters most and change the prompt for that and nothing else. Length, tone and order stay as they are, and so does every name in braces. Answer with the prompt alone.`, User: `The prompt:

{{.Prompt}}

The review:

{{.Critique}}`},
}

// render makes the chat of an instruction.
func render(in Instruction, data any) ([]prompt.Message, error) {
	var out []prompt.Message
	for _, part := range [...]struct{ role, text string }{{prompt.RoleSystem, in.System}, {prompt.RoleUser, in.User}} {
		if part.text == "" {
			continue
		}
		t, err := template.New(part.role).Funcs(functions).Parse(part.text)
		if err != nil {
			return nil, fmt.Errorf("instruction: %w", err)
		}
		var b strings.Builder
		if err := t.Execute(&b, data); err != nil {
			return nil, fmt.Errorf("instruction: %w", err)
		}
		out = append(out, prompt.Message{Role: part.role, Content: b.String()})
	}
	return out, nil
}
