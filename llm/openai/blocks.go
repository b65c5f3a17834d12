package openai

import (
	"bytes"
	"fmt"
	"strconv"

	"agentlightning/internal/jsonx"
)

// BlockKind says what a block holds.
type BlockKind uint8

// The kinds of blocks, in the order in which a whole answer has them.
const (
	ReasoningBlock BlockKind = iota + 1
	TextBlock
	RefusalBlock
	ToolCallBlock
)

// Block is a part of an answer that is told without interruption.
type Block struct {
	Kind BlockKind
	// ID and Name are those of a tool call.
	ID, Name string
}

// BlockWriter is told of blocks, one after the other.
type BlockWriter interface {
	BeginBlock(b Block)
	// AddToBlock adds to the block that has begun. The text is a JSON string
	// that is not empty, valid during the call.
	AddToBlock(text []byte)
	EndBlock()
}

// Blocks puts what a stream says into blocks for the dialects that know only
// one open part at a time. Text is handed on as it comes, and so are the
// arguments of a tool call. Where a backend tells of several calls at once,
// one is told to its end first, which is where its arguments are whole, and
// the others wait.
type Blocks struct {
	w       BlockWriter
	current block
	waiting []block      // in the order in which they began
	ended   map[int]bool // tool calls that were told
	any     bool
}

type block struct {
	kind     BlockKind // 0 for none
	call     int       // index of a tool call
	id, name string
	begun    bool   // the writer knows of it
	text     []byte // the inside of a JSON string: what came before it begins
	scan     valueScan
}

// NewBlocks returns blocks that are told to w.
func NewBlocks(w BlockWriter) *Blocks { return &Blocks{w: w, ended: map[int]bool{}} }

// Any reports whether there was a block.
func (b *Blocks) Any() bool { return b.any }

// Add takes in what a chunk says.
func (b *Blocks) Add(c *ChoiceDelta) error {
	for _, part := range [...]struct {
		kind BlockKind
		text []byte
	}{{ReasoningBlock, c.Reasoning}, {TextBlock, c.Content}, {RefusalBlock, c.Refusal}} {
		if len(part.text) > len(`""`) {
			b.put(block{kind: part.kind}, part.text)
		}
	}
	for i := range c.ToolCalls {
		call := &c.ToolCalls[i]
		if b.ended[call.Index] {
			text, _ := jsonx.Text(call.Arguments)
			if call.Arguments != nil && len(bytes.TrimSpace([]byte(text))) > 0 {
				return fmt.Errorf("tool call %d goes on after its arguments were whole, with %s", call.Index, clip(call.Arguments))
			}
			continue
		}
		if call.ID == "" && call.Name == "" && len(call.Arguments) <= len(`""`) {
			continue // nothing is said of it
		}
		b.put(block{kind: ToolCallBlock, call: call.Index, id: call.ID, name: call.Name}, call.Arguments)
	}
	return nil
}

// Finish ends what is open.
func (b *Blocks) Finish() {
	for b.leave(); b.next(); b.leave() {
	}
}

// put adds a text to the block that is like what.
func (b *Blocks) put(what block, text []byte) {
	switch at := b.find(what); {
	case at != nil:
		at.learn(what)
		b.add(at, text)
	case len(b.waiting) > 0 || !b.mayLeave():
		b.waiting = append(b.waiting, what)
		b.add(&b.waiting[len(b.waiting)-1], text)
	default:
		b.leave()
		b.current = what
		b.add(&b.current, text)
	}
	for len(b.waiting) > 0 && b.mayLeave() {
		b.leave()
		b.next()
	}
}

// learn takes in the id and name of a tool call. They come before its arguments;
// some backends repeat them with each piece of those.
func (b *block) learn(what block) {
	if b.begun || len(b.text) > 0 {
		return
	}
	if b.id == "" {
		b.id = what.id
	}
	b.name += what.name
}

func (b *Blocks) find(what block) *block {
	if b.current.kind == what.kind && b.current.call == what.call {
		return &b.current
	}
	for i := range b.waiting {
		if b.waiting[i].kind == what.kind && b.waiting[i].call == what.call {
			return &b.waiting[i]
		}
	}
	return nil
}

// add adds a text to a block, which the writer is told when it is the current
// one. A tool call begins with its arguments: until then its name may grow.
func (b *Blocks) add(to *block, text []byte) {
	if len(text) <= len(`""`) {
		return
	}
	if to.kind == ToolCallBlock {
		to.scan.add(text)
	}
	if to != &b.current {
		to.text = append(to.text, text[1:len(text)-1]...)
		return
	}
	b.begin()
	b.w.AddToBlock(text)
}

func (b *Blocks) begin() {
	if b.current.begun {
		return
	}
	b.current.begun, b.any = true, true
	b.w.BeginBlock(Block{Kind: b.current.kind, ID: b.current.id, Name: b.current.name})
}

// mayLeave reports whether another block may begin: unless a tool call has
// arguments to come.
func (b *Blocks) mayLeave() bool { return b.current.kind != ToolCallBlock || b.current.scan.whole() }

// leave ends the current block.
func (b *Blocks) leave() {
	if b.current.kind == 0 {
		return
	}
	b.begin()
	b.w.EndBlock()
	if b.current.kind == ToolCallBlock {
		b.ended[b.current.call] = true
	}
	b.current = block{}
}

// next begins the block that has waited longest; false when there is none.
func (b *Blocks) next() bool {
	if len(b.waiting) == 0 {
		return false
	}
	b.current = b.waiting[0]
	b.waiting = b.waiting[1:]
	if text := b.current.text; len(text) > 0 {
		b.current.text = nil
		b.begin()
		b.w.AddToBlock(append(append([]byte{'"'}, text...), '"'))
	}
	return true
}

// CallID returns the id of a tool call, one made of its place where the
// backend gave none: callers answer calls by their id.
func CallID(id, answer string, place int) string {
	if id != "" {
		return id
	}
	return "call_" + answer + "_" + strconv.Itoa(place)
}

// valueScan follows a text that comes in pieces and knows when it is a whole
// object or list.
type valueScan struct {
	depth            int
	begun, str, skip bool
}

// add takes in a JSON string that holds the next piece.
func (s *valueScan) add(text []byte) {
	piece, _ := jsonx.Text(text)
	for i := range len(piece) {
		c := piece[i]
		switch {
		case s.skip:
			s.skip = false
		case s.str:
			s.skip, s.str = c == '\\', c != '"'
		case c == '"':
			s.str = true
		case c == '{', c == '[':
			s.depth++
			s.begun = true
		case c == '}', c == ']':
			s.depth--
		}
	}
}

func (s *valueScan) whole() bool { return s.begun && s.depth <= 0 && !s.str }
