package sqlite

import (
	"context"
	"errors"
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
	keys, total, err := b.keys(ctx, spanSelection(&q))
	if err != nil {
		return 0, err
	}
	for len(keys) > 0 {
		var part []store.SpanJSON
		read := func(r reader, list string) (int, error) {
			return r.part(selectSpanBodies, list, func(row row) (int, error) {
				part = append(part, store.SpanJSON(row.text(1)))
				return len(part[len(part)-1]), nil
			})
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
	keys, total, err := b.keys(ctx, rolloutSelection(&q))
	if err != nil {
		return 0, err
	}
	for len(keys) > 0 {
		var part []agl.AttemptedRollout
		read := func(r reader, list string) (int, error) {
			var rollouts []agl.Rollout
			n, err := r.part(selectRolloutsBySeq, list, func(row row) (int, error) {
				ro, err := r.c.scanRollout(row[1:])
				rollouts = append(rollouts, ro)
				return len(ro.Input) + len(ro.Metadata), err
			})
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

// keys lists the rows of a selection by their seq, and counts the matches.
func (b *Backend) keys(ctx context.Context, s selection) (keys []int64, total int, err error) {
	err = b.View(ctx, func(r engine.Reader) error {
		page, err := fetch(r.(reader).c, s, "seq", func(row row) (int64, error) { return row.int(0), nil })
		keys, total = page.Items, page.Total
		return err
	})
	return keys, total, err
}

// nextPart reads the next rows of a list of keys and returns the keys after
// them. Read is given the list and tells how many of it it has dealt with.
func (b *Backend) nextPart(ctx context.Context, keys []int64, read func(r reader, list string) (int, error)) ([]int64, error) {
	n := min(len(keys), streamRows)
	var list strings.Builder
	for i, key := range keys[:n] {
		list.WriteByte("[,"[min(i, 1)])
		list.WriteString(strconv.FormatInt(key, 10))
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
func (r reader) part(sql, list string, scan func(row) (bytes int, err error)) (int, error) {
	places, bytes := strings.Count(list, ",")+1, 0
	err := r.c.query(func(row row) error {
		n, err := scan(row)
		if bytes += n; err == nil && bytes >= streamBytes {
			places = int(row.int(0)) + 1
			err = errPartFull
		}
		return err
	}, sql, list)
	if errors.Is(err, errPartFull) {
		err = nil
	}
	return places, err
}
