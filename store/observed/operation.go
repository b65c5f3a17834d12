package observed

// operation is one method of the contract.
type operation int

const (
	opEnqueueRollouts operation = iota
	opDequeueRollouts
	opReleaseRollouts
	opStartRollout
	opRollout
	opQueryRollouts
	opUpdateRollout
	opWaitForRollouts
	opWaitForCount
	opStartAttempt
	opQueryAttempts
	opLatestAttempt
	opUpdateAttempt
	opAddSpans
	opNextSequenceIDs
	opQuerySpans
	opAddResources
	opUpdateResources
	opResources
	opLatestResources
	opQueryResources
	opUpdateWorker
	opWorker
	opQueryWorkers
	opCreateRun
	opUpdateRun
	opRun
	opRuns
	opAddStepMetrics
	opStepMetrics
	opPutCheckpoint
	opLatestCheckpoint
	opCheckpoints
	opAddLogLines
	opRunLog
	opDeleteRun
	opPutModels
	opReplaceModels
	opDeleteModels
	opModels
	opCreateControlled
	opUpdateControlled
	opDeleteRollout
	opResolveAttempt
	opAddEvent
	opEventAttempts
	opCompletions
	opStatistics
	operations // how many there are
)

// names are what the protocol calls the operations; those of our own are called alike.
var names = [operations]string{
	opEnqueueRollouts:  "enqueue_many_rollouts",
	opDequeueRollouts:  "dequeue_many_rollouts",
	opReleaseRollouts:  "release_rollouts",
	opStartRollout:     "start_rollout",
	opRollout:          "get_rollout_by_id",
	opQueryRollouts:    "query_rollouts",
	opUpdateRollout:    "update_rollout",
	opWaitForRollouts:  "wait_for_rollouts",
	opWaitForCount:     "wait_for_count",
	opStartAttempt:     "start_attempt",
	opQueryAttempts:    "query_attempts",
	opLatestAttempt:    "get_latest_attempt",
	opUpdateAttempt:    "update_attempt",
	opAddSpans:         "add_many_spans",
	opNextSequenceIDs:  "get_many_span_sequence_ids",
	opQuerySpans:       "query_spans",
	opAddResources:     "add_resources",
	opUpdateResources:  "update_resources",
	opResources:        "get_resources_by_id",
	opLatestResources:  "get_latest_resources",
	opQueryResources:   "query_resources",
	opUpdateWorker:     "update_worker",
	opWorker:           "get_worker_by_id",
	opQueryWorkers:     "query_workers",
	opCreateRun:        "create_run",
	opUpdateRun:        "update_run",
	opRun:              "get_run_by_id",
	opRuns:             "query_runs",
	opAddStepMetrics:   "add_step_metrics",
	opStepMetrics:      "query_step_metrics",
	opPutCheckpoint:    "put_checkpoint",
	opLatestCheckpoint: "get_latest_checkpoint",
	opCheckpoints:      "query_checkpoints",
	opAddLogLines:      "add_log_lines",
	opRunLog:           "query_run_log",
	opDeleteRun:        "delete_run",
	opPutModels:        "put_models",
	opReplaceModels:    "replace_models",
	opDeleteModels:     "delete_models",
	opModels:           "query_models",
	opCreateControlled: "create_controlled",
	opUpdateControlled: "update_controlled",
	opDeleteRollout:    "delete_rollout",
	opResolveAttempt:   "resolve_attempt",
	opAddEvent:         "add_event",
	opEventAttempts:    "query_event_attempts",
	opCompletions:      "query_completions",
	opStatistics:       "statistics",
}

// String returns the name that the protocol gives an operation.
func (o operation) String() string { return names[o] }
