// Package tracking reads the runs of algorithms as people and other trackers
// want them: [Read] gathers what a store has of a run, [Compare] puts several
// side by side, and the exports write JSON lines ([WriteJSONL]), the event files
// of TensorBoard ([WriteEvents]), and runs on an MLflow server ([MLflow]).
//
// Metrics have the names of [agentlightning/algorithm.MetricName].
package tracking
