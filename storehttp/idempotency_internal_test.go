package storehttp

import (
	"context"
	"strconv"
	"testing"
	"time"
)

// TestKeyringIsBounded remembers many short answers, such as those to spans: it
// is not only their bodies that take memory.
func TestKeyringIsBounded(t *testing.T) {
	t.Parallel()
	k := newKeyring(time.Hour)
	null := func(context.Context) answer { return created([]byte("null")) }
	const n = 2 * maxKept / keptOverhead
	for i := range n {
		k.once(t.Context(), strconv.Itoa(i), nil, null)
	}
	if most := maxKept/keptOverhead + 1; len(k.answers) > most || len(k.answers) != len(k.order) || len(k.answers) < most/2 {
		t.Errorf("%d answers in %d entries are kept, want close to %d", len(k.answers), len(k.order), most)
	}
	ran := false
	k.once(t.Context(), strconv.Itoa(n-1), nil, func(context.Context) answer { ran = true; return created(nil) })
	if ran {
		t.Error("the newest answer is not kept")
	}
}
