package rescore_test

import (
	"context"
	"fmt"

	agl "agentlightning"
	"agentlightning/rescore"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// A new reward function is tried on what is stored; the old rewards stay.
func ExampleRun() {
	ctx := context.Background()
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	r, err := s.StartRollout(ctx, store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: []byte(`"a long question"`)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.UpdateAttempt(ctx, r.RolloutID, r.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}); err != nil {
		fmt.Println(err)
		return
	}
	summary, err := rescore.Run(ctx, rescore.Config{
		Store: s, Set: "by-length",
		Scorer: rescore.Func{Name: "length", Of: func(_ context.Context, a *rescore.Attempt) (float64, error) {
			return float64(len(a.Input)), nil
		}},
		Each: func(ctx context.Context, visit func(*agl.AttemptedRollout) error) error {
			page, err := s.QueryRollouts(ctx, store.RolloutQuery{})
			for i := range page.Items {
				if err := visit(&page.Items[i]); err != nil {
					return err
				}
			}
			return err
		},
	})
	fmt.Println(summary.Scored, *summary.MeanNew, err)
	// Output: 1 17 <nil>
}
