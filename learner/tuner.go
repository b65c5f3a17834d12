package learner

import (
	"context"
	"fmt"

	agl "agentlightning"
)

// Tuner is a service that makes a new model of conversations: what hosted
// fine-tuning offers. It takes no token ids and no advantages, so it is no
// [Learner]; [agentlightning/algorithm/finetune] trains with one.
//
// Training takes hours and costs money, so it is in two parts. Methods are safe
// for concurrent use.
type Tuner interface {
	// Start hands a job to the service and returns as soon as it is accepted. The
	// same job, by another process too, is handed over once: a second call returns
	// the ticket of the first, even when the first never saw an answer.
	Start(ctx context.Context, job TuningJob) (Ticket, error)
	// Wait returns the new model when it can be called. It may be called again
	// for a ticket, by another process too. report, which may be nil, is called
	// with what happens, from the goroutine of Wait. A job that the service gave
	// up is a [*TuningError].
	Wait(ctx context.Context, ticket Ticket, report func(TuningProgress)) (Tuned, error)
}

// TuningJob is what a model is made of.
type TuningJob struct {
	// Key tells jobs apart that have the same data, such as the iteration of a
	// run; may be empty.
	Key string
	// Model is what is tuned, by the service's name; empty means the model of the
	// tuner's configuration.
	Model string
	// Training are conversations as OpenAI's fine-tuning takes them, one JSON
	// object a line; required. Validation are others to measure by; may be empty.
	Training, Validation []byte
}

// Ticket is how a service knows a job. Its JSON is meant to be kept.
type Ticket struct {
	ID  string `json:"id"`  // of the job, by the service
	Key string `json:"key"` // of the work, by us
}

// TuningProgress is one thing that happened to a job.
type TuningProgress struct {
	Status  string // as the service says it
	Message string // in the service's words; empty when only the status changed
	Metrics Metrics
}

// Tuned is a model that was made.
type Tuned struct {
	// Model is the service's name of the new model, for the next job to begin
	// with.
	Model string `json:"model"`
	// Backend is how the proxy calls it; its Name is empty.
	Backend agl.Model `json:"backend"`
	// TrainedTokens are those that the service bills.
	TrainedTokens int64 `json:"trained_tokens"`
	// Cost is what they cost, when the tuner was told a price; 0 otherwise.
	Cost float64 `json:"cost"`
	// Metrics are the last values of what the service measured.
	Metrics Metrics `json:"metrics"`
}

// TuningError is a job that ended without a model.
type TuningError struct {
	ID     string // of the job
	Status string // failed or cancelled
	// Code and Param are the service's; either may be empty.
	Code, Param string
	Message     string // the service's words
}

func (e *TuningError) Error() string {
	text := fmt.Sprintf("fine-tuning job %s %s", e.ID, e.Status)
	if e.Message != "" {
		text += ": " + e.Message
	}
	switch {
	case e.Code != "" && e.Param != "":
		text += fmt.Sprintf(" (%s, %s)", e.Code, e.Param)
	case e.Code != "" || e.Param != "":
		text += " (" + e.Code + e.Param + ")"
	}
	return text
}
