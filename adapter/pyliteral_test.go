package adapter

import (
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseLiteral(t *testing.T) {
	t.Parallel()
	huge, _ := new(big.Int).SetString("-123456789012345678901234567890", 10)
	tests := []struct {
		text string
		want any
	}{
		{"None", nil},
		{"True", true},
		{" False ", false},
		{"0", int64(0)},
		{"-5", int64(-5)},
		{"+7", int64(7)},
		{"1_000", int64(1000)},
		{"1.5", 1.5},
		{"1e-05", 1e-05},
		{"-.5", -0.5},
		{"5.", 5.0},
		{"-123456789012345678901234567890", huge},
		{"[]", pyList{}},
		{"[1, 2,]", pyList{int64(1), int64(2)}},
		{"()", pyTuple{}},
		{`b'a\x00'`, pyBytes("a\x00")},
		{"(1,)", pyTuple{int64(1)}},
		{"(1)", int64(1)},
		{`'a\'b"\n\x41\u00e9\U0001f44b\101\q'`, "a'b\"\nAé👋A\\q"},
		{`"it's"`, "it's"},
		{"'é👋'", "é👋"},
		{"{'a': None, \"b\": [True]}", pyDict{{"a", nil}, {"b", pyList{true}}}},
		{"{}", pyDict{}},
		{"{1, 2}", pySet{int64(1), int64(2)}},
	}
	for _, tt := range tests {
		got, err := parseLiteral(tt.text)
		if err != nil {
			t.Errorf("parseLiteral(%s): %v", tt.text, err)
		} else if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(pyItem{}), cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })); diff != "" {
			t.Errorf("parseLiteral(%s) (-want +got):\n%s", tt.text, diff)
		}
	}
	for _, text := range []string{"", "null", "true", "nan", "inf", "Nonex", "[1", "[1 2]", "[,]", "{1: 2, 3}", "{1, 2: 3}", "'a", "'a\nb'", `'\x4'`, "1 2", "[1]]", "007", "1__0", "--1", "a", "{'a' 1}", "1abc"} {
		if got, err := parseLiteral(text); err == nil {
			t.Errorf("parseLiteral(%s) = %v, want an error", text, got)
		}
	}
}

func FuzzParseLiteral(f *testing.F) {
	for _, seed := range []string{"[{'a': [1, 2.5, None], \"b\": (True,)}, {1, 2}]", `'\u00e9\x41\777'`, "-1e+16", "((((1))))"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		// Whatever it is, reading it ends and leaves no half value.
		if v, err := parseLiteral(text); err != nil && v != nil {
			t.Errorf("parseLiteral(%q) = %v and %v", text, v, err)
		}
	})
}
