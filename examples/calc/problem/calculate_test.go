package problem_test

import (
	"strings"
	"testing"

	"agentlightning/examples/calc/problem"
)

func TestCalculate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		expression, want string
	}{
		{"17+25", "42"},
		{"5-9", "-4"},
		{"6*7", "42"},
		{"84/2", "42"},
		{"1/3", "0.33"},
		{"-1/3", "-0.33"},
		{"0*-5", "0"},
		{"2+3*4-1", "13"},
		{"(2+3)*4", "20"},
		{"8/4/2", "1"},
		{"10-3-2", "5"},
		{" 1 + 1 ", "2"},
		{"-(2+3)", "-5"},
		{"2*-3", "-6"},
		{"0.1+0.2", "0.3"},
		{"1000000*1000", "1000000000"},
	}
	for _, tt := range tests {
		got, err := problem.Calculate(tt.expression)
		if err != nil || got != tt.want {
			t.Errorf("Calculate(%q) = %q, %v, want %q", tt.expression, got, err, tt.want)
		}
	}
	for _, bad := range []string{
		"", "1+", "1/0", "1//2", "a+b", "1+2)", "(1+2", "1..2", "2 3 x", "()", "0x10", "1e5", "9999999*9999999",
		strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000), strings.Repeat("-", 1000) + "1",
	} {
		if got, err := problem.Calculate(bad); err == nil {
			t.Errorf("Calculate(%q) = %q, want an error", bad, got)
		}
	}
}

func FuzzCalculate(f *testing.F) {
	for _, s := range []string{"17+25", "(1-2)*3/4", "--1", "1/0", "9e9", "((((1", "2" + strings.Repeat("0", 306)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		got, err := problem.Calculate(expression)
		if err != nil {
			return
		}
		// A result is an expression again, and stands for itself.
		if again, err := problem.Calculate(got); err != nil || again != got {
			t.Errorf("Calculate(%q) = %q, and of that %q, %v", expression, got, again, err)
		}
	})
}
