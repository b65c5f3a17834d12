package adapter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
)

// node is a value that attributes with dotted keys spell together: a leaf, or
// an object whose members are in order of appearance.
type node struct {
	leaf any  // not nil for a leaf
	null bool // a leaf all the same
	keys []string
	kids map[string]*node
}

func (n *node) kid(key string) *node {
	if n == nil {
		return nil
	}
	return n.kids[key]
}

func (n *node) put(key string, kid *node) {
	if n.kids == nil {
		n.kids = map[string]*node{}
	}
	if _, ok := n.kids[key]; !ok {
		n.keys = append(n.keys, key)
	}
	n.kids[key] = kid
}

func (n *node) remove(key string) {
	if _, ok := n.kids[key]; ok {
		delete(n.kids, key)
		n.keys = slices.DeleteFunc(n.keys, func(k string) bool { return k == key })
	}
}

// text returns the string that a leaf is.
func (n *node) text() (string, bool) {
	if n == nil {
		return "", false
	}
	s, ok := n.leaf.(string)
	return s, ok
}

// unflatten gathers the attributes below prefix; nil when there are none. An
// attribute that is named exactly like the prefix is an error, as is its
// opposite number in Agent Lightning 0.3.
func unflatten(attrs agl.Attributes, prefix string) (*node, error) {
	var root *node
	for _, a := range attrs {
		rest, ok := strings.CutPrefix(a.Key, prefix)
		if !ok {
			continue
		}
		if rest == "" {
			return nil, fmt.Errorf("attribute %q has a value of its own, its members cannot be gathered", prefix)
		}
		if rest, ok = strings.CutPrefix(rest, "."); !ok {
			continue
		}
		if root == nil {
			root = &node{}
		}
		at := root
		for {
			key, more, found := strings.Cut(rest, ".")
			if !found {
				at.put(key, &node{leaf: a.Value, null: a.Value == nil})
				break
			}
			next := at.kids[key]
			if next == nil || next.leaf != nil || next.null {
				next = &node{}
				at.put(key, next)
			}
			at, rest = next, more
		}
	}
	return root, nil
}

// elements returns the kids of a node that is a list: its keys are the numbers
// from 0 on, each once.
func (n *node) elements() ([]*node, bool) {
	if n == nil || n.leaf != nil || len(n.keys) == 0 {
		return nil, false
	}
	out := make([]*node, len(n.keys))
	for _, key := range n.keys {
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= len(out) || strconv.Itoa(i) != key {
			return nil, false
		}
		out[i] = n.kids[key]
	}
	return out, true
}

// index reads a key that numbers the elements of a list: digits alone.
func index(key string) (int, bool) {
	if key == "" || strings.Trim(key, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(key)
	return n, err == nil
}

// appendJSON appends the value, null for nil.
func (n *node) appendJSON(dst []byte) []byte {
	switch {
	case n == nil, n.null:
		return append(dst, "null"...)
	case n.leaf != nil:
		return appendValue(dst, n.leaf)
	}
	if list, ok := n.elements(); ok {
		dst = append(dst, '[')
		for i, e := range list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = e.appendJSON(dst)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	for i, key := range n.keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsonx.AppendString(dst, key), ':')
		dst = n.kids[key].appendJSON(dst)
	}
	return append(dst, '}')
}

// appendValue appends the value of an attribute, which the root package writes
// only as a member of an object.
func appendValue(dst []byte, v any) []byte {
	const key = `{"":`
	at := len(dst)
	dst = agl.Attributes{{Value: v}}.AppendJSON(dst)
	dst = append(dst[:at], dst[at+len(key):]...)
	return dst[:len(dst)-1]
}

func appendInts(dst []byte, list []int64) []byte {
	dst = append(dst, '[')
	for i, n := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, n, 10)
	}
	return append(dst, ']')
}
