package jsonx_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/internal/jsonx"
)

func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		src    string
		ints   []int64
		floats []float64
		ok     bool
	}{
		{"[1]", []int64{1}, nil, true},
		{" [ 1 , -2,9223372036854775807 ] ", []int64{1, -2, 9223372036854775807}, nil, true},
		{"[1,2.0,3]", nil, []float64{1, 2, 3}, true},
		{"[-0.5,1e3]", nil, []float64{-0.5, 1000}, true},
		{"[]", nil, nil, false},
		{"[9223372036854775808]", nil, nil, false},
		{"[1e999]", nil, nil, false},
		{"[1,NaN]", nil, nil, false},
		{"[1,-Infinity]", nil, nil, false},
		{"[1,true]", nil, nil, false},
		{`[1,"2"]`, nil, nil, false},
		{"[1,null]", nil, nil, false},
		{"[[1]]", nil, nil, false},
		{"1", nil, nil, false},
		{"[1,", nil, nil, false},
		{"[1 2]", nil, nil, false},
		{"", nil, nil, false},
	} {
		ints, floats, ok := jsonx.Numbers([]byte(tt.src))
		if ok != tt.ok {
			t.Errorf("Numbers(%q) is ok = %t, want %t", tt.src, ok, tt.ok)
		}
		if !ok {
			continue
		}
		if floats != nil {
			ints = nil
		}
		if diff := cmp.Diff(tt.ints, ints) + cmp.Diff(tt.floats, floats); diff != "" {
			t.Errorf("Numbers(%q) (-want +got):\n%s", tt.src, diff)
		}
	}
}
