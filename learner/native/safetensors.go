package native

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

// namedTensor is one float32 tensor of a safetensors file.
type namedTensor struct {
	name  string
	shape []int
	data  []float32
}

// tensorHeader is the JSON of one tensor in the header of a file.
type tensorHeader struct {
	Dtype   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// maxTensorHeader bounds the header that is believed; the format's own readers
// use the same limit.
const maxTensorHeader = 100 << 20

// writeTensors writes a safetensors file and syncs it to disk.
func writeTensors(path string, tensors []namedTensor, metadata map[string]string) (err error) {
	header := make(map[string]any, len(tensors)+1)
	header["__metadata__"] = metadata
	var off int64
	for _, t := range tensors {
		end := off + 4*int64(len(t.data))
		header[t.name] = tensorHeader{Dtype: "F32", Shape: t.shape, Offsets: [2]int64{off, end}}
		off = end
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := binary.Write(w, binary.LittleEndian, uint64(len(text))); err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	var b [4]byte
	for _, t := range tensors {
		for _, v := range t.data {
			binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
			if _, err := w.Write(b[:]); err != nil {
				return err
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

// readTensors reads a safetensors file of float32 tensors.
func readTensors(path string) (map[string]namedTensor, map[string]string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	tensors, metadata, err := parseTensors(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	return tensors, metadata, nil
}

func parseTensors(raw []byte) (map[string]namedTensor, map[string]string, error) {
	if len(raw) < 8 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	size := binary.LittleEndian.Uint64(raw)
	if size > maxTensorHeader || size > uint64(len(raw)-8) {
		return nil, nil, fmt.Errorf("header of %d bytes in a file of %d", size, len(raw))
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(raw[8:8+size], &header); err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	var metadata map[string]string
	if m, ok := header["__metadata__"]; ok {
		if err := json.Unmarshal(m, &metadata); err != nil {
			return nil, nil, fmt.Errorf("metadata: %w", err)
		}
		delete(header, "__metadata__")
	}
	body := raw[8+size:]
	tensors := make(map[string]namedTensor, len(header))
	for name, text := range header {
		t, err := parseTensor(name, text, body)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		tensors[name] = t
	}
	return tensors, metadata, nil
}

func parseTensor(name string, text json.RawMessage, body []byte) (namedTensor, error) {
	var h tensorHeader
	if err := json.Unmarshal(text, &h); err != nil {
		return namedTensor{}, err
	}
	if h.Dtype != "F32" {
		return namedTensor{}, fmt.Errorf("type is %s: only F32 is read", h.Dtype)
	}
	from, to := h.Offsets[0], h.Offsets[1]
	if from < 0 || to < from || to > int64(len(body)) || (to-from)%4 != 0 {
		return namedTensor{}, fmt.Errorf("bytes %d to %d of %d", from, to, len(body))
	}
	n := (to - from) / 4
	want := int64(1)
	for _, d := range h.Shape {
		if d < 0 || d > 0 && want > n/int64(d) {
			return namedTensor{}, fmt.Errorf("shape %v does not fit %d numbers", h.Shape, n)
		}
		want *= int64(d)
	}
	if want != n {
		return namedTensor{}, fmt.Errorf("shape %v does not fit %d numbers", h.Shape, n)
	}
	t := namedTensor{name: name, shape: slices.Clone(h.Shape), data: make([]float32, n)}
	for i := range t.data {
		t.data[i] = math.Float32frombits(binary.LittleEndian.Uint32(body[from+4*int64(i):]))
	}
	return t, nil
}
