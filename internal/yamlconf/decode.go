package yamlconf

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Decode reads a node into what into points to. What the node does not mention
// stays as it is, so that defaults can be filled in before. Several mistakes are
// told of together.
func (n *Node) Decode(into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return fmt.Errorf("yamlconf: Decode into %T: must be a pointer", into)
	}
	if n == nil {
		return nil
	}
	d := decoding{}
	d.value(n, v.Elem())
	if len(d.errs) == 0 {
		return nil
	}
	return invalid{errors.Join(d.errs...)}
}

type invalid struct{ error }

func (e invalid) Unwrap() error        { return e.error }
func (e invalid) Is(target error) bool { return target == ErrInvalid }

// Short is implemented by structs that may also be written as one value, such as
// learning_rate: 0.01 for learning_rate: {peak: 0.01}; it names the key meant.
type Short interface{ ShortKey() string }

type decoding struct{ errs []error }

func (d *decoding) fail(n *Node, format string, args ...any) {
	d.errs = append(d.errs, n.Errorf(format, args...))
}

var (
	nodeType     = reflect.TypeFor[*Node]()
	durationType = reflect.TypeFor[time.Duration]()
)

func (d *decoding) value(n *Node, v reflect.Value) {
	if v.Type() == nodeType {
		v.Set(reflect.ValueOf(n))
		return
	}
	if n.Kind == Null {
		v.SetZero()
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			fresh.Elem().Set(v.Elem())
		}
		d.value(n, fresh.Elem())
		v.Set(fresh)
	case reflect.Struct:
		d.structure(n, v)
	case reflect.Map:
		d.mapping(n, v)
	case reflect.Slice:
		d.list(n, v)
	default:
		d.scalar(n, v)
	}
}

func (d *decoding) structure(n *Node, v reflect.Value) {
	if s, ok := reflect.TypeAssert[Short](v.Addr()); ok {
		n = n.long(s.ShortKey())
	}
	if n.Kind != Map || n.short != nil {
		d.fail(n, "must be keys with values (%s)", strings.Join(fieldNames(v.Type()), ", "))
		return
	}
	fields := fieldsOf(v)
	for _, key := range n.keys {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key })
		if i < 0 {
			d.errs = append(d.errs, unknownKey(n.byKey[key], key, fieldNames(v.Type())))
			continue
		}
		d.value(n.byKey[key], fields[i].value)
	}
}

// long is a value that was written short as the map that it stands for.
func (n *Node) long(key string) *Node {
	short := n.short
	if n.Kind == Scalar {
		short = n
	}
	if short == nil {
		return n
	}
	out := &Node{Kind: Map, Path: n.Path, Origin: n.Origin, byKey: map[string]*Node{}}
	value := *short
	value.Path = join(n.Path, key)
	out.put(key, &value)
	for _, k := range n.keys { // what was set beside it, or in its place
		out.put(k, n.byKey[k])
	}
	return out
}

func (d *decoding) mapping(n *Node, v reflect.Value) {
	if n.Kind != Map || n.short != nil {
		d.fail(n, "must be names with values")
		return
	}
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	for _, key := range n.keys {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(n.byKey[key], item)
		v.SetMapIndex(reflect.ValueOf(key), item)
	}
}

func (d *decoding) list(n *Node, v reflect.Value) {
	items := n.items
	switch {
	case n.Kind == Scalar: // one is a list, too
		items = []*Node{n}
	case n.Kind != List:
		d.fail(n, "must be a list")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		d.value(item, out.Index(i))
	}
	v.Set(out)
}

func (d *decoding) scalar(n *Node, v reflect.Value) {
	if n.Kind != Scalar {
		d.fail(n, "must be %s", kindName(v.Type()))
		return
	}
	if v.Type() == durationType {
		text, _ := n.value.(string)
		span, err := time.ParseDuration(text)
		if err != nil {
			d.fail(n, "%s: must be a time with a unit, as 90s or 10m", n.Text())
			return
		}
		v.SetInt(int64(span))
		return
	}
	switch v.Kind() {
	case reflect.String:
		if _, ok := n.value.(string); !ok && !n.command {
			d.fail(n, "%v: must be text; put it between quotes", n.value)
			return
		}
		v.SetString(n.Text())
		return
	case reflect.Bool:
		if b, ok := n.value.(bool); ok {
			v.SetBool(b)
			return
		}
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8:
		if i, ok := integer(n.value); ok && !v.OverflowInt(i) {
			v.SetInt(i)
			return
		}
	case reflect.Float64, reflect.Float32:
		if f, ok := float(n.value); ok {
			v.SetFloat(f)
			return
		}
	default:
		d.fail(n, "a %s cannot be read from a file", v.Type())
		return
	}
	d.fail(n, "%s: must be %s", n.Text(), kindName(v.Type()))
}

func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case uint64:
		return int64(v), v <= math.MaxInt64
	}
	return 0, false
}

func float(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	}
	return 0, false
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64, reflect.Float32:
		return "a number"
	default:
		return "a whole number"
	}
}

// field is one that a file can set.
type field struct {
	name  string
	value reflect.Value
}

// fieldsOf returns the fields of a struct, those of embedded ones among them,
// also when their type is not exported.
func fieldsOf(v reflect.Value) []field {
	var out []field
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := nameOf(f)
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct && f.Tag.Get("yaml") == "":
			out = append(out, fieldsOf(v.Field(i))...)
		case !f.IsExported() || name == "-":
		default:
			out = append(out, field{name, v.Field(i)})
		}
	}
	return out
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for _, f := range fieldsOf(reflect.New(t).Elem()) {
		names = append(names, f.name)
	}
	return names
}

func nameOf(f reflect.StructField) string {
	for _, tag := range []string{"yaml", "json"} {
		if name, _, _ := strings.Cut(f.Tag.Get(tag), ","); name != "" {
			return name
		}
	}
	return snake(f.Name)
}

// snake writes MaxGradNorm as max_grad_norm, and KL as kl.
func snake(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// Keys returns what a struct, or what a pointer points to, can be given.
func Keys(of any) []string {
	t := reflect.TypeOf(of)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return fieldNames(t)
}

// unknownKey names the keys that are nearest, all when none is near.
func unknownKey(n *Node, key string, known []string) error {
	if near := Nearest(key, known); len(near) > 0 {
		return n.Errorf("there is no such key; did you mean %s?", strings.Join(near, " or "))
	}
	known = slices.Sorted(slices.Values(known))
	return n.Errorf("there is no such key; those here are %s", strings.Join(known, ", "))
}

// Nearest returns the words that differ least from a word that was meant to be
// one of them, at most three; none when all differ too much.
func Nearest(word string, known []string) []string {
	type near struct {
		word     string
		distance int
	}
	var found []near
	most := max(2, len(word)/3)
	if len(word) < 5 {
		most = 1
	}
	for _, k := range known {
		d := distance(word, k)
		if d > most && len(word) > 2 && (strings.HasPrefix(k, word) || strings.HasSuffix(k, "_"+word)) {
			d = most
		}
		if d <= most && d < max(len(k), len(word)) {
			found = append(found, near{k, d})
		}
	}
	slices.SortStableFunc(found, func(a, b near) int { return a.distance - b.distance })
	var out []string
	for i, f := range found {
		if i == 3 || f.distance > found[0].distance {
			break
		}
		out = append(out, f.word)
	}
	return out
}

// distance is how many letters must be changed, put in, left out or swapped.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
