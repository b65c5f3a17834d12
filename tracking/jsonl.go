package tracking

import (
	"encoding/json"
	"io"

	agl "agentlightning"
)

// Line is a line of a JSONL export: its kind, the run that it is of, and one of
// the others.
type Line struct {
	Kind       string           `json:"kind"` // run, metrics, checkpoint or sample
	RunID      string           `json:"run_id"`
	Run        *agl.Run         `json:"run,omitempty"`
	Metrics    *agl.StepMetrics `json:"metrics,omitempty"`
	Checkpoint *agl.Checkpoint  `json:"checkpoint,omitempty"`
	Sample     *Sample          `json:"sample,omitempty"`
}

// WriteJSONL writes a run as JSON lines: the run, the metrics of every step, the
// checkpoints. Samples are added by the caller with [WriteLine].
func WriteJSONL(w io.Writer, r *Run) error {
	if err := WriteLine(w, Line{Kind: "run", RunID: r.RunID, Run: &r.Run}); err != nil {
		return err
	}
	for i := range r.Metrics {
		if err := WriteLine(w, Line{Kind: "metrics", RunID: r.RunID, Metrics: &r.Metrics[i]}); err != nil {
			return err
		}
	}
	for i := range r.Checkpoints {
		if err := WriteLine(w, Line{Kind: "checkpoint", RunID: r.RunID, Checkpoint: &r.Checkpoints[i]}); err != nil {
			return err
		}
	}
	return nil
}

// WriteLine writes one line.
func WriteLine(w io.Writer, line Line) error { return json.NewEncoder(w).Encode(line) }
