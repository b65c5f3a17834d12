package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"agentlightning/emit"
	"agentlightning/tracer"
)

// traces opens a trace as a runner does for each attempt, lets an agent work in
// it, and prints what was recorded.
func traces(ctx context.Context, out io.Writer) error {
	// With a store as Config.Sink the spans would also be written there.
	inTrace, trace := tracer.New(tracer.Config{}).Start(ctx, "", "")
	worked := cook(inTrace)
	spans, err := trace.End(ctx)
	if worked != nil {
		return worked
	}
	if err != nil {
		return err
	}
	names := map[string]string{}
	for i := range spans {
		names[spans[i].SpanID] = spans[i].Name
	}
	for i := range spans {
		s := &spans[i]
		fmt.Fprintf(out, "%d %s", s.SequenceID, s.Name)
		if s.ParentID != nil {
			fmt.Fprintf(out, " in %s", names[*s.ParentID])
		}
		fmt.Fprintln(out)
		for _, a := range s.Attributes {
			fmt.Fprintf(out, "    %s = %v\n", a.Key, a.Value)
		}
	}
	return nil
}

// cook is the agent. All that it needs is the context.
func cook(ctx context.Context) error {
	if err := emit.Message(ctx, "looking for a recipe"); err != nil {
		return err
	}
	found, err := emit.Do(ctx, "search", func(ctx context.Context) ([]string, error) {
		// Any code that makes OpenTelemetry spans through the context is recorded.
		_, span := tracer.OTel(ctx).Start(ctx, "open cookbook")
		defer span.End()
		var soups []string
		for _, title := range []string{"bean soup", "apple pie", "leek soup"} {
			if strings.HasSuffix(title, "soup") {
				soups = append(soups, title)
			}
		}
		return soups, nil
	}, emit.Attr("query", "soup"))
	if err != nil {
		return err
	}
	return emit.Reward(ctx, float64(len(found))/3, emit.Tag("recall"))
}
