package jsonx_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"agentlightning/internal/jsonx"
)

func TestNormalize(t *testing.T) {
	t.Parallel()
	many := func(last string) string {
		var b strings.Builder
		for i := range 40 {
			b.WriteString(`"k` + strconv.Itoa(i%30) + `":` + strconv.Itoa(i) + `,`)
		}
		return "{" + b.String() + last + "}"
	}
	wantMany := "{"
	for i := range 30 {
		v := i
		if i < 10 {
			v = i + 30
		}
		wantMany += `"k` + strconv.Itoa(i) + `":` + strconv.Itoa(v) + `,`
	}
	for _, tt := range []struct{ src, want string }{
		{` null `, `null`},
		{"\t[ ]\r\n", `[]`},
		{`{ }`, `{}`},
		{`[1 , 1.0,-0.0, 1E5, 1e-07, 123456789012345678901234567890]`, `[1,1.0,-0.0,1E5,1e-07,123456789012345678901234567890]`},
		{`[NaN,Infinity,-Infinity,{"a":NaN}]`, `[null,null,null,{"a":null}]`},
		{`"\u00e9\u2028\/\ud83d\ude00<>&"`, "\"é\u2028/😀<>&\""},
		{`"\"\\\b\f\n\r\t\u0000\u001f\u007f"`, `"\"\\\b\f\n\r\t\u0000\u001f` + "\u007f\""},
		{`"\ud83d x \ude00 \ud83d\ud83d\ude00"`, "\"\ufffd x \ufffd \ufffd😀\""},
		{"\"\xff\xc3\"", "\"\ufffd\ufffd\""},
		{`{"z":1,"a":{"y":2,"b":[{}]}}`, `{"z":1,"a":{"y":2,"b":[{}]}}`},
		{`{"a":1,"b":2,"a":3}`, `{"a":3,"b":2}`},
		{`{"a":1,"a":{"a":1,"a":[2]},"b":2,"a":"x"}`, `{"a":"x","b":2}`},
		{`{"a":1,"b":{"c":1,"c":2},"\u0061":3}`, `{"a":3,"b":{"c":2}}`},
		{`{"":1,"":2}`, `{"":2}`},
		{many(`"end":[]`), wantMany + `"end":[]}`},
	} {
		got, err := jsonx.Normalize([]byte(tt.src))
		if err != nil || string(got) != tt.want {
			t.Errorf("Normalize(%s) = %s, %v, want %s", tt.src, got, err, tt.want)
		}
	}
}

func TestCheckSaysWhere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		src    string
		offset int
	}{
		{``, 0},
		{`  `, 2},
		{`tru`, 0},
		{`{"a":1,}`, 7},
		{`{"a" 1}`, 5},
		{`{"a":}`, 5},
		{`{a:1}`, 1},
		{`[1,]`, 3},
		{`[1 2]`, 3},
		{`[1`, 2},
		{`1 1`, 2},
		{`01`, 1},
		{`-`, 0},
		{`1.`, 0},
		{`1e`, 0},
		{`.5`, 0},
		{`+1`, 0},
		{`"abc`, 0},
		{"\"a\nb\"", 2},
		{`"\x"`, 1},
		{`"\u12g4"`, 1},
		{`"\`, 0},
		{strings.Repeat("[", jsonx.MaxDepth+1) + strings.Repeat("]", jsonx.MaxDepth+1), jsonx.MaxDepth},
	} {
		err := jsonx.Check([]byte(tt.src))
		var syntax *jsonx.SyntaxError
		if !errors.As(err, &syntax) || syntax.Offset != tt.offset {
			t.Errorf("Check(%.40q) = %v, want an error at byte %d", tt.src, err, tt.offset)
		}
		if _, err := jsonx.Normalize([]byte(tt.src)); err == nil {
			t.Errorf("Normalize(%.40q) succeeded", tt.src)
		}
	}
	deep := strings.Repeat("[", jsonx.MaxDepth) + strings.Repeat("]", jsonx.MaxDepth)
	if err := jsonx.Check([]byte(deep)); err != nil {
		t.Errorf("Check of %d arrays = %v, want nil", jsonx.MaxDepth, err)
	}
}

func TestMembersAndElements(t *testing.T) {
	t.Parallel()
	members, err := jsonx.Members([]byte(` { "a" : 1 , "b":[ 2 ],"a":{"c":3} } `))
	if err != nil {
		t.Fatal(err)
	}
	want := []jsonx.Member{{Key: "a", Value: []byte(`{"c":3}`)}, {Key: "b", Value: []byte(`[ 2 ]`)}}
	if !reflect.DeepEqual(members, want) {
		t.Errorf("Members = %q, want %q", members, want)
	}
	if got := jsonx.Get(members, "b"); string(got) != `[ 2 ]` {
		t.Errorf("Get(b) = %s, want [ 2 ]", got)
	}
	if got := jsonx.Get(members, "x"); got != nil {
		t.Errorf("Get(x) = %s, want nil", got)
	}
	elements, err := jsonx.Elements([]byte(`[1, "]" ,{"a":[]}]`))
	if err != nil || len(elements) != 3 || string(elements[1]) != `"]"` || string(elements[2]) != `{"a":[]}` {
		t.Errorf("Elements = %q, %v", elements, err)
	}
	for _, src := range []string{`[]`, `{"a":1`, `{"a":1}x`, `{"a":1,`, `{"a":1 "b":2}`, `{1:2}`, ``} {
		if got, err := jsonx.Members([]byte(src)); err == nil {
			t.Errorf("Members(%s) = %q, want an error", src, got)
		}
	}
	for _, src := range []string{`{}`, `[1`, `[1]x`, `[1,`, `[,]`, ``} {
		if got, err := jsonx.Elements([]byte(src)); err == nil {
			t.Errorf("Elements(%s) = %q, want an error", src, got)
		}
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]jsonx.Kind{
		" null": jsonx.Null, "true": jsonx.Bool, "false": jsonx.Bool, "-1": jsonx.Number, "0.5": jsonx.Number,
		"NaN": jsonx.Number, "-Infinity": jsonx.Number, `"a"`: jsonx.String, "\n[": jsonx.Array, "{": jsonx.Object,
		"": jsonx.Invalid, "x": jsonx.Invalid,
	} {
		if got := jsonx.KindOf([]byte(src)); got != want {
			t.Errorf("KindOf(%q) = %v, want %v", src, got, want)
		}
	}
}

func TestAppendFloat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		f    float64
		want string
	}{
		{5, "5.0"},
		{0, "0.0"},
		{math.Copysign(0, -1), "-0.0"},
		{0.1, "0.1"},
		{-2.5, "-2.5"},
		{1795962523.256626, "1795962523.256626"},
		{1e15, "1000000000000000.0"},
		{1e16, "1e+16"},
		{1e-4, "0.0001"},
		{1e-7, "1e-07"},
		{math.MaxFloat64, "1.7976931348623157e+308"},
		{math.SmallestNonzeroFloat64, "5e-324"},
		{math.NaN(), "null"},
		{math.Inf(1), "null"},
		{math.Inf(-1), "null"},
	} {
		if got := string(jsonx.AppendFloat(nil, tt.f)); got != tt.want {
			t.Errorf("AppendFloat(%v) = %s, want %s", tt.f, got, tt.want)
		}
	}
}

func TestOptionals(t *testing.T) {
	t.Parallel()
	got := jsonx.AppendOptional(nil, nil)
	got = jsonx.AppendOptional(got, new(1.0))
	got = jsonx.AppendOptionalString(got, nil)
	got = jsonx.AppendOptionalString(got, new("a"))
	got = jsonx.AppendRaw(got, nil)
	got = jsonx.AppendRaw(got, []byte("[1]"))
	if want := `null1.0null"a"null[1]`; string(got) != want {
		t.Errorf("appended %s, want %s", got, want)
	}
}

// The work grows with the text and not with its depth.
func BenchmarkNormalizeDeep(b *testing.B) {
	src := []byte(strings.Repeat(`{"a":[`, 400) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat(`]}`, 400))
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		if _, err := jsonx.Normalize(src); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzNormalize compares with encoding/json: what it takes, we take, and mean
// the same by it.
func FuzzNormalize(f *testing.F) {
	for _, src := range []string{
		`{"a":1,"a":[1.0,-0.0,NaN]}`, `"\ud83d\u0061\u2028"`, `[[],{},null,true,1e400]`, "\"\xff\"",
		`{"":{"":{"":0}},"b":0,"":1}`, `[1E+2,0.10,-12]`,
	} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := jsonx.Normalize(src)
		if err != nil {
			if json.Valid(src) && bytes.Count(src, []byte("["))+bytes.Count(src, []byte("{")) < jsonx.MaxDepth {
				t.Fatalf("Normalize(%q) = %v, want it to be taken", src, err)
			}
			return
		}
		if !json.Valid(got) {
			t.Fatalf("Normalize(%q) = %q, which is not JSON", src, got)
		}
		again, err := jsonx.Normalize(got)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("Normalize(%q) = %q, %v, want it unchanged", got, again, err)
		}
		if json.Valid(src) {
			if a, b := decode(t, src), decode(t, got); !reflect.DeepEqual(a, b) {
				t.Fatalf("Normalize(%q) = %q: it means %v, want %v", src, got, b, a)
			}
		}
		switch jsonx.KindOf(src) {
		case jsonx.Object:
			if _, err := jsonx.Members(src); err != nil {
				t.Fatalf("Members(%q) = %v", src, err)
			}
		case jsonx.Array:
			if _, err := jsonx.Elements(src); err != nil {
				t.Fatalf("Elements(%q) = %v", src, err)
			}
		case jsonx.String:
			if s, err := jsonx.Text(src); err != nil || !bytes.Equal(jsonx.AppendString(nil, s), got) {
				t.Fatalf("Text(%q) = %q, %v, want %q", src, s, err, got)
			}
		}
	})
}

func decode(t *testing.T, src []byte) any {
	d := json.NewDecoder(bytes.NewReader(src))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestWalk(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		`{}`:                             "",
		` { "a" : 1 , "b":[ 2 ],"a":0} `: "a=1 b=[ 2 ] a=0 ",
		`{"a":{"b":"}"}}`:                `a={"b":"}"} `,
	} {
		var got strings.Builder
		ok := jsonx.Walk([]byte(src), func(name []byte, value jsonx.Raw) bool {
			got.WriteString(string(name) + "=" + string(value) + " ")
			return true
		})
		if !ok || got.String() != want {
			t.Errorf("Walk(%s) = %q, %t, want %q", src, got.String(), ok, want)
		}
	}
	for _, src := range []string{``, `[]`, `{`, `{"a"}`, `{"a":}`, `{"a":1`, `{"a":1,}`, `{"a":1}x`, `{"\u0061":1}`, `{a:1}`} {
		if jsonx.Walk([]byte(src), func([]byte, jsonx.Raw) bool { return true }) {
			t.Errorf("Walk(%s) = true, want false", src)
		}
	}
	if jsonx.Walk([]byte(`{"a":1}`), func([]byte, jsonx.Raw) bool { return false }) {
		t.Error("Walk is true although a member was refused")
	}
}

// TestAppendPlain compares with AppendNormal, which takes the text apart.
func TestAppendPlain(t *testing.T) {
	t.Parallel()
	for _, src := range []string{`""`, `"a"`, `"é"`, `"\n\r\t\b\f\"\\"`, `"\u00e9"`, `"\/"`, `"\ud83d\ude00"`, `"\ud800"`, `"a\\\u0041"`} {
		got, ok := jsonx.AppendPlain([]byte("x"), []byte(src))
		s, _ := jsonx.Text([]byte(src))
		if want := "x" + string(jsonx.AppendString(nil, s)); !ok || string(got) != want {
			t.Errorf("AppendPlain(%s) = %s, %t, want %s", src, got, ok, want)
		}
	}
	for _, src := range []string{``, `"`, `1`, `"a`, `"a"x`, `"\x"`} {
		if got, ok := jsonx.AppendPlain(nil, []byte(src)); ok {
			t.Errorf("AppendPlain(%s) = %s, want it refused", src, got)
		}
	}
}

func TestSpellings(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]bool{
		"0": true, "-1": true, "123456789012345678": true, "-0": false, "1234567890123456789": false, "1.0": false, "": false, "-": false,
		"01": false,
	} {
		if got := jsonx.Integer([]byte(src)); got != want {
			t.Errorf("Integer(%q) = %t, want %t", src, got, want)
		}
	}
	for range 20_000 {
		f := math.Round(rand.NormFloat64()*1e6) / math.Pow(10, float64(rand.IntN(20)))
		src := strconv.FormatFloat(f, "fg"[rand.IntN(2)], rand.IntN(18)-1, 64)
		parsed, err := strconv.ParseFloat(src, 64)
		if err != nil {
			t.Fatal(err)
		}
		if spelled := string(jsonx.AppendFloat(nil, parsed)); jsonx.ShortFloat([]byte(src)) && spelled != src {
			t.Errorf("ShortFloat(%s) = true, but it is written %s", src, spelled)
		}
	}
	for src, want := range map[string]bool{
		"1.5": true, "0.0": true, "-0.0": true, "-0.25": true, "0.0001": true, "100.0": true,
		"1.50": false, "5": false, "0.00001": false, "1e5": false, "123456789.12345678": false, ".5": false, "5.": false, "NaN": false,
	} {
		if got := jsonx.ShortFloat([]byte(src)); got != want {
			t.Errorf("ShortFloat(%q) = %t, want %t", src, got, want)
		}
	}
}

func TestBuilder(t *testing.T) {
	t.Parallel()
	b := jsonx.Builder{Bytes: []byte("data: ")}
	b.Open('{').Key("a\"").Text("[").Key("b").Open('[').Int(-1).Word("true").Raw(nil).Open('{').Close('}').Text("").Close(']')
	b.Key("c").Raw([]byte(" {\"x\": 1}\n")).Key("d").Open('[').Close(']').Close('}')
	const want = `data: {"a\"":"[","b":[-1,true,null,{},""],"c":{"x": 1},"d":[]}`
	if string(b.Bytes) != want {
		t.Errorf("built %s, want %s", b.Bytes, want)
	}
}

func TestSpelled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		value any
		want  json.Number // empty for what is left alone
	}{
		{math.NaN(), "NaN"},
		{math.Inf(-1), "-Infinity"},
		{[]float64{1, math.Inf(1), 0.5}, "[1.0,Infinity,0.5]"},
		{1.5, ""},
		{[]float64{1, 2}, ""},
		{[]float64{}, ""},
		{int64(3), ""},
		{"NaN", ""},
		{nil, ""},
	} {
		if got, ok := jsonx.Spelled(tt.value); got != tt.want || ok != (tt.want != "") {
			t.Errorf("Spelled(%v) = %q, %v, want %q", tt.value, got, ok, tt.want)
		}
	}
}
