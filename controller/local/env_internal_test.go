package local

import "testing"

func TestMapped(t *testing.T) {
	t.Parallel()
	input := []byte(`{"q":"x \"é\"\n","n":1,"f":1.0,"e":1e2,"big":123456789012345678901234567890,"l":[0,{"a":null,"b":[]}],"t":true,"o":{"x y":"<&>"},"":{"1":"one"}}`)
	for path, want := range map[string]string{
		"input.q":      "x \"é\"\n",
		"input.n":      "1",
		"input.f":      "1.0",
		"input.e":      "100.0",
		"input.big":    "123456789012345678901234567890",
		"input.l":      `[0, {"a": null, "b": []}]`,
		"input.l.1.a":  "null",
		"input.t":      "true",
		"input.o":      `{"x y": "<&>"}`,
		"input.o.x y":  "<&>",
		"input..1":     "one",
		"literal":      "literal",
		"inputs.q":     "inputs.q",
		"":             "",
		"INPUT":        "INPUT",
		"input.l.1.b":  "[]",
		"input.l.0":    "0",
		"input.l.0000": "0",
	} {
		if got, err := mapped(input, path); err != nil || got != want {
			t.Errorf("mapped(%q) = %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"input.x", "input.l.2", "input.l.-1", "input.l.a", "input.q.0", "input.l.1.a.b"} {
		if got, err := mapped(input, path); err == nil || err.Error() != "local.env_map path not found: "+path {
			t.Errorf("mapped(%q) = %q, %v, want the path in the error", path, got, err)
		}
	}
	if got, err := mapped([]byte(`"text"`), "input"); err != nil || got != "text" {
		t.Errorf("an input that is text: %q, %v", got, err)
	}
	if got, err := mapped([]byte(`{"q":"x","l":[0,1]}`), "input"); err != nil || got != `{"q": "x", "l": [0, 1]}` {
		t.Errorf("the whole input: %q, %v", got, err)
	}
	for shell, want := range map[int]int{0: 0, 1: 1, 127: 127, 128: 128, 137: -9, 159: -31, 160: 160, 255: 255} {
		if got := signalled(shell); got != want {
			t.Errorf("signalled(%d) = %d, want %d", shell, got, want)
		}
	}
}
