package tracking_test

import (
	"bytes"
	"fmt"

	agl "agentlightning"
	"agentlightning/tracking"
)

// A run becomes an event file that TensorBoard shows.
func ExampleWriteEvents() {
	run := &tracking.Run{
		Run:     agl.Run{RunID: "run-0123456789ab", StartTime: 1_700_000_000},
		Metrics: []agl.StepMetrics{{Step: 1, Values: map[string]float64{"training/reward": 0.5}}},
	}
	var file bytes.Buffer
	if err := tracking.WriteEvents(&file, run); err != nil {
		fmt.Println(err)
		return
	}
	events, err := tracking.ReadEvents(&file)
	if err != nil {
		fmt.Println(err)
		return
	}
	last := events[len(events)-1]
	fmt.Println(tracking.EventFileName(run), last.Step, last.Scalars)
	// Output: events.out.tfevents.1700000000.agl.run-0123456789ab 1 map[training/reward:0.5]
}
