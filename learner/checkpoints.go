package learner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Checkpoints keeps the checkpoints of one run in a folder: the newest two and
// the one with the best score.
type Checkpoints struct {
	// Dir is the folder; it is created with the first checkpoint.
	Dir string

	best      float64
	bestStep  int
	haveScore bool
}

// kept is how many of the newest checkpoints stay.
const kept = 2

// Save writes a checkpoint of step and removes those that are no longer kept.
// It returns the folder that was written. A nil score leaves the best one as it
// is. Not safe for concurrent use.
func (c *Checkpoints) Save(ctx context.Context, l Learner, step int, score *float64) (string, error) {
	dir := c.path(step)
	if err := l.Save(ctx, dir); err != nil {
		return "", fmt.Errorf("checkpoint of step %d: %w", step, err)
	}
	if score != nil {
		c.Rate(step, *score)
	}
	return dir, c.prune()
}

// Rate tells the score of a step whose checkpoint was saved without one. What is
// no longer the best is removed with the next save.
func (c *Checkpoints) Rate(step int, score float64) {
	if !c.haveScore || score > c.best {
		c.best, c.bestStep, c.haveScore = score, step, true
	}
}

// Restore tells which checkpoint was the best before a run was resumed.
func (c *Checkpoints) Restore(step int, score float64) {
	c.best, c.bestStep, c.haveScore = score, step, true
}

// Best returns the step with the best score so far.
func (c *Checkpoints) Best() (step int, score float64, ok bool) {
	return c.bestStep, c.best, c.haveScore
}

// Path returns where the checkpoint of a step is, if it is kept.
func (c *Checkpoints) Path(step int) string { return c.path(step) }

func (c *Checkpoints) path(step int) string {
	return filepath.Join(c.Dir, fmt.Sprintf("step-%06d", step))
}

func (c *Checkpoints) prune() error {
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return fmt.Errorf("checkpoints: %w", err)
	}
	var steps []int
	for _, e := range entries {
		if digits, ok := strings.CutPrefix(e.Name(), "step-"); ok {
			if n, err := strconv.Atoi(digits); err == nil {
				steps = append(steps, n)
			}
		}
	}
	slices.Sort(steps)
	var failures []error
	for i, step := range steps {
		if i >= len(steps)-kept || c.haveScore && step == c.bestStep {
			continue
		}
		failures = append(failures, os.RemoveAll(c.path(step)))
	}
	return errors.Join(failures...)
}
