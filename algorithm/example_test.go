package algorithm_test

import (
	"fmt"
	"strings"

	"agentlightning/algorithm"
)

func ExampleReadJSONL() {
	tasks, err := algorithm.ReadJSONL(strings.NewReader(`{"question":"2+3"}
{"question":"7*6"}
`), "train.jsonl")
	fmt.Println(len(tasks), err)

	_, err = algorithm.ReadJSONL(strings.NewReader(`{"question":"2+3"}
{"question":"7*6"
`), "train.jsonl")
	fmt.Println(err)
	// Output:
	// 2 <nil>
	// train.jsonl:2: the JSON object does not end; a task must be on one line
}

func ExampleBatches() {
	visited := 0
	for batch := range algorithm.Batches(5, 2, 42) {
		visited += len(batch)
		if visited == 10 { // two passes
			break
		}
	}
	fmt.Println(visited)
	// Output: 10
}
