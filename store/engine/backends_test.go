package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(o storetest.Options) engine.Config {
	return engine.Config{Now: o.Now, HealthScanInterval: o.HealthScanInterval}
}

func openMemory(_ *testing.T, o storetest.Options) store.Store {
	return engine.New(memory.New(), config(o))
}

// twice runs every transaction two times and keeps the second, as a database
// does after a conflict.
type twice struct{ engine.Backend }

var errConflict = errors.New("conflict, run it again")

func (b twice) Update(ctx context.Context, f func(engine.Tx) error) error {
	var failed error
	err := b.Backend.Update(ctx, func(tx engine.Tx) error {
		if failed = f(tx); failed != nil {
			return failed
		}
		return errConflict
	})
	if failed != nil {
		return failed
	}
	if !errors.Is(err, errConflict) {
		return err
	}
	return b.Backend.Update(ctx, f)
}

func openTwice(_ *testing.T, o storetest.Options) store.Store {
	return engine.New(twice{memory.New()}, config(o))
}

func TestTransactionsMayRunTwice(t *testing.T) {
	storetest.Run(t, openTwice)
	storetest.DifferentialSeeds(t, 20, openMemory, openTwice)
}

func TestQueueIsLinearizable(t *testing.T) {
	storetest.Linearizable(t, openMemory)
}

// faulty fails the commit of transactions when it is told to.
type faulty struct {
	engine.Backend

	mu   sync.Mutex
	pass int // transactions that still succeed
	fail error
}

// breakWith makes commits fail after some that succeed; nil repairs the backend.
func (b *faulty) breakWith(err error, after int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail, b.pass = err, after
}

func (b *faulty) Update(ctx context.Context, f func(engine.Tx) error) error {
	b.mu.Lock()
	fail := b.fail
	if b.pass > 0 {
		b.pass--
		fail = nil
	}
	b.mu.Unlock()
	return b.Backend.Update(ctx, func(tx engine.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		return fail
	})
}
