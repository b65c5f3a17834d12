package emit

import (
	"fmt"

	agl "agentlightning"
	"agentlightning/semconv"
)

// Option adds to the attributes of what is emitted. Options are applied in
// order; a key that is set twice keeps the later value.
type Option func(*extras) error

type extras struct {
	object
	tags, links int
}

func extrasOf(options []Option) (object, error) {
	var e extras
	for _, o := range options {
		if err := o(&e); err != nil {
			return object{}, err
		}
	}
	return e.object, nil
}

// Attr adds one attribute. Maps, structs and lists are flattened to dotted keys.
func Attr(key string, value any) Option {
	return func(e *extras) error {
		v, err := valueOf(value)
		if err != nil {
			return fmt.Errorf("attribute %q: %w", key, err)
		}
		e.set(key, v)
		return nil
	}
}

// With adds the members of a map, a struct or [agl.Attributes].
func With(attributes any) Option {
	return func(e *extras) error {
		o, err := objectOf(attributes)
		if err != nil {
			return err
		}
		for _, m := range o.members {
			e.set(m.key, m.value)
		}
		e.oddKey = o.oddKey
		return nil
	}
}

// Tag adds tags.
func Tag(tags ...string) Option {
	return func(e *extras) error {
		for _, t := range tags {
			e.set(semconv.TagKey(e.tags), t)
			e.tags++
		}
		return nil
	}
}

// Link says which spans this one is about: those whose attribute key has this
// value. Several links must all match. The spans may be written later than the
// link.
func Link(key, value string) Option {
	return func(e *extras) error {
		e.set(semconv.LinkKeyMatch(e.links), key)
		e.set(semconv.LinkValueMatch(e.links), value)
		e.links++
		return nil
	}
}

// LinkSpan says that this span is about another one, named by its ids.
func LinkSpan(traceID, spanID string) Option {
	return func(e *extras) error {
		if err := Link("trace_id", traceID)(e); err != nil {
			return err
		}
		return Link("span_id", spanID)(e)
	}
}

func objectOf(v any) (object, error) {
	value, err := valueOf(v)
	if err != nil {
		return object{}, err
	}
	o, ok := value.(object)
	if !ok && value != nil {
		return object{}, fmt.Errorf("attributes must be a map, a struct or agl.Attributes, got %T", v)
	}
	return o, nil
}

// merge sets the attributes of b in a.
func merge(a, b agl.Attributes) agl.Attributes {
	for _, x := range b {
		a.Set(x.Key, x.Value)
	}
	return a
}
