package memory

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"slices"
	"unsafe"

	"agentlightning/store"
)

// Size is an amount of memory, made by [Bytes] or [Share]. The zero value
// stands for a default.
type Size struct {
	bytes int64
	share float64
	given bool
}

// Bytes is a number of bytes.
func Bytes(n int64) Size { return Size{bytes: n, given: true} }

// Share is a part of the memory that this process may use, from 0 to 1.
func Share(part float64) Size { return Size{share: part, given: true} }

// SpanLimits bound the memory that spans take.
type SpanLimits struct {
	// Evict is how much may be held; when it is more, the spans of whole
	// rollouts are dropped, the oldest first. The default is 0.7 of the memory.
	Evict Size
	// Safe is down to where they are dropped; it must be less than Evict. The
	// default is 0.8 of Evict.
	Safe Size
}

// spanLimits are the limits in bytes.
type spanLimits struct{ evict, safe, capacity int64 }

func (l SpanLimits) resolve() (spanLimits, error) {
	out := spanLimits{capacity: usable()}
	in := func(name string, s Size, least int64) (int64, error) {
		n := s.bytes
		if s.share != 0 {
			if !(s.share > 0 && s.share <= 1) {
				return 0, fmt.Errorf("memory: SpanLimits.%s is a share of %v: must be from 0 to 1", name, s.share)
			}
			n = int64(s.share * float64(out.capacity))
		}
		if n < least {
			return 0, fmt.Errorf("memory: SpanLimits.%s is %d bytes: must be %d or more", name, n, least)
		}
		return n, nil
	}
	if !l.Evict.given {
		l.Evict = Share(0.7)
	}
	var err error
	if out.evict, err = in("Evict", l.Evict, 1); err != nil {
		return out, err
	}
	if !l.Safe.given {
		l.Safe = Bytes(out.evict / 10 * 8)
	}
	if out.safe, err = in("Safe", l.Safe, 0); err != nil {
		return out, err
	}
	if out.safe >= out.evict {
		return out, fmt.Errorf("memory: SpanLimits.Safe is %d bytes: must be less than Evict, %d", out.safe, out.evict)
	}
	return out, nil
}

// usable is the memory that this process may use: that of the machine, its
// control group or GOMEMLIMIT, whichever is least.
func usable() int64 {
	return min(cmp.Or(machineMemory(), math.MaxInt64), debug.SetMemoryLimit(-1))
}

// spanOverhead is about what a span takes beside its JSON: itself, two pointers
// and its key.
const spanOverhead = int64(unsafe.Sizeof(store.EncodedSpan{})) + 120

func sizeOf(s *store.EncodedSpan) int64 { return int64(len(s.JSON)) + spanOverhead }

// evict drops spans of the oldest rollouts when there are too many. It runs once
// a transaction has succeeded, and is not undone.
func (s *state) evict(log *slog.Logger) {
	if s.spanBytes <= s.limits.evict {
		return
	}
	rows := make([]*rolloutRow, 0, len(s.rollouts))
	for _, row := range s.rollouts {
		if len(row.spans) > 0 {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b *rolloutRow) int {
		return cmp.Or(cmp.Compare(a.value.StartTime, b.value.StartTime), cmp.Compare(a.place, b.place))
	})
	rollouts, spans, bytes := 0, s.spans, s.spanBytes
	for _, row := range rows {
		if s.spanBytes <= s.limits.safe {
			break
		}
		rollouts++
		s.spans -= int64(len(row.spans))
		s.spanBytes -= row.bytes
		row.spans, row.byKey, row.byOwner, row.bytes = nil, nil, nil, 0
		row.evicted = true
	}
	log.Warn("memory is short; dropped the spans of the oldest rollouts", "rollouts", rollouts,
		"spans", spans-s.spans, "bytes", bytes-s.spanBytes, "bytes_left", s.spanBytes)
}
