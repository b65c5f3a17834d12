package emit

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime/debug"
	"strconv"
	"time"

	agl "agentlightning"
	"agentlightning/semconv"
)

func core(name string, status agl.StatusCode, attributes agl.Attributes) agl.SpanCore {
	now := agl.Seconds(time.Now())
	return agl.SpanCore{
		Name: name, Status: agl.TraceStatus{StatusCode: status}, Attributes: attributes,
		StartTime: &now, EndTime: &now,
	}
}

// AnnotationCore builds what [Annotation] emits.
func AnnotationCore(attributes any, options ...Option) (agl.SpanCore, error) {
	o, err := objectOf(attributes)
	if err != nil {
		return agl.SpanCore{}, fmt.Errorf("annotation: %w", err)
	}
	return annotation(o, options)
}

func annotation(o object, options []Option) (agl.SpanCore, error) {
	extra, err := extrasOf(options)
	if err != nil {
		return agl.SpanCore{}, fmt.Errorf("annotation: %w", err)
	}
	for _, m := range extra.members {
		o.set(m.key, m.value)
	}
	flat, err := attributes(o, true)
	if err != nil {
		return agl.SpanCore{}, fmt.Errorf("annotation: %w", err)
	}
	return core(semconv.SpanAnnotation, agl.StatusOK, flat), nil
}

// RewardCore builds what [Reward] emits.
func RewardCore(value float64, options ...Option) (agl.SpanCore, error) {
	return RewardsCore([]agl.RewardDimension{{Name: semconv.PrimaryReward, Value: value}}, options...)
}

// RewardsCore builds what [Rewards] emits.
func RewardsCore(dimensions []agl.RewardDimension, options ...Option) (agl.SpanCore, error) {
	if len(dimensions) == 0 {
		return agl.SpanCore{}, errors.New("reward: there must be at least one dimension, the primary one first")
	}
	list := make([]any, len(dimensions))
	for i, d := range dimensions {
		if math.IsNaN(d.Value) || math.IsInf(d.Value, 0) {
			return agl.SpanCore{}, fmt.Errorf("reward %q: %v is not a finite number", d.Name, d.Value)
		}
		for _, other := range dimensions[:i] {
			if other.Name == d.Name {
				return agl.SpanCore{}, fmt.Errorf("reward: dimension %q is given twice", d.Name)
			}
		}
		list[i] = object{members: []member{{"name", d.Name}, {"value", d.Value}}}
	}
	return annotation(object{members: []member{{semconv.Reward, list}}}, options)
}

// MessageCore builds what [Message] emits.
func MessageCore(text string, options ...Option) (agl.SpanCore, error) {
	return point(semconv.SpanMessage, agl.StatusUnset, agl.Attributes{{Key: semconv.MessageBody, Value: text}}, options)
}

// point builds a span whose attributes the options may override one by one.
func point(name string, status agl.StatusCode, own agl.Attributes, options []Option) (agl.SpanCore, error) {
	extra, err := extrasOf(options)
	if err != nil {
		return agl.SpanCore{}, fmt.Errorf("%s: %w", name, err)
	}
	flat, err := attributes(extra, false)
	if err != nil {
		return agl.SpanCore{}, fmt.Errorf("%s: %w", name, err)
	}
	return core(name, status, merge(own, flat)), nil
}

// ObjectCore builds what [Object] emits.
func ObjectCore(value any, options ...Option) (agl.SpanCore, error) {
	own, err := objectAttributes(value)
	if err != nil {
		return agl.SpanCore{}, fmt.Errorf("object: %w", err)
	}
	return point(semconv.SpanObject, agl.StatusOK, own, options)
}

// objectAttributes writes simple values as text and everything else as JSON,
// under the names that Python gives to the types.
func objectAttributes(value any) (agl.Attributes, error) {
	literal := func(kind, text string) (agl.Attributes, error) {
		return agl.Attributes{{Key: semconv.ObjectType, Value: kind}, {Key: semconv.ObjectLiteral, Value: text}}, nil
	}
	if b, ok := value.([]byte); ok {
		return literal("bytes", base64.StdEncoding.EncodeToString(b))
	}
	v, err := valueOf(value)
	if err != nil {
		return nil, err
	}
	kind := "NoneType"
	switch v := v.(type) {
	case string:
		return literal("str", v)
	case bool:
		if v {
			return literal("bool", "True")
		}
		return literal("bool", "False")
	case int64:
		return literal("int", strconv.FormatInt(v, 10))
	case json.Number:
		return literal("int", v.String())
	case float64:
		return literal("float", string(appendPythonFloat(nil, v, "nan", "inf")))
	case []any:
		kind = "list"
	case object:
		kind = "dict"
	}
	return agl.Attributes{{Key: semconv.ObjectType, Value: kind}, {Key: semconv.ObjectJSON, Value: string(appendPython(nil, v))}}, nil
}

// ExceptionCore builds what [Exception] emits.
func ExceptionCore(err error, options ...Option) (agl.SpanCore, error) {
	if err == nil {
		return agl.SpanCore{}, errors.New("exception: the error is nil")
	}
	return point(semconv.SpanException, agl.StatusOK, agl.Attributes{
		{Key: semconv.ExceptionType, Value: typeOfError(err)},
		{Key: semconv.ExceptionMessage, Value: err.Error()},
		{Key: semconv.ExceptionEscaped, Value: true},
		{Key: semconv.ExceptionStack, Value: string(debug.Stack())},
	}, options)
}

// typeOfError names the type of the error that was wrapped, since the types that
// wrap say nothing.
func typeOfError(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil || reflect.TypeOf(err).String() != "*fmt.wrapError" {
			return fmt.Sprintf("%T", err)
		}
		err = inner
	}
}
