package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"agentlightning/learner"
)

// rowTold is a line of the file that a trainer may write: what the policy thought
// of the tokens of a row, in nats.
type rowTold struct {
	Row *int `json:"row"` // from 0, in the order of the rows' files
	// Logprobs has one entry a token of the row. Those off the mask are not looked
	// at, and may be null.
	Logprobs []*float32 `json:"logprobs"`
}

// tell hands on what a trainer wrote of the tokens of rows; one that wrote no
// file has nothing to say. The file is read line by line.
func tell(path string, b learner.Batch) error {
	if b.Trained == nil {
		return nil
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	lines := json.NewDecoder(file)
	seen := make([]bool, len(b.Rows))
	for n := 1; ; n++ {
		var told rowTold
		err := lines.Decode(&told)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d of %s: %w", n, path, err)
		}
		logprobs, err := told.check(b.Rows, seen)
		if err != nil {
			return fmt.Errorf("line %d of %s: %w", n, path, err)
		}
		seen[*told.Row] = true
		b.Trained(*told.Row, logprobs)
	}
}

// check returns the log-probabilities of a row, 0 off the mask.
func (r *rowTold) check(rows []learner.Row, seen []bool) ([]float32, error) {
	switch {
	case r.Row == nil:
		return nil, errors.New("row: must be set")
	case *r.Row < 0 || *r.Row >= len(rows):
		return nil, fmt.Errorf("row %d: must be from 0 to %d", *r.Row, len(rows)-1)
	case seen[*r.Row]:
		return nil, fmt.Errorf("row %d: is there twice", *r.Row)
	case len(r.Logprobs) != len(rows[*r.Row].IDs):
		return nil, fmt.Errorf("logprobs: %d for row %d, which has %d tokens: must be one a token", len(r.Logprobs), *r.Row, len(rows[*r.Row].IDs))
	}
	out := make([]float32, len(r.Logprobs))
	for t := 1; t < len(out); t++ { // nothing predicts the first token
		if rows[*r.Row].Mask[t] == 0 {
			continue
		}
		v := r.Logprobs[t]
		if v == nil {
			return nil, fmt.Errorf("logprobs: token %d of row %d is trained on and has none", t, *r.Row)
		}
		if !(*v <= 0) {
			return nil, fmt.Errorf("logprobs: token %d of row %d has %v: must be a natural logarithm, at most 0", t, *r.Row, *v)
		}
		out[t] = *v
	}
	return out, nil
}
