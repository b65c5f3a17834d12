package rl_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Tolerances of the recordings: integers, ids, masks and orders are compared
// exactly, float32 to 1e-6, and bfloat16, which nothing here rounds to, to one
// hundredth.
const (
	exact    = "exact"
	absolute = "1e-6"
	both     = "1e-6 in float32, 1e-2 of the value in bfloat16"
)

// covered says which test, by its folder and name, covers the cases of a
// recorded file, and which of them none does.
var covered = map[string]struct {
	cases     int
	tests     []string
	tolerance string
	leftOut   map[string]string // by name of the case or the beginning of it
}{
	"advantage_estimators.json":      {78, []string{"rl/TestVectorAdvantages"}, both, nil},
	"rollout_level_advantage.json":   {36, []string{"rl/TestVectorRolloutAdvantages"}, both, nil},
	"per_rollout_normalisation.json": {13, []string{"rl/TestVectorNormalisation"}, both, nil},
	"policy_loss.json":               {20, []string{"rl/TestVectorLoss"}, absolute, nil},
	"rollout_correction.json":        {8, []string{"rl/TestVectorCorrection"}, absolute, nil},
	"group_helpers.json":             {5, []string{"rl/TestVectorGroups"}, exact, nil},
	"batch_rounding.json":            {6, []string{"rl/TestVectorMinibatches"}, exact, nil},
	"end_to_end.json":                {1, []string{"rl/TestVectorEndToEnd"}, both + ", its loss 2e-2", nil},
	"lifecycle_metrics.json":         {1, []string{"algorithm/pg/TestVectorTiming"}, "1e-12", nil},
	"async_group_collection.json":    {7, []string{"algorithm/pg/TestVectorAsyncGroups"}, exact, nil},
	"trajectory_aggregation.json": {
		cases: 23, tests: []string{"adapter/TestVectorRows", "algorithm/pg/TestVectorOrder"}, tolerance: absolute,
		leftOut: map[string]string{"unknown_level": "how calls are joined is a Go constant; there is no other one to refuse"},
	},
	"v1_0_2_additions.json": {
		cases: 8, tests: []string{"adapter/TestVectorRows"}, tolerance: absolute,
		leftOut: map[string]string{"routed_experts/": "no learner replays the routes of experts; they are kept as they came, see TestRoutedExpertVectors"},
	},
	"events_to_triplets.json": {
		cases: 22, tests: []string{"gateway/TestTripletVectors", "algorithm/pg/TestVectorTurns"}, tolerance: exact,
		leftOut: map[string]string{
			"duplicate_prompt_keeps_last":       "in the view of the protocol as recorded; training reads both calls, see TestVectorTurns",
			"later_empty_retry_hides_good_call": "the same",
			"bad_last_reward_hides_earlier":     "the same, for rewards",
		},
	},
	"events_v1_0_2.json": {7, []string{"gateway/TestTripletVectors", "gateway/TestRoutedExpertVectors"}, exact, nil},
	"padding.json": {
		cases: 4, tests: nil, tolerance: exact,
		leftOut: map[string]string{"": "rows keep their lengths; whoever makes tensors of them pads"},
	},
}

// TestEveryVectorIsCovered holds the list above to what was recorded: no file,
// case or test is missing.
func TestEveryVectorIsCovered(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "testdata", "vectors", "rl", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range files {
		name := filepath.Base(path)
		names = append(names, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := count(t, text); got != covered[name].cases {
			t.Errorf("%s: %d cases, %d are listed", name, got, covered[name].cases)
		}
		for part, why := range covered[name].leftOut {
			if !strings.Contains(string(text), `"`+part) || why == "" {
				t.Errorf("%s: case %q is not there, or left out without a reason", name, part)
			}
		}
		if len(covered[name].tests) == 0 && covered[name].leftOut[""] == "" {
			t.Errorf("%s: no test, and no reason why", name)
		}
		for _, test := range covered[name].tests {
			folder, function := filepath.Split(test)
			if !declares(t, filepath.Join("..", folder), "func "+function+"(t *testing.T)") {
				t.Errorf("%s: there is no %s", name, test)
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(covered)), slices.Sorted(slices.Values(names))); diff != "" {
		t.Errorf("files (-listed +recorded):\n%s", diff)
	}
}

// count is how many cases a file has; one without a list of them is one.
func count(t *testing.T, text []byte) int {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, list := range []string{"cases", "new_groups_per_step", "triplet_cases_that_changed", "superseded_routed_experts"} {
		var cases []json.RawMessage
		if members[list] != nil {
			if err := json.Unmarshal(members[list], &cases); err != nil {
				t.Fatal(err)
			}
		}
		n += len(cases)
	}
	return max(n, 1)
}

func declares(t *testing.T, folder, function string) bool {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(sources, func(path string) bool {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), function)
	})
}
