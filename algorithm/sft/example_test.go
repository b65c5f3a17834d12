package sft_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"agentlightning/algorithm"
	"agentlightning/algorithm/sft"
	"agentlightning/learner"
	"agentlightning/learner/native"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// A small model learns one sentence by heart.
func Example() {
	tok := native.NewTokenizer(nil)
	model, err := native.New(native.Config{Dim: 32, Layers: 1, Heads: 2, Hidden: 64, Context: 16, Seed: 1}, tok)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer model.Close()
	ids := append(tok.Encode("good morning"), native.EndToken)
	row := learner.Row{IDs: ids, Mask: make([]float32, len(ids))}
	for i := range ids {
		row.Mask[i] = 1
	}
	train, err := sft.New(sft.Config{
		Learner: model, Steps: 60, LearningRate: learner.Schedule{Peak: 0.02},
		Rows: func(int, *rand.Rand) []learner.Row { return []learner.Row{row} },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	st := engine.New(memory.New(), engine.Config{})
	defer st.Close()
	if err := train.Run(context.Background(), algorithm.Env{Store: st, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		fmt.Println(err)
		return
	}
	answer, err := model.Generate(context.Background(), native.Request{Prompt: tok.Encode("good"), MaxTokens: 12})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%q\n", tok.Decode(answer.IDs()))
	// Output: " morning"
}
