package algorithm

import "strings"

// Names under which runs record what most algorithms have in common.
const (
	MetricReward           = "training/reward"            // mean reward of the rollouts trained on
	MetricValidationReward = "val/reward"                 // mean reward on the validation tasks
	MetricRollouts         = "training/n_rollouts"        // asked for in the step, validation included
	MetricFailed           = "training/n_rollouts_failed" // of these, failed or not rewarded
	MetricStepSeconds      = "timing_s/step"
	MetricRolloutSeconds   = "timing_s/gen" // of waiting for rollouts
	MetricSampledTokens    = "training/n_sampled_tokens"
)

// recordedNames are the names of trackers (those of verl, which Agent Lightning
// has kept) for what steps and learners call by short ones.
var recordedNames = map[string]string{
	"reward":              MetricReward,
	"reward_std":          "training/reward_std",
	"accuracy":            MetricValidationReward,
	"validation_failed":   "val/n_rollouts_failed",
	"rollouts":            MetricRollouts,
	"rollouts_failed":     MetricFailed,
	"rollouts_per_second": "perf/rollouts_per_second",
	"rows":                "training/n_sample",
	"rows_dropped":        "training/n_triplets_dropped_remainder",
	"calls":               "training/n_turns",
	"prefix_mismatches":   "training/n_trace_merge_mismatch_rows",
	"sampled_tokens":      MetricSampledTokens,
	"groups":              "training/n_groups",
	"groups_constant":     "training/n_zero_adv_groups",
	"tokens":              "perf/total_num_tokens",
	"seconds":             MetricStepSeconds,
	"seconds_rollouts":    MetricRolloutSeconds,
	"seconds_update":      "timing_s/update_actor",
	"grad_norm":           "actor/grad_norm",
	"lr":                  "actor/lr",
	"entropy":             "actor/entropy_loss",
	"clip_fraction":       "actor/pg_clipfrac",
	"dual_clip_fraction":  "actor/pg_clipfrac_lower",
	"approx_kl":           "actor/ppo_kl",
	"reference_kl":        "actor/kl_loss",
	"reward_kl":           "actor/reward_kl_penalty",
	"value_loss":          "critic/vf_loss",
}

// MetricName is the name under which a run of an algorithm, by its name, records
// a metric. One that has a section already, as in val/reward, keeps its name;
// one that trackers have no name for is in the section training.
func MetricName(algorithm, short string) string {
	if strings.Contains(short, "/") {
		return short
	}
	if short == "loss" && algorithm == "pg" {
		return "actor/pg_loss"
	}
	if name, ok := recordedNames[short]; ok {
		return name
	}
	return "training/" + short
}
