package tracking

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of the messages in event files, by number (tensorflow/core/util/event.proto,
// framework/summary.proto, framework/tensor.proto).
const (
	eventWallTime    = 1
	eventStep        = 2
	eventFileVersion = 3
	eventSummary     = 5

	summaryValue = 1

	valueTag      = 1
	valueSimple   = 2
	valueTensor   = 8
	valueMetadata = 9

	metadataPlugin = 1
	pluginName     = 1

	tensorType   = 1
	tensorShape  = 2
	tensorString = 8

	shapeDim     = 2
	dimSize      = 1
	tensorOfText = 7 // DT_STRING
)

// fileVersion is what the first record of an event file says.
const fileVersion = "brain.Event:2"

// EventFileName is the name under which TensorBoard finds an event file.
func EventFileName(r *Run) string {
	return fmt.Sprintf("events.out.tfevents.%d.agl.%s", int64(r.StartTime), r.RunID)
}

// WriteEvents writes a run as an event file of TensorBoard: every metric as a
// scalar under its name, its configuration as a text. Values are rounded to 32
// bits, as the format has them.
func WriteEvents(w io.Writer, r *Run) error {
	var event []byte
	event = appendDouble(event, eventWallTime, r.StartTime)
	event = protowire.AppendTag(event, eventFileVersion, protowire.BytesType)
	event = protowire.AppendString(event, fileVersion)
	if err := writeRecord(w, event); err != nil {
		return err
	}
	if err := writeRecord(w, summaryEvent(r.StartTime, 0, textValue("run", r.describe()))); err != nil {
		return err
	}
	for _, m := range r.Metrics {
		var summary []byte
		for _, name := range slices.Sorted(maps.Keys(m.Values)) {
			var value []byte
			value = protowire.AppendTag(value, valueTag, protowire.BytesType)
			value = protowire.AppendString(value, name)
			value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
			value = protowire.AppendFixed32(value, math.Float32bits(float32(m.Values[name])))
			summary = appendMessage(summary, summaryValue, value)
		}
		if err := writeRecord(w, summaryEvent(m.Time, m.Step, summary)); err != nil {
			return err
		}
	}
	return nil
}

// describe is the run as a Markdown table.
func (r *Run) describe() string {
	var b strings.Builder
	b.WriteString("| | |\n|---|---|\n")
	row := func(key, value string) {
		fmt.Fprintf(&b, "| %s | %s |\n", cell(key), cell(value))
	}
	row("run", r.RunID)
	row("algorithm", r.Algorithm)
	row("seed", strconv.FormatInt(r.Seed, 10))
	row("status", string(r.Status))
	if r.Error != "" {
		row("error", r.Error)
	}
	row("code_version", r.CodeVersion)
	for _, p := range r.Params {
		row(p.Key, p.Value)
	}
	return b.String()
}

func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "\r", " ").Replace(text)
}

// textValue is a summary of one text, for the text plugin.
func textValue(tag, text string) []byte {
	plugin := protowire.AppendTag(nil, pluginName, protowire.BytesType)
	plugin = protowire.AppendString(plugin, "text")
	metadata := appendMessage(nil, metadataPlugin, plugin)

	dim := protowire.AppendTag(nil, dimSize, protowire.VarintType)
	dim = protowire.AppendVarint(dim, 1)
	tensor := protowire.AppendTag(nil, tensorType, protowire.VarintType)
	tensor = protowire.AppendVarint(tensor, tensorOfText)
	tensor = appendMessage(tensor, tensorShape, appendMessage(nil, shapeDim, dim))
	tensor = appendMessage(tensor, tensorString, []byte(text))

	value := protowire.AppendTag(nil, valueTag, protowire.BytesType)
	value = protowire.AppendString(value, tag+"/text_summary")
	value = appendMessage(value, valueTensor, tensor)
	value = appendMessage(value, valueMetadata, metadata)
	return appendMessage(nil, summaryValue, value)
}

func summaryEvent(at float64, step int, summary []byte) []byte {
	event := appendDouble(nil, eventWallTime, at)
	event = protowire.AppendTag(event, eventStep, protowire.VarintType)
	event = protowire.AppendVarint(event, uint64(int64(step)))
	return appendMessage(event, eventSummary, summary)
}

func appendDouble(to []byte, field protowire.Number, v float64) []byte {
	to = protowire.AppendTag(to, field, protowire.Fixed64Type)
	return protowire.AppendFixed64(to, math.Float64bits(v))
}

func appendMessage(to []byte, field protowire.Number, message []byte) []byte {
	to = protowire.AppendTag(to, field, protowire.BytesType)
	return protowire.AppendBytes(to, message)
}

// maskedCRC is the checksum of TFRecord files: CRC-32C, rotated and shifted, so
// that a checksum of data that holds checksums stays a good one.
func maskedCRC(data []byte) uint32 {
	crc := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// writeRecord writes a TFRecord: the length with its checksum, the data with its.
func writeRecord(w io.Writer, data []byte) error {
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	head = binary.LittleEndian.AppendUint32(head, maskedCRC(head))
	record := append(head, data...)
	record = binary.LittleEndian.AppendUint32(record, maskedCRC(data))
	_, err := w.Write(record)
	return err
}

// Event is one event of an event file.
type Event struct {
	Time        float64
	Step        int64
	FileVersion string             // of the first one
	Scalars     map[string]float32 // by tag
	Texts       map[string]string  // by tag
}

// errBroken is the error of a file that is none, or was cut off.
var errBroken = errors.New("the event file is broken")

// maxRecord bounds the length of one record, in bytes.
const maxRecord = 64 << 20

// ReadEvents reads an event file, whoever wrote it, as far as [Event] has it.
func ReadEvents(r io.Reader) ([]Event, error) {
	in := bufio.NewReader(r)
	var out []Event
	for n := 1; ; n++ {
		record, err := readRecord(in)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		var event Event
		if err == nil {
			event, err = parseEvent(record)
		}
		if err != nil {
			return out, fmt.Errorf("record %d: %w", n, err)
		}
		out = append(out, event)
	}
}

// readRecord returns io.EOF at the end of the file.
func readRecord(in io.Reader) ([]byte, error) {
	var head [12]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	if binary.LittleEndian.Uint32(head[8:]) != maskedCRC(head[:8]) {
		return nil, fmt.Errorf("%w: the checksum of a length is wrong", errBroken)
	}
	length := binary.LittleEndian.Uint64(head[:8])
	if length > maxRecord {
		return nil, fmt.Errorf("%w: a record of %d bytes", errBroken, length)
	}
	data := make([]byte, length+4)
	if _, err := io.ReadFull(in, data); err != nil {
		return nil, fmt.Errorf("%w: it ends within a record", errBroken)
	}
	if binary.LittleEndian.Uint32(data[length:]) != maskedCRC(data[:length]) {
		return nil, fmt.Errorf("%w: the checksum of a record is wrong", errBroken)
	}
	return data[:length], nil
}

// fields calls visit with the fields of a message.
func fields(message []byte, visit func(field protowire.Number, number uint64, data []byte) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("%w: %w", errBroken, protowire.ParseError(n))
		}
		message = message[n:]
		var number uint64
		var data []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(message)
		case protowire.Fixed64Type:
			number, n = protowire.ConsumeFixed64(message)
		case protowire.Fixed32Type:
			var short uint32
			short, n = protowire.ConsumeFixed32(message)
			number = uint64(short)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(field, kind, message)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", errBroken, protowire.ParseError(n))
		}
		message = message[n:]
		if err := visit(field, number, data); err != nil {
			return err
		}
	}
	return nil
}

func parseEvent(message []byte) (Event, error) {
	var e Event
	err := fields(message, func(field protowire.Number, number uint64, data []byte) error {
		switch int(field) {
		case eventWallTime:
			e.Time = math.Float64frombits(number)
		case eventStep:
			e.Step = int64(number)
		case eventFileVersion:
			e.FileVersion = string(data)
		case eventSummary:
			return fields(data, func(_ protowire.Number, _ uint64, value []byte) error { return e.addValue(value) })
		}
		return nil
	})
	return e, err
}

func (e *Event) addValue(value []byte) error {
	var tag, text string
	var scalar *float32
	err := fields(value, func(field protowire.Number, number uint64, data []byte) error {
		switch int(field) {
		case valueTag:
			tag = string(data)
		case valueSimple:
			scalar = new(math.Float32frombits(uint32(number)))
		case valueTensor:
			return fields(data, func(field protowire.Number, _ uint64, data []byte) error {
				if field == tensorString {
					text = string(data)
				}
				return nil
			})
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case scalar != nil:
		if e.Scalars == nil {
			e.Scalars = map[string]float32{}
		}
		e.Scalars[tag] = *scalar
	case text != "":
		if e.Texts == nil {
			e.Texts = map[string]string{}
		}
		e.Texts[tag] = text
	}
	return nil
}
