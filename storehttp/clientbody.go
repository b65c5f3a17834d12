package storehttp

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

// bodyWriter writes an object member by member. The zero value is not ready, see newBody.
type bodyWriter struct {
	dst []byte
	err error
}

func newBody() *bodyWriter { return &bodyWriter{dst: []byte{'{'}} }

func (b *bodyWriter) name(name string) {
	if len(b.dst) > 1 {
		b.dst = append(b.dst, ',')
	}
	b.dst = append(append(append(b.dst, '"'), name...), `":`...)
}

func (b *bodyWriter) string(name, s string) {
	b.name(name)
	b.dst = jsonx.AppendString(b.dst, s)
}

// word writes a status or a mode, of which the empty one is null.
func (b *bodyWriter) word(name, s string) {
	b.name(name)
	b.dst = appendWord(b.dst, s)
}

func appendWord(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return jsonx.AppendString(dst, s)
}

func (b *bodyWriter) optional(name string, s *string) {
	b.name(name)
	b.dst = jsonx.AppendOptionalString(b.dst, s)
}

func (b *bodyWriter) float(name string, f float64) {
	b.name(name)
	b.dst = jsonx.AppendFloat(b.dst, f)
}

// raw writes a value that should be JSON already; empty is null.
func (b *bodyWriter) raw(name string, raw []byte) {
	if len(raw) > 0 && b.err == nil {
		if err := jsonx.Check(raw); err != nil {
			b.err = invalid("%s is not JSON: %v", name, err)
		}
	}
	b.name(name)
	b.dst = jsonx.AppendRaw(b.dst, raw)
}

func (b *bodyWriter) close() ([]byte, error) { return append(b.dst, '}'), b.err }

// words writes a list of strings.
func words[T ~string](b *bodyWriter, name string, list []T) {
	b.name(name)
	b.dst = appendItems(b.dst, list, func(w *T, dst []byte) []byte { return jsonx.AppendString(dst, string(*w)) })
}

// filter writes a condition unless there is none.
func (b *bodyWriter) filter(name string, s *string) {
	if s != nil {
		b.string(name, *s)
	}
}

// paging writes how the result is ordered and cut.
func (b *bodyWriter) paging(p store.Paging) {
	b.name("sort_by")
	b.dst = appendWord(b.dst, p.SortBy)
	if p.Desc {
		b.string("sort_order", "desc")
	}
	if p.Any {
		b.string("filter_logic", "or")
	}
	if p.Limit > 0 {
		b.name("limit")
		b.dst = strconv.AppendInt(b.dst, int64(p.Limit), 10)
	}
	if p.Offset != 0 {
		b.name("offset")
		b.dst = strconv.AppendInt(b.dst, int64(p.Offset), 10)
	}
}

// queryPage asks for a page by the search form of a route.
func queryPage[T any](ctx context.Context, c *Client, path string, b *bodyWriter) (store.Page[T], error) {
	body, err := b.close()
	if err != nil {
		return store.Page[T]{}, err
	}
	rep, err := c.do(ctx, &request{method: "POST", path: path, body: body})
	if err != nil {
		return store.Page[T]{}, err
	}
	return decodePage[T](rep.body)
}

func decodePage[T any](body []byte) (store.Page[T], error) {
	w := struct {
		Items []T `json:"items"`
		Total int `json:"total"`
	}{Items: []T{}}
	if err := json.Unmarshal(body, &w); err != nil {
		return store.Page[T]{}, fmt.Errorf("page of items: %w", err)
	}
	return store.Page[T]{Items: w.Items, Total: w.Total}, nil
}
