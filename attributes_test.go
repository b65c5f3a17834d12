package agl_test

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	agl "agentlightning"
)

func TestAttributeValues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		src  string
		want any // nil for refused
	}{
		{`"a"`, "a"},
		{`true`, true},
		{`1`, int64(1)},
		{`1.0`, 1.0},
		{`-0.0`, math.Copysign(0, -1)},
		{`1e2`, 100.0},
		{`9223372036854775807`, int64(9223372036854775807)},
		{`9223372036854775808`, json.Number("9223372036854775808")},
		{`[]`, []string{}},
		{`["a",""]`, []string{"a", ""}},
		{`[true,false]`, []bool{true, false}},
		{`[1,2]`, []int64{1, 2}},
		{`[1.0,2.5]`, []float64{1, 2.5}},
		{`[1,9223372036854775808]`, []json.Number{"1", "9223372036854775808"}},
		// Mixed lists: ints become floats, otherwise the first of bool, int and
		// float that fits every element.
		{`[1,2.5]`, []float64{1, 2.5}},
		{`[0,1.0]`, []float64{0, 1}},
		{`[true,1]`, []bool{true, true}},
		{`[true,2]`, []int64{1, 2}},
		{`[1.0,true]`, []bool{true, true}},
		{`[1,true,2.5]`, []float64{1, 1, 2.5}},
		{`["1",2]`, []int64{1, 2}},
		{`["1.5",1]`, []float64{1.5, 1}},
		{`["yes",0]`, []bool{true, false}},
		{`["OFF",true]`, []bool{false, true}},
		{`["2",true]`, []int64{2, 1}},
		{`[1,"x"]`, nil},
		{`[true,"x"]`, nil},
		{`null`, nil},
		{`{}`, nil},
		{`{"a":1}`, nil},
		{`[null]`, nil},
		{`[1,null]`, nil},
		{`[[1]]`, nil},
		{`[{}]`, nil},
		{`tru`, nil},
		{`1.`, nil},
		{`[1`, nil},
		{``, nil},
	} {
		got, err := agl.ParseAttributeValue([]byte(tt.src))
		if tt.want == nil {
			if err == nil {
				t.Errorf("ParseAttributeValue(%s) = %#v, want an error", tt.src, got)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("ParseAttributeValue(%s) = %#v, %v, want %#v", tt.src, got, err, tt.want)
		}
	}
}

func TestAttributesAreAnOrderedMap(t *testing.T) {
	t.Parallel()
	var a agl.Attributes
	a.Set("b", int64(1))
	a.Set("a", []int64{1, 2})
	a.Set("b", 2.0)
	if got, want := string(a.AppendJSON(nil)), `{"b":2.0,"a":[1,2]}`; got != want {
		t.Errorf("attributes = %s, want %s", got, want)
	}
	if f, ok := a.Float("b"); !ok || f != 2 {
		t.Errorf("Float(b) = %v, %v, want 2, true", f, ok)
	}
	if n, ok := a.Ints("a"); !ok || len(n) != 2 {
		t.Errorf("Ints(a) = %v, %v, want [1 2], true", n, ok)
	}
	if _, ok := a.String("a"); ok {
		t.Error("String(a) takes a list")
	}
	if _, ok := a.Get("c"); ok {
		t.Error("Get(c) finds what is not there")
	}
	if !a.HasPrefix("") || a.HasPrefix("c") {
		t.Error("HasPrefix is wrong")
	}
}

func FuzzAttributeValue(f *testing.F) {
	for _, src := range []string{`[1,true,"2",2.5]`, `["a"]`, `-0.0`, `1e400`, `[18446744073709551616,1]`, `"\ud800"`, `NaN`} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		v, err := agl.ParseAttributeValue(src)
		if err != nil {
			return
		}
		text := agl.Attributes{{Key: "k", Value: v}}.AppendJSON(nil)
		var again agl.Attributes
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%q is %#v, written as %s, which does not read back: %v", src, v, text, err)
		}
		if got := again.AppendJSON(nil); string(got) != string(text) {
			t.Fatalf("%q is %#v, written as %s, then as %s", src, v, text, got)
		}
	})
}
