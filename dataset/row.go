package dataset

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/parquet-go/parquet-go"

	"agentlightning/adapter"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/learner"
)

// Row is one training row: token ids and what belongs to each of them. Logprobs
// and Advantages may be empty, when there are none.
type Row struct {
	RolloutID string   `json:"rollout_id" parquet:"rollout_id"`
	Group     string   `json:"group" parquet:"group"`
	Reward    *float64 `json:"reward" parquet:"reward,optional"` // final, of the rollout
	// PromptLength is the number of ids before the first answer.
	PromptLength int64     `json:"prompt_length" parquet:"prompt_length"`
	IDs          []int32   `json:"input_ids" parquet:"input_ids,list"`
	Mask         []float32 `json:"loss_mask" parquet:"loss_mask,list"`   // 1 on sampled tokens, 0 elsewhere
	Logprobs     []float32 `json:"logprobs" parquet:"logprobs,list"`     // natural, of the policy that sampled; 0 elsewhere
	Advantages   []float32 `json:"advantages" parquet:"advantages,list"` // of each sampled token; 0 elsewhere
}

// Rows makes the rows of a rollout. calls are what [credit.Assign] gave its
// calls, or nil for rows without advantages; calls that are not used are context
// in the rows of others, and a row without a used one is left out.
func Rows(r *credit.Rollout, calls []credit.Credited) []Row {
	plain := make([]adapter.Call, len(r.Calls))
	for i := range r.Calls {
		plain[i] = r.Calls[i].Call
	}
	trajectories, _ := adapter.Trajectories(plain, adapter.TrajectoryConfig{})
	var out []Row
	for _, t := range trajectories {
		row := Row{
			RolloutID: r.ID, Group: r.Group, Reward: r.Final, PromptLength: int64(t.PromptLength),
			IDs: t.IDs, Mask: t.Mask, Logprobs: t.Logprobs,
		}
		sampled := false
		if calls != nil {
			row.Advantages = make([]float32, len(t.IDs))
		}
		for i, m := range t.Mask {
			if m == 0 {
				continue
			}
			if calls != nil {
				c := calls[t.Origin[i]]
				if !c.Used {
					row.Mask[i] = 0
					continue
				}
				row.Advantages[i] = float32(c.Advantage)
			}
			sampled = true
		}
		if sampled {
			out = append(out, row)
		}
	}
	return out
}

// Learner returns the row as learners take it.
func (r *Row) Learner() learner.Row {
	return learner.Row{IDs: r.IDs, Mask: r.Mask, Logprobs: r.Logprobs, Advantages: r.Advantages, Rollout: r.RolloutID}
}

// Validate returns an error naming the column that does not fit the others.
func (r *Row) Validate() error {
	n := len(r.IDs)
	if n == 0 {
		return errors.New("input_ids: is empty")
	}
	for i, id := range r.IDs {
		if id < 0 {
			return fmt.Errorf("input_ids: %d at %d: must not be negative", id, i)
		}
	}
	if r.PromptLength < 0 || r.PromptLength > int64(n) {
		return fmt.Errorf("prompt_length: %d: must be between 0 and the %d ids of the row", r.PromptLength, n)
	}
	for _, c := range []struct {
		name     string
		values   []float32
		optional bool
	}{{"loss_mask", r.Mask, false}, {"logprobs", r.Logprobs, true}, {"advantages", r.Advantages, true}} {
		if len(c.values) != n && !(c.optional && len(c.values) == 0) {
			return fmt.Errorf("%s: %d values for %d ids", c.name, len(c.values), n)
		}
		for i, v := range c.values {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("%s: %v at %d: must be finite", c.name, v, i)
			}
		}
	}
	return nil
}

// WriteParquet writes rows as a Parquet file.
func WriteParquet(w io.Writer, rows []Row) error {
	out := parquet.NewGenericWriter[Row](w, parquet.Compression(&parquet.Zstd))
	for i := range rows {
		if err := rows[i].Validate(); err != nil {
			return fmt.Errorf("row %d: %w", i+1, err)
		}
	}
	if _, err := out.Write(rows); err != nil {
		return err
	}
	return out.Close()
}

// ReadParquet reads what [WriteParquet] wrote, or others did under the same
// names; name stands for the file in errors. A row that breaks a rule is named by
// its number, from 1.
func ReadParquet(r io.ReaderAt, size int64, name string) (rows []Row, err error) {
	defer guard(name, &err)
	file, err := openParquet(r, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, column := range []string{"input_ids", "loss_mask"} {
		if file.Root().Column(column) == nil {
			return nil, fmt.Errorf("%s: there is no column %s", name, column)
		}
	}
	in := parquet.NewGenericReader[Row](file)
	defer func() { err = errors.Join(err, in.Close()) }()
	for {
		// A page at a time: how many rows a broken file claims to have means nothing.
		page := make([]Row, 256)
		n, err := in.Read(page)
		for i := range page[:n] {
			if err := page[i].Validate(); err != nil {
				return nil, &algorithm.LineError{File: name, Line: len(rows) + i + 1, Err: err}
			}
		}
		rows = append(rows, page[:n]...)
		switch {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			return nil, &algorithm.LineError{File: name, Line: len(rows) + 1, Err: err}
		case n == 0:
			return nil, &algorithm.LineError{File: name, Line: len(rows) + 1, Err: io.ErrNoProgress}
		}
	}
}

// openParquet opens a file whose footer fits into it. The library takes the word
// of the file for how long its footer is, and sets aside as much memory.
func openParquet(r io.ReaderAt, size int64) (*parquet.File, error) {
	var tail [8]byte // length of the footer, magic
	if size < 12 {
		return nil, errors.New("the file is too short to be a Parquet file")
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil {
		return nil, err
	}
	if string(tail[4:]) != "PAR1" {
		return nil, errors.New("the file does not end as a Parquet file does; it may be cut off or encrypted")
	}
	if n := int64(binary.LittleEndian.Uint32(tail[:4])); n > size-12 {
		return nil, fmt.Errorf("the footer is said to have %d bytes, more than the file", n)
	}
	return parquet.OpenFile(r, size)
}

// guard turns a panic over a file that is broken in a way that its library does
// not expect into an error.
func guard(name string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: the Parquet file is broken: %v", name, p)
	}
}

// WriteRows writes one row a line as JSON.
func WriteRows(w io.Writer, rows []Row) error {
	for i := range rows {
		if err := rows[i].Validate(); err != nil {
			return fmt.Errorf("row %d: %w", i+1, err)
		}
		if err := json.NewEncoder(w).Encode(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// ReadRows reads what [WriteRows] wrote.
func ReadRows(r io.Reader, name string) ([]Row, error) {
	return readLines(r, name, func(row *Row) error { return row.Validate() })
}
