package sqlite

import (
	"fmt"
	"os"
	"sync"
)

// syncer makes the writer's groups durable, one after the other, on a goroutine
// of its own. The commit of a group has put it into the log, where readers see it
// and where it survives the end of the process; the syncer waits until the log
// is on the disk, and only then are callers answered.
type syncer struct {
	flush  func() error // the log to the disk
	answer func(g *group, err error)

	work chan *group
	// free holds an entry while no group is under way. The writer takes it
	// before it commits.
	free chan struct{}
	done chan struct{} // closed when the goroutine has ended

	mu        sync.Mutex
	moved     sync.Cond
	committed int64 // number of the last group that was, or is about to be, committed
	durable   int64 // of those, the last one on the disk
	failed    error // for good
}

func newSyncer(flush func() error, answer func(*group, error)) *syncer {
	s := &syncer{
		flush: flush, answer: answer,
		work: make(chan *group, 1), free: make(chan struct{}, 1), done: make(chan struct{}),
	}
	s.moved.L = &s.mu
	s.free <- struct{}{}
	return s
}

// run is the syncer's goroutine; it ends after stop.
func (s *syncer) run() {
	defer close(s.done)
	for g := range s.work {
		err := s.flush()
		if err != nil {
			// The kernel may have dropped what it could not write, so that
			// another attempt would only seem to succeed.
			err = fmt.Errorf("cannot make writes durable: %w; check the disk and start the server again", err)
			s.mu.Lock()
			s.failed = err
			s.mu.Unlock()
		}
		s.free <- struct{}{} // the writer may commit the next group
		s.answer(g, err)     // before readers go on, who are not to find less at hand than they saw
		s.reach(g.number)
	}
}

func (s *syncer) stop() {
	<-s.free
	close(s.work)
	<-s.done
}

// begin numbers a group that is about to be committed. Once a flush has failed
// there are no more.
func (s *syncer) begin(g *group) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	s.committed++
	g.number = s.committed
	return nil
}

// reach notes that groups up to a number are durable, or not there at all.
func (s *syncer) reach(number int64) {
	s.mu.Lock()
	s.durable = max(s.durable, number) // a group that failed to commit may be noted first
	s.mu.Unlock()
	s.moved.Broadcast()
}

// await waits until everything that is committed is durable.
func (s *syncer) await() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seen := s.committed; s.durable < seen; {
		s.moved.Wait()
	}
}

// flush returns what makes the log durable, nil when that is not asked for.
func (b *Backend) flush() func() error {
	if b.cfg.Sync != SyncFull {
		return nil
	}
	return func() (err error) {
		if b.log == nil { // it exists since the first commit, and until Close
			if b.log, err = os.OpenFile(b.cfg.Path+"-wal", os.O_RDWR, 0); err != nil {
				return err
			}
		}
		return syncData(b.log)
	}
}

// closeLog is called when nothing is flushed any more.
func (b *Backend) closeLog() error {
	if b.log == nil {
		return nil
	}
	return b.log.Close()
}
