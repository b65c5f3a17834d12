package sqlite

import (
	"context"
	"errors"
	"hash/maphash"
	"strconv"
	"strings"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

const (
	// streamRows and streamBytes bound what a stream has in memory beside the
	// keys of its rows: a part is complete when it has either.
	streamRows  = 256
	streamBytes = 1 << 20
)

var _ engine.Streamer = (*Backend)(nil)

// StreamSpans implements [engine.Streamer].
func (b *Backend) StreamSpans(ctx context.Context, q store.SpanQuery, f func(store.SpanJSON) error) (int, error) {
	keys, total, err := b.keys(ctx, spanSelection(&q), "seq", func(row row) streamKey { return streamKey{seq: row.int(0)} })
	if err != nil {
		return 0, err
	}
	for len(keys) > 0 {
		var part []store.SpanJSON
		read := func(r reader, list string) (int, error) {
			return r.part(func(row row) (int, error) {
				part = append(part, store.SpanJSON(row.text(1)))
				return len(part[len(part)-1]), nil
			}, selectSpanBodies, list, q.RolloutID)
		}
		if keys, err = b.nextPart(ctx, keys, read); err != nil {
			return 0, err
		}
		for _, span := range part {
			if err := f(span); err != nil {
				return 0, err
			}
		}
	}
	return total, nil
}

// StreamRollouts implements [engine.Streamer].
func (b *Backend) StreamRollouts(ctx context.Context, q store.RolloutQuery, f func(*agl.AttemptedRollout) error) (int, error) {
	seed := maphash.MakeSeed()
	keys, total, err := b.keys(ctx, rolloutSelection(&q), "seq, rollout_id", func(row row) streamKey {
		return streamKey{row.int(0), maphash.String(seed, row.text(1))}
	})
	if err != nil {
		return 0, err
	}
	for len(keys) > 0 {
		var part []agl.AttemptedRollout
		read := func(r reader, list string) (int, error) {
			var rollouts []agl.Rollout
			n, err := r.part(func(row row) (int, error) {
				ro, err := r.c.scanRollout(row[1:])
				if err != nil || maphash.String(seed, ro.RolloutID) != keys[row.int(0)].name {
					return 0, err
				}
				rollouts = append(rollouts, ro)
				return len(ro.Input) + len(ro.Metadata), nil
			}, selectRolloutsBySeq, list)
			if err != nil {
				return 0, err
			}
			part, err = r.withAttempts(rollouts)
			return n, err
		}
		if keys, err = b.nextPart(ctx, keys, read); err != nil {
			return 0, err
		}
		for i := range part {
			if err := f(&part[i]); err != nil {
				return 0, err
			}
		}
	}
	return total, nil
}

// streamKey is a row that a stream is going to read.
type streamKey struct {
	seq int64
	// name is a hash of the id of a rollout: the seq of one that is deleted is
	// used again, for another one.
	name uint64
}

// keys lists the rows of a selection, and counts the matches.
func (b *Backend) keys(ctx context.Context, s selection, columns string, scan func(row) streamKey) (keys []streamKey, total int, err error) {
	err = b.View(ctx, func(r engine.Reader) error {
		page, err := fetch(r.(reader).c, s, columns, func(row row) (streamKey, error) { return scan(row), nil })
		keys, total = page.Items, page.Total
		return err
	})
	return keys, total, err
}

// nextPart reads the next rows of a list of keys and returns the keys after
// them. Read is given the list and tells how many of it it has dealt with.
func (b *Backend) nextPart(ctx context.Context, keys []streamKey, read func(r reader, list string) (int, error)) ([]streamKey, error) {
	n := min(len(keys), streamRows)
	var list strings.Builder
	for i, key := range keys[:n] {
		list.WriteByte("[,"[min(i, 1)])
		list.WriteString(strconv.FormatInt(key.seq, 10))
	}
	list.WriteByte(']')
	err := b.View(ctx, func(r engine.Reader) (err error) {
		n, err = read(r.(reader), list.String())
		return err
	})
	return keys[n:], err
}

// errPartFull ends a query whose part has enough.
var errPartFull = errors.New("the part has enough")

// part reads rows, whose first column is their place in the list that was asked
// for, until they have enough bytes, and returns the number of places that are
// dealt with. Rows that are gone leave no trace.
func (r reader) part(scan func(row) (bytes int, err error), sql, list string, args ...any) (int, error) {
	places, bytes := strings.Count(list, ",")+1, 0
	err := r.c.query(func(row row) error {
		n, err := scan(row)
		if bytes += n; err == nil && bytes >= streamBytes {
			places = int(row.int(0)) + 1
			err = errPartFull
		}
		return err
	}, sql, append([]any{list}, args...)...)
	if errors.Is(err, errPartFull) {
		err = nil
	}
	return places, err
}
