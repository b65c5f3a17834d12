package dataset

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"agentlightning/algorithm"
)

// LoadTasks reads the tasks of a file, each a JSON object: JSONL from *.jsonl and
// *.ndjson, CSV from *.csv, Parquet from *.parquet. The error of a bad row is an
// [*algorithm.LineError] that names file, row and rule.
//
// In CSV the first line has the names of the members. A column of which every
// cell that is not empty is a number becomes numbers, one of true and false
// booleans, any other texts; empty cells are null in the first two and "" in
// texts. Numbers are what JSON calls one: 007 and 1e are texts.
func LoadTasks(path string) ([]json.RawMessage, error) {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".jsonl", ".ndjson":
		return algorithm.LoadJSONL(path)
	case ".csv", ".parquet":
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("data set: %w", err)
		}
		defer func() { _ = f.Close() }() // only read
		if ext == ".csv" {
			return ReadCSV(f, path)
		}
		info, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("data set: %w", err)
		}
		return ReadParquetTasks(f, info.Size(), path)
	default:
		return nil, fmt.Errorf("data set %s: files that end in %q are not read: must be .jsonl, .ndjson, .csv or .parquet", path, ext)
	}
}

// ReadCSV is [LoadTasks] for CSV from a stream; name stands for it in errors.
func ReadCSV(r io.Reader, name string) ([]json.RawMessage, error) {
	buffered := bufio.NewReader(r)
	if mark, _ := buffered.Peek(3); bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		if _, err := buffered.Discard(3); err != nil { // spreadsheets write one
			return nil, err
		}
	}
	in := csv.NewReader(buffered)
	header, err := in.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("data set %s: the file is empty; the first line must name the columns", name)
	}
	if err != nil {
		return nil, csvError(name, err)
	}
	seen := map[string]bool{}
	for i, column := range header {
		if column == "" || seen[column] {
			return nil, &algorithm.LineError{File: name, Line: 1, Err: fmt.Errorf("column %d: name %q: must not be empty or repeated", i+1, column)}
		}
		seen[column] = true
	}
	var records [][]string
	for {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, csvError(name, err)
		}
		for i, cell := range record {
			if !utf8.ValidString(cell) {
				line, _ := in.FieldPos(i)
				return nil, &algorithm.LineError{File: name, Line: line, Err: fmt.Errorf("column %q is not UTF-8", header[i])}
			}
		}
		records = append(records, record)
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("data set %s: there are no tasks in it; below the names of the columns each line must hold one", name)
	}
	return objects(header, records)
}

func csvError(name string, err error) error {
	if p, ok := errors.AsType[*csv.ParseError](err); ok {
		return &algorithm.LineError{File: name, Line: p.Line, Err: p.Err}
	}
	return fmt.Errorf("data set %s: %w", name, err)
}

// kind is what the cells of a column are.
type kind int

const (
	numbers kind = iota
	booleans
	texts
)

func kindOf(records [][]string, column int) kind {
	number, boolean, some := true, true, false
	for _, r := range records {
		cell := r[column]
		if cell == "" {
			continue
		}
		some = true
		number = number && isNumber(cell)
		boolean = boolean && (cell == "true" || cell == "false")
	}
	switch {
	case some && number:
		return numbers
	case some && boolean:
		return booleans
	}
	return texts
}

func isNumber(cell string) bool {
	return (cell[0] == '-' || cell[0] >= '0' && cell[0] <= '9') && json.Valid([]byte(cell))
}

func objects(header []string, records [][]string) ([]json.RawMessage, error) {
	kinds := make([]kind, len(header))
	names := make([][]byte, len(header))
	for i := range header {
		kinds[i] = kindOf(records, i)
		var err error
		if names[i], err = json.Marshal(header[i]); err != nil {
			return nil, err
		}
	}
	out := make([]json.RawMessage, len(records))
	for n, r := range records {
		var b bytes.Buffer
		b.WriteByte('{')
		for i, cell := range r {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(names[i])
			b.WriteByte(':')
			switch {
			case kinds[i] == texts:
				text, err := json.Marshal(cell)
				if err != nil {
					return nil, err
				}
				b.Write(text)
			case cell == "":
				b.WriteString("null")
			default:
				b.WriteString(cell)
			}
		}
		b.WriteByte('}')
		out[n] = b.Bytes()
	}
	return out, nil
}

// ReadParquetTasks is [LoadTasks] for Parquet. Columns become members; numbers
// that JSON cannot hold are an error that names the row.
func ReadParquetTasks(r io.ReaderAt, size int64, name string) (tasks []json.RawMessage, err error) {
	defer guard(name, &err)
	file, err := openParquet(r, size)
	if err != nil {
		return nil, fmt.Errorf("data set %s: %w", name, err)
	}
	in := parquet.NewGenericReader[any](file, file.Schema())
	defer func() { err = errors.Join(err, in.Close()) }()
	if in.NumRows() == 0 {
		return nil, fmt.Errorf("data set %s: there are no tasks in it", name)
	}
	rows := make([]any, 256)
	for {
		n, err := in.Read(rows)
		for _, row := range rows[:n] {
			line := len(tasks) + 1
			if err := encodable(row, ""); err != nil {
				return nil, &algorithm.LineError{File: name, Line: line, Err: err}
			}
			task, err := json.Marshal(row)
			if err != nil {
				return nil, &algorithm.LineError{File: name, Line: line, Err: err}
			}
			tasks = append(tasks, task)
		}
		switch {
		case errors.Is(err, io.EOF):
			return tasks, nil
		case err != nil:
			return nil, &algorithm.LineError{File: name, Line: len(tasks) + 1, Err: err}
		case n == 0:
			return nil, &algorithm.LineError{File: name, Line: len(tasks) + 1, Err: io.ErrNoProgress}
		}
	}
}

// encodable returns an error naming the first value that JSON cannot hold as it
// is.
func encodable(v any, path string) error {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if err := encodable(x, path+"."+k); err != nil {
				return err
			}
		}
	case []any:
		for i, x := range v {
			if err := encodable(x, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("column %s: %v: JSON has no such number", strings.TrimPrefix(path, "."), v)
		}
	case float32:
		return encodable(float64(v), path)
	case string:
		if !utf8.ValidString(v) {
			return fmt.Errorf("column %s: the text is not UTF-8", strings.TrimPrefix(path, "."))
		}
	case nil, bool, int, int32, int64, uint32, uint64, []byte, time.Time:
	}
	return nil
}
