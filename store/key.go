package store

import "context"

type keyKey struct{}

// WithKey returns a context whose next call that enqueues, starts, numbers, or
// adds spans or lines of a log, is done once, however often it is repeated with the same key and
// the same arguments: the repetition gets the answer of the first, also after
// the store was closed or killed in between, for ten minutes. With other
// arguments it is [ErrKeyReused]. What failed may be tried again. A key is for
// one call; [DequeueRequest] has a field of its own for it.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyKey{}, key)
}

// Key returns the key of a call, empty for none.
func Key(ctx context.Context) string {
	key, _ := ctx.Value(keyKey{}).(string)
	return key
}
