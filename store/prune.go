package store

import "context"

// Pruner is what a [Store] may offer to make room: deleting rollouts that ended
// long ago, with their attempts and spans, and the lines in the logs of runs that
// did. What has not ended is never deleted, however old it is; neither are
// resources, workers, model backends, and runs with their metrics and
// checkpoints, which later rollouts refer to.
type Pruner interface {
	// Prunable tells what [Pruner.Prune] would delete now. Looking takes a moment
	// for every ten thousand rollouts and holds up nobody. When ctx ends before
	// all was looked at, what was seen is returned with its error.
	Prunable(ctx context.Context, before float64) (Prunable, error)
	// Prune deletes what ended before a moment, in Unix seconds. It goes by many
	// small transactions, each with whole rollouts or one log; after each, told
	// hears of all that was deleted so far. An error of told, or the end of ctx,
	// ends the work there: what is deleted stays deleted.
	Prune(ctx context.Context, before float64, told func(Pruned) error) (Pruned, error)
}

// Pruned counts what was deleted, or would be.
type Pruned struct {
	Rollouts, Attempts, Spans int64
	LogLines                  int64 // in the logs of runs
	// Bytes is about what they take in the database; of what would be deleted it
	// is an estimate from a sample when there is much.
	Bytes int64
}

// Prunable says what would be deleted and what stays.
type Prunable struct {
	Pruned
	// Oldest and Newest are when the first and the last of the rollouts that would
	// be deleted ended, in Unix seconds; nil when there are none.
	Oldest, Newest *float64
	// Looked is how many rollouts were looked at: all, unless the time ran out.
	Looked int64
	// Open and Later are the rollouts that stay: not ended yet, and ended since.
	Open, Later int64
	// Runs, Resources and Workers stay, all of them; of runs that ended before, the
	// logs are emptied.
	Runs, Resources, Workers int64
}
