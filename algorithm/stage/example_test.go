package stage_test

import (
	"context"
	"fmt"
	"time"

	"agentlightning/algorithm/stage"
)

func Example() {
	w := stage.New(stage.Config{Warn: -1, Limit: 50 * time.Millisecond})
	err := w.Do(context.Background(), stage.Collect, func(ctx context.Context) error {
		stage.Progress(ctx, "3 of 16 rollouts finished")
		<-ctx.Done() // for a runner that never comes
		return context.Cause(ctx)
	})
	fmt.Println(err)
	// Output:
	// stage collect makes no progress: nothing moved for 0s, it began 0s ago; the last thing that happened: 3 of 16 rollouts finished; the limit is reached
}
