package jsonx

import (
	"bytes"
	"strconv"
)

// Builder writes JSON by appending to Bytes and puts the commas. It does not
// check that what is opened is closed. The zero value is ready for use.
type Builder struct {
	Bytes []byte
}

// next puts a comma where the value or key that comes is not the first.
func (b *Builder) next() {
	if n := len(b.Bytes); n > 0 {
		switch b.Bytes[n-1] {
		case '{', '[', ':', ' ', '\n':
		default:
			b.Bytes = append(b.Bytes, ',')
		}
	}
}

// Open begins an object or a list; bracket is '{' or '['.
func (b *Builder) Open(bracket byte) *Builder {
	b.next()
	b.Bytes = append(b.Bytes, bracket)
	return b
}

// Close ends an object or a list; bracket is '}' or ']'.
func (b *Builder) Close(bracket byte) *Builder {
	b.Bytes = append(b.Bytes, bracket)
	return b
}

// Key begins a member.
func (b *Builder) Key(key string) *Builder {
	b.next()
	b.Bytes = append(AppendString(b.Bytes, key), ':')
	return b
}

// Text adds a string.
func (b *Builder) Text(s string) *Builder {
	b.next()
	b.Bytes = AppendString(b.Bytes, s)
	return b
}

// Raw adds a value that is JSON already, null when it is nil.
func (b *Builder) Raw(value []byte) *Builder {
	b.next()
	b.Bytes = AppendRaw(b.Bytes, bytes.TrimSpace(value)) // next reads the last byte
	return b
}

// Int adds a whole number.
func (b *Builder) Int(n int64) *Builder {
	b.next()
	b.Bytes = strconv.AppendInt(b.Bytes, n, 10)
	return b
}

// Word adds null, true or false.
func (b *Builder) Word(word string) *Builder {
	b.next()
	b.Bytes = append(b.Bytes, word...)
	return b
}
