package emit

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
)

// Values are brought into one form before anything else happens to them: nil,
// bool, int64, float64, json.Number (integers beyond 64 bits), string, []any
// and object. The difference between 1 and 1.0 survives, which JSON from
// encoding/json would lose.

type member struct {
	key   string
	value any
}

type object struct {
	members []member
	// oddKey is a key that was not a string, for error messages.
	oddKey string
}

// set adds a member, or replaces the value of the one with this key.
func (o *object) set(key string, value any) {
	for i := range o.members {
		if o.members[i].key == key {
			o.members[i].value = value
			return
		}
	}
	o.members = append(o.members, member{key, value})
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	errorType     = reflect.TypeFor[error]()
)

// valueOf brings v into the common form.
func valueOf(v any) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case agl.Attributes:
		o := object{}
		for _, a := range v {
			value, err := valueOf(a.Value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", a.Key, err)
			}
			o.set(a.Key, value)
		}
		return o, nil
	case json.Number:
		return parse([]byte(v))
	case json.RawMessage:
		return parse(v)
	case object:
		return v, nil
	}
	return reflected(reflect.ValueOf(v), 0)
}

func reflected(v reflect.Value, depth int) (any, error) {
	if depth > jsonx.MaxDepth {
		return nil, fmt.Errorf("nested deeper than %d; is it cyclic?", jsonx.MaxDepth)
	}
	if !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil() {
		return nil, nil
	}
	if v.CanInterface() {
		switch t := v.Type(); {
		case t.Implements(jsonMarshaler):
			text, err := json.Marshal(v.Interface())
			if err != nil {
				return nil, err
			}
			return parse(text)
		case t.Implements(textMarshaler):
			text, err := v.Interface().(encoding.TextMarshaler).MarshalText()
			return string(text), err
		case t.Implements(errorType):
			return v.Interface().(error).Error(), nil
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return reflected(v.Elem(), depth+1)
	case reflect.Bool:
		return v.Bool(), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return parse(strconv.AppendUint(nil, v.Uint(), 10))
	case reflect.Float32:
		return strconv.ParseFloat(strconv.FormatFloat(v.Float(), 'g', -1, 32), 64)
	case reflect.Float64:
		return v.Float(), nil
	case reflect.String:
		return v.String(), nil
	case reflect.Slice, reflect.Array:
		return reflectedList(v, depth)
	case reflect.Map:
		return reflectedMap(v, depth)
	case reflect.Struct:
		return reflectedStruct(v, depth)
	default:
		return nil, fmt.Errorf("a %s cannot be written as JSON", v.Type())
	}
}

func reflectedList(v reflect.Value, depth int) (any, error) {
	if v.Kind() == reflect.Slice && v.IsNil() {
		return nil, nil
	}
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
		return base64.StdEncoding.EncodeToString(v.Bytes()), nil
	}
	out := make([]any, v.Len())
	for i := range out {
		e, err := reflected(v.Index(i), depth+1)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", i, err)
		}
		out[i] = e
	}
	return out, nil
}

func reflectedMap(v reflect.Value, depth int) (any, error) {
	if v.IsNil() {
		return nil, nil
	}
	o := object{}
	for it := v.MapRange(); it.Next(); {
		key := fmt.Sprint(it.Key().Interface())
		if it.Key().Kind() != reflect.String {
			o.oddKey = key
		}
		value, err := reflected(it.Value(), depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		o.members = append(o.members, member{key, value})
	}
	slices.SortFunc(o.members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	return o, nil
}

// reflectedStruct names members as encoding/json does.
func reflectedStruct(v reflect.Value, depth int) (any, error) {
	o := object{}
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" || promotedFromNamed(v.Type(), f) {
			continue
		}
		field, err := v.FieldByIndexErr(f.Index)
		if err != nil || strings.Contains(options, "omitempty") && field.IsZero() || strings.Contains(options, "omitzero") && field.IsZero() {
			continue // behind a nil embedded pointer, or left out on purpose
		}
		if name == "" {
			name = f.Name
		}
		value, err := reflected(field, depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		o.set(name, value)
	}
	return o, nil
}

// promotedFromNamed reports whether a field comes from an embedded struct that
// has a name in JSON and is therefore written as a member of its own.
func promotedFromNamed(t reflect.Type, f reflect.StructField) bool {
	for i := 1; i < len(f.Index); i++ {
		if name, _, _ := strings.Cut(t.FieldByIndex(f.Index[:i]).Tag.Get("json"), ","); name != "" {
			return true
		}
	}
	return false
}

// parse reads JSON, keeping the order of members and the spelling of numbers.
func parse(raw []byte) (any, error) {
	switch jsonx.KindOf(raw) {
	case jsonx.Object:
		members, err := jsonx.Members(raw)
		if err != nil {
			return nil, err
		}
		o := object{members: make([]member, len(members))}
		for i, m := range members {
			value, err := parse(m.Value)
			if err != nil {
				return nil, err
			}
			o.members[i] = member{m.Key, value}
		}
		return o, nil
	case jsonx.Array:
		elements, err := jsonx.Elements(raw)
		if err != nil {
			return nil, err
		}
		out := make([]any, len(elements))
		for i, e := range elements {
			if out[i], err = parse(e); err != nil {
				return nil, err
			}
		}
		return out, nil
	case jsonx.Null:
		return nil, jsonx.Check(raw)
	case jsonx.Bool, jsonx.Number, jsonx.String, jsonx.Invalid:
	}
	if err := jsonx.Check(raw); err != nil {
		return nil, err
	}
	return agl.ParseAttributeValue(raw)
}

// plain turns the common form into what encoding/json would decode into any,
// except that integers are int64.
func plain(v any) any {
	switch v := v.(type) {
	case object:
		out := make(map[string]any, len(v.members))
		for _, m := range v.members {
			out[m.key] = plain(m.value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	}
	return v
}
