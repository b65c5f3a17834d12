package learner

import (
	"fmt"
	"math"
)

// Schedule is a learning rate over the steps of a run: a linear rise to Peak
// over Warmup steps, then a linear fall to Final at the last step.
type Schedule struct {
	Peak   float64 // the highest rate; must be > 0
	Final  float64 // the rate of the last step; 0 means Peak, so no fall
	Warmup int     // steps of the rise; 0 means none
}

// Validate returns an error naming the field that is out of range.
func (s Schedule) Validate() error {
	switch {
	case !(s.Peak > 0) || math.IsInf(s.Peak, 0):
		return fmt.Errorf("Peak: %v: must be greater than 0", s.Peak)
	case !(s.Final >= 0) || math.IsInf(s.Final, 0):
		return fmt.Errorf("Final: %v: must not be negative", s.Final)
	case s.Warmup < 0:
		return fmt.Errorf("Warmup: %d: must not be negative", s.Warmup)
	}
	return nil
}

// At returns the rate of step (counted from 1) of steps.
func (s Schedule) At(step, steps int) float64 {
	if step <= s.Warmup {
		return s.Peak * float64(step) / float64(s.Warmup)
	}
	if s.Final == 0 || steps <= s.Warmup+1 {
		return s.Peak
	}
	done := float64(step-s.Warmup-1) / float64(steps-s.Warmup-1)
	return s.Peak + (s.Final-s.Peak)*math.Min(done, 1)
}
