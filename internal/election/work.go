package election

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/internal/gate"
)

// ErrOverrun is reported when work runs on after its term.
var ErrOverrun = errors.New("elector: the work runs on after its term")

// An Overrun is the report of work that runs on.
type Overrun struct {
	Since     time.Time       // the end of the term
	Returned  <-chan struct{} // closed when the work has returned
	Meanwhile string          // what that means for others
}

func (o *Overrun) Error() string {
	return fmt.Sprintf("%v: it has not returned %v after its context was cancelled: %s", ErrOverrun, time.Since(o.Since).Round(time.Millisecond), o.Meanwhile)
}

func (o *Overrun) Unwrap() error { return ErrOverrun }

// instant is what work gets to return if nothing is left of the drain: in a process that stood still it could not return
// before.
const instant = 100 * time.Millisecond

// Begin reports whether work may begin: only while the term is valid. If so, Finish must follow. The lock is not released
// before Finish.
func (t *Term) Begin() bool { return t.work.Begin(t.Valid) }

// Finish ends work that has begun.
func (t *Term) Finish() { t.work.Finish() }

// awaitWork waits until the work has returned, however long that takes. If the work overruns, awaitWork reports it: once while
// the lock is held and nobody else can lead, and once when another may lead. The caller of Campaign has the drain, unless it
// resigns before.
func (t *Term) awaitWork(o Observer) {
	t.work.Close()
	began, lease, lost := time.Now(), t.lock.s.proof.Lease, t.lock.s.ctx.Done()
	defer time.AfterFunc(lease.Drain, t.returned).Stop()
	var reports sync.WaitGroup
	defer reports.Wait()
	overruns := func(meanwhile string) bool {
		if t.returned(); t.work.IsIdle() {
			return false
		}
		reports.Go(func() {
			o.Failed("work", &Overrun{Since: began, Returned: t.work.Idle(), Meanwhile: meanwhile})
		})
		return true
	}
	select {
	case <-t.work.Idle():
		return
	case <-lost:
	case <-time.After(max(lease.Drain, lease.Heartbeat)): // a drain of 0 leaves work no time to return
		if !overruns("the lock stays held, so nobody else can lead until it returns, unless the session ends before") {
			return
		}
		select {
		case <-t.work.Idle():
			return
		case <-lost:
		}
	}
	left := max(t.lock.s.proof.DrainLeft(), instant)
	if t.byHand { // nobody sees the work return, and the lock may still be held
		left = max(left, lease.Drain-time.Since(began))
	}
	select {
	case <-t.work.Idle():
	case <-time.After(left):
		if overruns("its session has ended, so another may lead now") {
			<-t.work.Idle()
		}
	}
}

// BeginAny is Begin for work that may begin even if the term has ended, such as telling the hooks of the term.
func (t *Term) BeginAny() bool { return t.work.Begin(gate.Always) }

// WorkReturned is called by a caller of Campaign or TryCampaign whose work has returned.
func (t *Term) WorkReturned() { t.returned() }
