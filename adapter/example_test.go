package adapter_test

import (
	"fmt"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/semconv"
)

// What one attempt left in the store: a call that can be trained on, one that
// the caller broke off, and the reward at the end.
func attemptSpans() []agl.Span {
	return []agl.Span{
		{SpanID: "a", SequenceID: 1, Name: semconv.SpanModelCall, Attributes: agl.Attributes{
			{Key: semconv.PromptTokenIDs, Value: []int64{1, 2, 3}},
			{Key: semconv.ResponseTokenIDs, Value: []int64{19, 17}},
			{Key: semconv.ResponseLogprobs, Value: []float64{-0.25, -0.5}},
			{Key: semconv.GenAIResponseID, Value: "c1"},
		}},
		{SpanID: "b", SequenceID: 2, Name: semconv.SpanModelCall, Attributes: agl.Attributes{
			{Key: semconv.PromptTokenIDs, Value: []int64{1, 2, 3, 19, 17, 4}},
			{Key: semconv.CallProblem, Value: semconv.ProblemCancelled},
		}},
		{SpanID: "r", SequenceID: 3, Name: semconv.SpanAnnotation, Attributes: agl.Attributes{
			{Key: semconv.RewardName(0), Value: semconv.PrimaryReward},
			{Key: semconv.RewardValue(0), Value: 1.0},
		}},
	}
}

func Example() {
	spans := attemptSpans()
	calls, err := adapter.Calls(spans)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range calls {
		if !c.Usable() {
			fmt.Println(c.SpanID, "is left out:", c.Problem)
			continue
		}
		fmt.Println(c.SpanID, c.PromptIDs, c.ResponseIDs, c.Logprobs)
	}
	final, err := adapter.Final(spans)
	if err != nil || final == nil {
		fmt.Println("no reward", err)
		return
	}
	fmt.Println("reward", *final)
	// Output:
	// a [1 2 3] [19 17] [-0.25 -0.5]
	// b is left out: cancelled
	// reward 1
}

// The second call goes on where the first ended, behind the result of a tool;
// the third came back with an answer that was tokenised again.
func ExampleTrajectories() {
	rows, mismatches := adapter.Trajectories([]adapter.Call{
		{PromptIDs: []int32{1, 2}, ResponseIDs: []int32{3, 4}},
		{PromptIDs: []int32{1, 2, 3, 4, 9}, ResponseIDs: []int32{5}},
		{PromptIDs: []int32{1, 2, 34, 9, 5, 9}, ResponseIDs: []int32{6}},
	}, adapter.TrajectoryConfig{})
	for _, r := range rows {
		fmt.Println("calls", r.Calls, "ids", r.IDs, "mask", r.Mask)
	}
	for _, m := range mismatches {
		fmt.Printf("call %d has id %d at %d where the %s of call %d has %d\n", m.Call, m.Got, m.Position, m.Where, m.With, m.Want)
	}
	// Output:
	// calls [0 1] ids [1 2 3 4 9 5] mask [0 0 1 1 0 1]
	// calls [2] ids [1 2 34 9 5 9 6] mask [0 0 0 0 0 0 1]
	// call 2 has id 34 at 2 where the answer of call 0 has 3
}

func ExampleTracerTriplets() {
	start, end := 1.0, 2.0
	spans := attemptSpans()[:1]
	spans[0].StartTime, spans[0].EndTime = &start, &end
	triplets, err := adapter.TracerTriplets(spans, adapter.TracerOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(triplets[0].Prompt))
	fmt.Println(string(triplets[0].Response))
	// Output:
	// {"token_ids":[1,2,3],"raw_content":null,"image_urls":[]}
	// {"token_ids":[19,17],"raw_content":null}
}
