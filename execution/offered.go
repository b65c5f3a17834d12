package execution

import (
	"context"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

// offered is a store as it is served to runners elsewhere: once the algorithm is
// done, it tells them that the run has ended.
type offered struct {
	store.Store

	ended chan struct{} // closed when the run has ended

	mu   sync.Mutex
	told map[string]bool // workers that came for work; true once they were told
}

// endWith ends the run with the algorithm, unless that was interrupted: then it
// may go on later, and runners wait for it.
func (o *offered) endWith(algorithm func(context.Context, store.Store) error) func(context.Context, store.Store) error {
	if algorithm == nil {
		return nil
	}
	return func(ctx context.Context, s store.Store) error {
		err := algorithm(ctx, s)
		if ctx.Err() == nil {
			close(o.ended)
		}
		return err
	}
}

// over reports whether the run has ended.
func (o *offered) over() bool {
	select {
	case <-o.ended:
		return true
	default:
		return false
	}
}

// Runners that come for work are told at once, those that are busy when they next
// look after their rollouts.
const (
	toldWithin = 2 * time.Second
	toldLook   = 20 * time.Millisecond
)

// awaitTold waits until every runner that came for work knows that there is no
// more, and has said how its agents ended, but not for long: some are gone.
func (o *offered) awaitTold(ctx context.Context) {
	if !o.over() {
		return
	}
	limit := time.NewTimer(stopServer)
	defer limit.Stop()
	tick := time.NewTicker(toldLook)
	defer tick.Stop()
	for began := time.Now(); ; {
		if all := o.allTold(); (all || time.Since(began) > toldWithin) && o.quiet(ctx) {
			return
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (o *offered) allTold() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, told := range o.told {
		if !told {
			return false
		}
	}
	return true
}

// quiet reports whether no attempt is under way.
func (o *offered) quiet(ctx context.Context) bool {
	page, err := o.Store.QueryRollouts(ctx, store.RolloutQuery{
		StatusIn: []agl.RolloutStatus{agl.RolloutPreparing, agl.RolloutRunning}, Paging: store.Paging{Limit: 1},
	})
	return err != nil || len(page.Items) == 0
}

// came notes a worker, and whether it was told.
func (o *offered) came(worker *string, told bool) {
	name := ""
	if worker != nil {
		name = *worker
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told[name] = told
}

// DequeueRollouts ends with [store.ErrEnded] when the run does.
func (o *offered) DequeueRollouts(ctx context.Context, req store.DequeueRequest) ([]agl.AttemptedRollout, error) {
	over := o.over()
	o.came(req.WorkerID, over)
	if over {
		return nil, store.ErrEnded
	}
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan struct{})
	defer close(done)
	go func() { // ends with this call
		select {
		case <-o.ended:
			stop(store.ErrEnded)
		case <-done:
		}
	}()
	claimed, err := o.Store.DequeueRollouts(waiting, req)
	if err != nil && o.over() && ctx.Err() == nil {
		o.came(req.WorkerID, true)
		return nil, store.ErrEnded
	}
	return claimed, err
}

// QueryRollouts, with which runners look whether their rollouts were cancelled,
// says that all are.
func (o *offered) QueryRollouts(ctx context.Context, q store.RolloutQuery) (store.Page[agl.AttemptedRollout], error) {
	if o.over() {
		return store.Page[agl.AttemptedRollout]{}, store.ErrEnded
	}
	return o.Store.QueryRollouts(ctx, q)
}
