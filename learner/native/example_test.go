package native_test

import (
	"context"
	"fmt"
	"os"

	"agentlightning/learner"
	"agentlightning/learner/native"
)

// A model learns one conversation by heart and repeats it.
func Example() {
	if err := repeatByHeart(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	// Output: calc(3+4) stop
}

func repeatByHeart(ctx context.Context) error {
	tok := native.NewTokenizer([]string{" sum", " of"})
	m, err := native.New(native.Config{Dim: 32, Heads: 2, Context: 32, Seed: 1}, tok)
	if err != nil {
		return err
	}
	defer m.Close()

	ids, mask, err := tok.Render([]native.Message{
		{Role: native.RoleUser, Text: "the sum of 3 and 4?"},
		{Role: native.RoleAssistant, Text: "calc(3+4)"},
	})
	if err != nil {
		return err
	}
	batch := learner.Batch{
		Rows:    []learner.Row{{IDs: ids, Mask: mask}},
		Options: learner.Options{Objective: learner.Imitation, LearningRate: 0.01, Epochs: 40},
	}
	if _, err := m.Update(ctx, batch); err != nil {
		return err
	}

	prompt, err := tok.Prompt([]native.Message{{Role: native.RoleUser, Text: "the sum of 3 and 4?"}})
	if err != nil {
		return err
	}
	res, err := m.Generate(ctx, native.Request{Prompt: prompt})
	if err != nil {
		return err
	}
	fmt.Println(tok.Decode(res.IDs()), res.FinishReason)
	return nil
}
