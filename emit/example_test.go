package emit_test

import (
	"context"
	"fmt"

	"agentlightning/emit"
	"agentlightning/tracer"
)

func Example() {
	// A runner opens the trace; an agent only passes the context on.
	ctx, trace := tracer.New(tracer.Config{}).Start(context.Background(), "", "")

	if err := emit.Message(ctx, "looking for a recipe"); err != nil {
		fmt.Println(err)
	}
	found, err := emit.Do(ctx, "search", func(context.Context) ([]string, error) {
		return []string{"soup", "stew"}, nil
	}, emit.Attr("cookbook", map[string]any{"pages": 300}))
	if err != nil {
		fmt.Println(err)
	}
	if err := emit.Reward(ctx, float64(len(found))/4, emit.Tag("recall")); err != nil {
		fmt.Println(err)
	}

	spans, err := trace.End(ctx)
	if err != nil {
		fmt.Println(err)
	}
	for _, s := range spans {
		fmt.Println(s.Name, string(s.Attributes.AppendJSON(nil)))
	}
	// Output:
	// agentlightning.message {"agentlightning.message.body":"looking for a recipe"}
	// agentlightning.operation {"cookbook.pages":300,"agentlightning.operation.name":"search","agentlightning.operation.output":["soup","stew"]}
	// agentlightning.annotation {"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":0.5,"agentlightning.tag.0":"recall"}
}

func ExampleLinkSpan() {
	core, err := emit.RewardCore(1, emit.LinkSpan("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(core.Attributes.Get("agentlightning.link.1.value_match"))
	// Output: 00f067aa0ba902b7 true
}
