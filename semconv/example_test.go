package semconv_test

import (
	"fmt"

	"agentlightning/semconv"
)

// Rewards have dimensions, and each has its own pair of keys.
func Example() {
	fmt.Println(semconv.RewardName(0), "=", semconv.PrimaryReward)
	fmt.Println(semconv.RewardValue(0))
	fmt.Println(semconv.RewardName(1))
	// Output:
	// agentlightning.reward.0.name = primary
	// agentlightning.reward.0.value
	// agentlightning.reward.1.name
}
