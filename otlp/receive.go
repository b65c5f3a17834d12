package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"agentlightning/store"
)

// Receiver stores what exporters send, whichever way it came.
type Receiver struct {
	spans  SpanWriter
	log    *slog.Logger
	permit func(context.Context, store.Attempted) error
}

// NewReceiver returns a receiver. MaxBody is of no interest to it.
func NewReceiver(spans SpanWriter, config Config) *Receiver {
	r := &Receiver{spans, config.Logger, config.Permit}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r
}

// Rejected is what an export left out.
type Rejected struct {
	Spans  int64
	Reason string // empty when nothing was left out
}

// MarshalProto returns the answer to the export in protobuf: nothing at all when
// all of it was stored, else a partial success.
func (r Rejected) MarshalProto() []byte {
	if r.Spans == 0 {
		return nil
	}
	partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(r.Spans))
	partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType), r.Reason)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
}

func (r *Rejected) add(err error) {
	if r.Spans == 0 {
		r.Reason = err.Error()
	}
	r.Spans++
}

// Receive numbers the spans that need it, stores them and counts those that
// were refused. An error means that nothing was stored.
func (r *Receiver) Receive(ctx context.Context, traces ptrace.Traces) (Rejected, error) {
	var out Rejected
	in := FromTraces(traces)
	if in.Strays > 0 {
		r.log.WarnContext(ctx, "spans name no rollout or no attempt and are left out", "spans", in.Strays)
	}
	if r.permit != nil {
		in = r.permitted(ctx, in, &out)
	}
	if err := r.store(ctx, in, &out); err != nil {
		return out, err
	}
	if out.Spans > 1 {
		out.Reason = fmt.Sprintf("%d spans were not stored; the first: %s", out.Spans, out.Reason)
	}
	if out.Spans > 0 {
		r.log.WarnContext(ctx, "spans of an export were rejected", "spans", out.Spans, "err", out.Reason)
	}
	return out, nil
}

// permitted leaves out what the caller may not store, before it is numbered.
func (r *Receiver) permitted(ctx context.Context, in Spans, out *Rejected) Spans {
	kept := Spans{Strays: in.Strays, Spans: in.Spans[:0:0]}
	for i := range in.Spans {
		at := store.Attempted{RolloutID: in.Spans[i].RolloutID, AttemptID: in.Spans[i].AttemptID}
		if err := r.permit(ctx, at); err != nil {
			out.add(err)
			continue
		}
		if _, found := slices.BinarySearch(in.Unnumbered, i); found {
			kept.Unnumbered = append(kept.Unnumbered, len(kept.Spans))
		}
		kept.Spans = append(kept.Spans, in.Spans[i])
	}
	return kept
}

func (r *Receiver) store(ctx context.Context, in Spans, out *Rejected) error {
	if len(in.Unnumbered) > 0 {
		attempts := make([]store.Attempted, len(in.Unnumbered))
		for i, at := range in.Unnumbered {
			attempts[i] = store.Attempted{RolloutID: in.Spans[at].RolloutID, AttemptID: in.Spans[at].AttemptID}
		}
		ids, err := r.spans.NextSequenceIDs(ctx, attempts)
		if err != nil {
			return fmt.Errorf("number the spans of an export: %w", err)
		}
		for i, at := range in.Unnumbered {
			in.Spans[at].SequenceID = ids[i]
		}
	}
	if len(in.Spans) == 0 {
		return nil
	}
	added, err := r.spans.AddSpans(ctx, in.Spans)
	if err != nil {
		return fmt.Errorf("store the spans of an export: %w", err)
	}
	for i := range added {
		if added[i].Err != nil {
			out.add(added[i].Err)
		}
	}
	return nil
}
