package emit

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
)

// TestHelpers runs the recorded helpers of the Python implementation.
func TestHelpers(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../testdata/vectors/emitters/_helpers.json")
	if err != nil {
		t.Fatal(err)
	}
	var rec struct {
		Helpers []struct {
			Function string          `json:"function"`
			Input    json.RawMessage `json:"input"`
			Output   json.RawMessage `json:"output"`
			Error    *recordedError  `json:"error"`
		} `json:"helpers"`
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		t.Fatal(err)
	}
	leftOut := map[string]string{
		"filter_attributes": "there is no such function: Unflatten filters",
		"convert_timestamp": "spans are made from times, not from numbers of unknown unit; see the tests of tracer",
	}
	tried := 0
	for _, h := range rec.Helpers {
		run := helpers[h.Function]
		if run == nil {
			if leftOut[h.Function] == "" {
				t.Errorf("%s is not tried and no reason is given", h.Function)
			}
			continue
		}
		tried++
		got, err := run(t, h.Input)
		if deviation, ok := deviations[h.Function+" "+compact(t, h.Input)]; ok {
			if err != nil || got != deviation {
				t.Errorf("%s(%s) = %s, %v, want %s", h.Function, h.Input, got, err, deviation)
			}
			continue
		}
		if (err != nil) != (h.Error != nil) {
			t.Errorf("%s(%s) = %s, %v, recorded error %v", h.Function, h.Input, got, err, h.Error)
			continue
		}
		if err == nil && got != compact(t, h.Output) {
			t.Errorf("%s(%s) = %s, want %s", h.Function, h.Input, got, compact(t, h.Output))
		}
	}
	if tried < 90 {
		t.Errorf("only %d cases were tried", tried)
	}
}

// recordedError is the exception of a recording.
type recordedError struct {
	Type string `json:"type"`
}

// deviations are cases in which the Python implementation fails by accident or
// where failing serves nobody.
var deviations = map[string]string{
	`unflatten_attributes {"a.00":1}`:  `{"a":{"00":1}}`,
	`extract_tags_from_attributes {}`:  `null`, // no tags
	`extract_links_from_attributes {}`: `null`,
}

var helpers = map[string]func(t *testing.T, input json.RawMessage) (string, error){
	"flatten_attributes": func(t *testing.T, input json.RawMessage) (string, error) {
		t.Helper()
		var in struct {
			Data   json.RawMessage
			Expand bool `json:"expand_leaf_lists"`
		}
		decode(t, input, &in)
		v, err := parse(in.Data)
		if err != nil {
			t.Fatal(err)
		}
		flat, err := flatten(v, in.Expand)
		return text(flat), err
	},
	"sanitize_attribute_value": func(t *testing.T, input json.RawMessage) (string, error) {
		t.Helper()
		v, err := parse(input)
		if err != nil {
			t.Fatal(err)
		}
		return marshal(t, sanitize(v)), nil
	},
	"unflatten_attributes": func(t *testing.T, input json.RawMessage) (string, error) {
		t.Helper()
		values, err := parse(input)
		if err != nil {
			t.Fatal(err)
		}
		var in agl.Attributes
		for _, m := range values.(object).members {
			in = append(in, agl.Attribute{Key: m.key, Value: plain(m.value)})
		}
		v, err := Unflatten(in, "")
		return marshal(t, v), err
	},
	"filter_and_unflatten_attributes": func(t *testing.T, input json.RawMessage) (string, error) {
		t.Helper()
		var in struct {
			Attributes agl.Attributes
			Prefix     string
		}
		decode(t, input, &in)
		v, err := Unflatten(in.Attributes, in.Prefix)
		return marshal(t, v), err
	},
	"make_tag_attributes": func(t *testing.T, input json.RawMessage) (string, error) {
		t.Helper()
		var tags []string
		decode(t, input, &tags)
		o, err := extrasOf([]Option{Tag(tags...)})
		return text(o), err
	},
	"make_link_attributes": func(t *testing.T, input json.RawMessage) (string, error) {
		t.Helper()
		v, err := parse(input)
		if err != nil {
			t.Fatal(err)
		}
		var options []Option
		for _, m := range v.(object).members {
			value, ok := m.value.(string)
			if !ok {
				return "", errNull // the compiler would refuse it
			}
			options = append(options, Link(m.key, value))
		}
		o, err := extrasOf(options)
		return text(o), err
	},
	"extract_tags_from_attributes": func(t *testing.T, input json.RawMessage) (string, error) {
		t.Helper()
		var in agl.Attributes
		decode(t, input, &in)
		tags, err := TagsOf(&agl.Span{Attributes: in})
		return marshal(t, tags), err
	},
	"extract_links_from_attributes": func(t *testing.T, input json.RawMessage) (string, error) {
		t.Helper()
		var in agl.Attributes
		decode(t, input, &in)
		links, err := LinksOf(&agl.Span{Attributes: in})
		var out []map[string]string
		for _, l := range links {
			out = append(out, map[string]string{"key_match": l.Key, "value_match": l.Value})
		}
		return marshal(t, out), err
	},
	"query_linked_spans": func(t *testing.T, input json.RawMessage) (string, error) {
		t.Helper()
		var in struct {
			Spans []agl.Span
			Links []struct {
				Key   string `json:"key_match"`
				Value string `json:"value_match"`
			}
		}
		decode(t, input, &in)
		var links []LinkMatch
		for _, l := range in.Links {
			links = append(links, LinkMatch(l))
		}
		ids := []string{}
		for _, s := range Linked(in.Spans, links) {
			ids = append(ids, s.SpanID)
		}
		return marshal(t, ids), nil
	},
}

func decode(t *testing.T, raw json.RawMessage, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return compact(t, out)
}

// text writes an object in the spelling that compact gives to recordings.
func text(o object) string {
	var v any
	if err := json.Unmarshal(appendPython(nil, o), &v); err != nil {
		return err.Error()
	}
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// compact brings JSON into one spelling: members sorted, no spaces.
func compact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	if len(raw) == 0 {
		return ""
	}
	var v any
	decode(t, raw, &v)
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestValues(t *testing.T) {
	t.Parallel()
	type inner struct {
		N int `json:"n"`
	}
	type Embedded struct{ E float32 }
	one := 1
	v := struct {
		Embedded
		Named   inner          `json:"named"`
		Skipped int            `json:"-"`
		Empty   string         `json:"empty,omitempty"`
		Pointer *int           `json:"pointer"`
		Nil     *int           `json:"nil"`
		Bytes   []byte         `json:"bytes"`
		Map     map[string]any `json:"map"`
		Float   float64        `json:"float"`
		Big     uint64         `json:"big"`
		hidden  int
	}{Embedded{0.1}, inner{2}, 3, "", &one, nil, []byte("x"), map[string]any{"b": 1, "a": 1.0}, 5, 1 << 63, 4}
	_ = v.hidden
	got, err := valueOf(v)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"E": 0.1, "named": {"n": 2}, "pointer": 1, "nil": null, "bytes": "eA==", "map": {"a": 1.0, "b": 1}, "float": 5.0, "big": 9223372036854775808}`
	if diff := cmp.Diff(want, string(appendPython(nil, got))); diff != "" {
		t.Errorf("valueOf (-want +got):\n%s", diff)
	}
	type cycle struct{ Next *cycle }
	c := &cycle{}
	c.Next = c
	for _, bad := range []any{make(chan int), func() {}, 1i, map[string]any{"x": make(chan int)}, c} {
		if got, err := valueOf(bad); err == nil {
			t.Errorf("valueOf(%T) = %v, want an error", bad, got)
		}
	}
}

// FuzzValues feeds any JSON: what can be read can be flattened, made fit and
// written, and what is written is JSON again.
func FuzzValues(f *testing.F) {
	for _, seed := range []string{
		`{"a":{"b":[1,2.5,"x",null]},"":{}}`, `[NaN,-Infinity,1e400]`, `{"a.b":1,"a":{"b":[[]]}}`,
		`"\ud800"`, `12345678901234567890`, `[[true,1],{"0":1,"1":2}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := valueOf(json.RawMessage(data))
		if err != nil {
			return
		}
		if err := jsonx.Check(appendPython(nil, v)); err != nil {
			t.Fatalf("written value of %q: %v", data, err)
		}
		flat, err := attributes(object{members: []member{{"v", v}}}, false)
		if err != nil {
			t.Fatalf("attributes(%q): %v", data, err)
		}
		if err := jsonx.Check(flat.AppendJSON(nil)); err != nil {
			t.Fatalf("attributes of %q: %v", data, err)
		}
		if _, err := Unflatten(flat, ""); err != nil {
			t.Fatalf("Unflatten(%q): %v", data, err)
		}
	})
}
