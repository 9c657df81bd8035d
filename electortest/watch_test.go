package electortest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
)

var scopes = map[string]elector.Option{"in a session": elector.WithScope(elector.SessionScope), "in a transaction": inside}

// A watch records what its candidate sends.
type watch struct {
	*candidate
	waited chan struct{} // receives after each wait, if there is room
	mu     sync.Mutex
	seen   record
}

// A record is what a candidate has sent.
type record struct {
	waits     int // of the watcher
	prepared  int // each watch begins with one, and each wait inside a transaction
	connected int
	oldest    time.Duration // age of a transaction that was rolled back
	outside   bool          // a wait was outside a transaction
	reads     bool          // pg_locks was read inside one, which keeps a lock of it
}

// sent returns the record when nothing is under way.
func (w *watch) sent() record {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// watches returns a candidate that watches its session.
func (b *bench) watches(next wire, opts ...elector.Option) *watch {
	w := &watch{waited: make(chan struct{}, 1)}
	w.candidate = b.wired(func(m message, send func() error) error {
		w.mu.Lock()
		switch m.name {
		case "CONNECT":
			w.seen.connected++
		case "PrepareWait":
			w.seen.prepared++
		case "WaitLock":
			w.seen.waits++
			w.seen.outside = w.seen.outside || !m.inTx
		case "HoldsPair":
			w.seen.reads = w.seen.reads || m.inTx
		case "ROLLBACK":
			w.seen.oldest = max(w.seen.oldest, time.Since(m.begun))
		}
		w.mu.Unlock()
		err := next(m, send)
		if m.name == "WaitLock" {
			select {
			case w.waited <- struct{}{}:
			default:
			}
		}
		return err
	}, "one", append(opts, elector.WithWatch())...)
	return w
}

func passes(_ message, send func() error) error { return send() }

// The watcher asks the server once each heartbeat interval, and on one connection. In transaction
// scope no transaction of it lasts longer.
func TestAWatcherWaitsForOneHeartbeatIntervalAtATime(t *testing.T) {
	for name, scope := range scopes {
		scene(t, name, func(b *bench) {
			w := b.watches(passes, scope)
			term := b.campaign(w.Elector)
			time.Sleep(3 * heartbeat / 2)
			before := w.sent()
			time.Sleep(10 * heartbeat)
			after := w.sent()
			if n := after.waits - before.waits; n != 10 || after.connected != before.connected {
				b.Errorf("%d waits in 10 intervals, and %d more connections", n, after.connected-before.connected)
			}
			if n := len(w.rec.Heartbeats()); n != 11 {
				b.Errorf("%d heartbeats in 11 intervals", n)
			}
			b.wraps(term.Resign(always))
			time.Sleep(grace)
			all := w.sent()
			if b.within("its oldest transaction ends", 0, all.oldest, heartbeat); all.reads {
				b.Error("it read pg_locks inside a transaction")
			}
			b.failed(w.candidate)
		})
	}
}

// The end may come just after a wait has ended.
func TestAWatcherLearnsOfTheEndAtOnceWheneverItComes(t *testing.T) {
	for name, scope := range scopes {
		scene(t, name, func(b *bench) {
			w := b.watches(passes, scope)
			term := b.campaign(w.Elector)
			leader := b.pid(w.candidate)
			b.watcher()
			<-w.waited
			time.Sleep(10 * time.Millisecond)
			ended := time.Now()
			b.Terminate(leader)
			<-term.Context().Done()
			b.within("it learns it", 0, time.Since(ended), time.Millisecond)
			b.wraps(term.Resign(always), elector.ErrNotLeader)
			b.wraps(context.Cause(term.Context()), elector.ErrSessionLost)
		})
	}
}

// An administrator may cancel the watcher's statement.
func TestAWatcherThatIsCancelledWaitsAgainAndDoesNotSpin(t *testing.T) {
	for name, scope := range scopes {
		scene(t, name, func(b *bench) {
			w := b.watches(passes, scope)
			term := b.campaign(w.Elector)
			leader, watcher := b.pid(w.candidate), b.watcher()
			before := w.sent().waits
			for range 1000 {
				b.Cancel(watcher)
				time.Sleep(time.Millisecond)
			}
			if n := w.sent().waits - before; n < 8 || n > 11 {
				b.Errorf("%d waits within a second", n)
			}
			b.failed(w.candidate)
			time.Sleep(time.Second)
			ended := time.Now()
			b.Terminate(leader)
			<-term.Context().Done()
			b.within("it learns it", 0, time.Since(ended), time.Millisecond)
			b.wraps(term.Resign(always), elector.ErrNotLeader)
		})
	}
}

// The server is done with the COMMIT that ends a term, and grants the watcher its lock. The answer
// comes later.
func TestAWatchedLeaderThatResignsIsNotReportedLost(t *testing.T) {
	for name, scope := range scopes {
		scene(t, name, func(b *bench) {
			var resigns atomic.Bool
			w := b.watches(func(m message, send func() error) error {
				err := send()
				if (m.name == "COMMIT" || m.name == "Unlock") && resigns.CompareAndSwap(true, false) {
					time.Sleep(2 * heartbeat)
				}
				return err
			}, scope)
			term := b.campaign(w.Elector)
			b.watcher()
			prepared := w.sent().prepared
			resigns.Store(true)
			b.wraps(term.Resign(always))
			if w.sent().prepared != prepared {
				b.Error("it was watched again")
			}
			b.failed(w.candidate)
		})
	}
}

// Through a pooler, a statement outside a transaction may reach any backend.
func TestAWatcherInATransactionNeverWaitsOutsideOne(t *testing.T) {
	for _, name := range []string{"BEGIN", "PrepareWait", "RepeatableRead"} {
		scene(t, name, func(b *bench) {
			var refuses atomic.Bool
			w := b.watches(func(m message, send func() error) error {
				if m.name == name && refuses.CompareAndSwap(true, false) {
					return errors.New("refused")
				}
				return send()
			}, inside)
			term := b.campaign(w.Elector)
			leader := b.pid(w.candidate)
			b.watcher()
			refuses.Store(true) // when it begins the next
			time.Sleep(10 * heartbeat)
			if outside := w.sent().outside; outside || refuses.Load() {
				b.Errorf("it waited outside a transaction: %t; refuses still: %t", outside, refuses.Load())
			}
			b.failed(w.candidate)
			ended := time.Now()
			b.Terminate(leader)
			<-term.Context().Done()
			b.within("it learns it", 0, time.Since(ended), time.Millisecond)
			b.wraps(term.Resign(always), elector.ErrNotLeader)
		})
	}
}
