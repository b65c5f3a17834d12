package storehttp

import "sync"

// maxBuffer is up to which size a buffer is kept for the next request.
const maxBuffer = 64 << 10

// buffers keeps the buffers of requests for those that come after.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[]byte {
	if buffer, ok := b.pool.Get().(*[]byte); ok {
		return buffer
	}
	return new([]byte)
}

func (b *buffers) put(buffer *[]byte) {
	if cap(*buffer) <= maxBuffer {
		b.pool.Put(buffer)
	}
}
