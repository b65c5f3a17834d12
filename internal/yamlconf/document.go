// Package yamlconf reads a YAML file into Go structs, strictly: a key that the
// struct does not have is an error that names its line and the nearest keys there
// are, a value that does not fit names its line and what would. Values can be set
// from the command line as dotted.key=VALUE, and every value knows where it came
// from.
//
// A field is called by its yaml tag, otherwise its json tag, otherwise its name
// in snake case.
package yamlconf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Kind is what a node is.
type Kind int

// The kinds of nodes.
const (
	Null Kind = iota
	Scalar
	List
	Map
)

// Node is a value of a document. Nil stands for one that is not there.
type Node struct {
	Kind Kind
	// Path is where it stands, as stages.0.algorithm; empty for the document.
	Path string
	// Origin is where it came from: file and line, or the command line.
	Origin string

	value   any    // of a scalar: string, bool, int64, uint64 or float64
	text    string // of a scalar from the command line, as it was written
	command bool   // from the command line
	items   []*Node
	keys    []string
	byKey   map[string]*Node
	short   *Node // of a map: the value that stood here before it got keys
}

// CommandLine is the origin of what was set as dotted.key=VALUE.
const CommandLine = "command line"

// Parse reads a document; name stands for the file.
func Parse(name string, text []byte) (*Node, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, syntaxError(name, err)
	}
	p := parsing{name: name, anchors: map[string]ast.Node{}}
	var docs []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil {
			docs = append(docs, d.Body)
		}
	}
	if len(docs) > 1 {
		return nil, fmt.Errorf("%s:%d: there is a second document; keep one", name, docs[1].GetToken().Position.Line)
	}
	if len(docs) == 0 {
		return &Node{Kind: Map, Origin: name, byKey: map[string]*Node{}}, nil
	}
	root, err := p.node(docs[0], "", 0)
	if err != nil {
		return nil, err
	}
	if root.Kind != Map {
		return nil, fmt.Errorf("%s: must be keys with values", root.Origin)
	}
	return root, nil
}

// syntaxError puts the parser's first line, which has line and column, behind
// the name of the file.
func syntaxError(name string, err error) error {
	first, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
	return fmt.Errorf("%s: not YAML: %s", name, first)
}

// parsing turns the tree of the YAML library into ours.
type parsing struct {
	name    string
	anchors map[string]ast.Node
}

// deepest bounds how deep a document may be nested, aliases followed.
const deepest = 50

func (p *parsing) node(n ast.Node, path string, depth int) (*Node, error) {
	out := &Node{Path: path, Origin: p.name}
	if n == nil {
		return out, nil
	}
	if t := n.GetToken(); t != nil {
		out.Origin = fmt.Sprintf("%s:%d", p.name, t.Position.Line)
	}
	if depth > deepest {
		return nil, fmt.Errorf("%s: nested too deep", out.Origin)
	}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.StringNode:
		out.Kind, out.value = Scalar, n.Value
	case *ast.LiteralNode:
		out.Kind, out.value = Scalar, n.Value.Value
	case *ast.BoolNode:
		out.Kind, out.value = Scalar, n.Value
	case *ast.IntegerNode:
		out.Kind, out.value = Scalar, n.Value
	case *ast.FloatNode:
		out.Kind, out.value = Scalar, n.Value
	case *ast.InfinityNode:
		out.Kind, out.value = Scalar, n.Value
	case *ast.AnchorNode:
		p.anchors[n.Name.GetToken().Value] = n.Value
		return p.node(n.Value, path, depth+1)
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		target, ok := p.anchors[name]
		if !ok {
			return nil, fmt.Errorf("%s: %s: there is no anchor &%s before it", out.Origin, path, name)
		}
		return p.node(target, path, depth+1)
	case *ast.SequenceNode:
		out.Kind = List
		for i, v := range n.Values {
			item, err := p.node(v, join(path, strconv.Itoa(i)), depth+1)
			if err != nil {
				return nil, err
			}
			out.items = append(out.items, item)
		}
	case *ast.MappingNode:
		return out, p.members(out, n.Values, depth)
	case *ast.MappingValueNode: // a map of one key
		return out, p.members(out, []*ast.MappingValueNode{n}, depth)
	default:
		return nil, fmt.Errorf("%s: %s: %s is not read here", out.Origin, path, n.Type())
	}
	return out, nil
}

func (p *parsing) members(out *Node, values []*ast.MappingValueNode, depth int) error {
	out.Kind, out.byKey = Map, map[string]*Node{}
	for _, v := range values {
		if v.Key.IsMergeKey() {
			return fmt.Errorf("%s:%d: the merge key << is not read here; write the keys out", p.name, v.Key.GetToken().Position.Line)
		}
		key := v.Key.GetToken().Value
		line := v.Key.GetToken().Position.Line
		if out.byKey[key] != nil {
			return fmt.Errorf("%s:%d: %s: the key is there twice, the first time at %s", p.name, line, join(out.Path, key), out.byKey[key].Origin)
		}
		child, err := p.node(v.Value, join(out.Path, key), depth+1)
		if err != nil {
			return err
		}
		// The line of the key is where people look.
		child.Origin = fmt.Sprintf("%s:%d", p.name, line)
		out.put(key, child)
	}
	return nil
}

func (n *Node) put(key string, child *Node) {
	if n.byKey[key] == nil {
		n.keys = append(n.keys, key)
	}
	n.byKey[key] = child
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Key returns the member of a map, nil when it is not there.
func (n *Node) Key(name string) *Node {
	if n == nil {
		return nil
	}
	return n.byKey[name]
}

// Short returns the value of a map that was written short, nil when there is none.
func (n *Node) Short() *Node {
	if n.Kind == Scalar {
		return n
	}
	return n.short
}

// Without returns the map without a key, and without what it was written short as.
func (n *Node) Without(name string) *Node {
	out := *n
	out.short, out.keys, out.byKey = nil, nil, map[string]*Node{}
	for _, k := range n.keys {
		if k != name {
			out.put(k, n.byKey[k])
		}
	}
	return &out
}

// Text returns a scalar as text, "" for what is not one.
func (n *Node) Text() string {
	switch {
	case n == nil || n.Kind != Scalar:
		return ""
	case n.command:
		return n.text
	}
	return fmt.Sprint(n.value)
}

// Errorf returns an error that says where the value came from and where it
// stands.
func (n *Node) Errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", n.Origin, n.Path, fmt.Errorf(format, args...))
}

// Set puts dotted.key=VALUE into the document, in place of what was there. VALUE
// is YAML; the field that it is decoded into says what it is. Items of lists are
// numbers from 0; the next one appends.
func (n *Node) Set(assignment string) error {
	path, text, found := strings.Cut(assignment, "=")
	if !found || path == "" {
		return fmt.Errorf("%q: must be dotted.key=VALUE", assignment)
	}
	value := commandValue(path, text)
	at := n
	keys := strings.Split(path, ".")
	for i, key := range keys {
		last := i == len(keys)-1
		here := strings.Join(keys[:i+1], ".")
		if key == "" {
			return fmt.Errorf("%q: there is nothing between two dots", path)
		}
		next, err := at.step(key, here)
		switch {
		case err != nil:
			return err
		case last:
			next = value
		case next == nil || next.Kind == Null || next.Kind == Scalar:
			// A map may have been written short, as a value; see [Short].
			made := &Node{Kind: Map, Path: here, Origin: CommandLine, command: true, byKey: map[string]*Node{}}
			if next != nil && next.Kind == Scalar {
				made.short = next
			}
			next = made
		}
		if at.Kind == List {
			number, _ := strconv.Atoi(key)
			if number == len(at.items) {
				at.items = append(at.items, nil)
			}
			at.items[number] = next
		} else {
			at.put(key, next)
		}
		at = next
	}
	return nil
}

func (n *Node) step(key, path string) (*Node, error) {
	if n.Kind != List {
		return n.byKey[key], nil
	}
	i, err := strconv.Atoi(key)
	if err != nil || i < 0 || i > len(n.items) {
		return nil, fmt.Errorf("%s: %q: must be the number of an item, from 0 to %d", path, key, len(n.items))
	}
	if i == len(n.items) {
		return nil, nil
	}
	return n.items[i], nil
}

// commandValue reads the value of an assignment.
func commandValue(path, text string) *Node {
	file, err := parser.ParseBytes([]byte(text), 0)
	var out *Node
	if err == nil && len(file.Docs) == 1 && file.Docs[0].Body != nil {
		p := parsing{name: CommandLine, anchors: map[string]ast.Node{}}
		out, err = p.node(file.Docs[0].Body, path, 0)
	}
	if err != nil || out == nil || out.Kind == Null && text != "null" && text != "~" {
		// Text that is no YAML is text all the same; a field that is none refuses it.
		out = &Node{Kind: Scalar, Path: path, value: text}
	}
	out.mark(text)
	return out
}

// mark says that a value and all below it came from the command line.
func (n *Node) mark(text string) {
	n.Origin, n.command = CommandLine, true
	if n.Kind == Scalar {
		n.text = text
	}
	for _, c := range n.items {
		c.mark(c.Text())
	}
	for _, k := range n.keys {
		n.byKey[k].mark(n.byKey[k].Text())
	}
}

// ErrInvalid is what every error of Decode is.
var ErrInvalid = errors.New("invalid settings")

// Keys returns the keys of a map in their order.
func (n *Node) Keys() []string {
	if n == nil {
		return nil
	}
	return n.keys
}
