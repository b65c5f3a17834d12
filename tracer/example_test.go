package tracer_test

import (
	"context"
	"fmt"

	"agentlightning/tracer"
)

// A trace without ids belongs to no attempt; it is how code that is traced is
// tried out.
func Example() {
	t := tracer.New(tracer.Config{})
	ctx, trace := t.Start(context.Background(), "", "")

	searchCtx, search := tracer.OTel(ctx).Start(ctx, "search")
	_, fetch := tracer.OTel(searchCtx).Start(searchCtx, "fetch")
	fetch.End()
	search.End()

	spans, err := trace.End(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range spans {
		fmt.Println(s.SequenceID, s.Name, s.ParentID != nil)
	}
	// Output:
	// 1 fetch true
	// 2 search false
}
