package memory_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/idle"
)

// pairs are the scopes of a leader and of its follower.
var pairs = map[string][2][]elector.Option{
	"in sessions":                     {nil, nil},
	"in transactions":                 {{inside}, {inside}},
	"from a session to a transaction": {nil, {inside}},
	"from a transaction to a session": {{inside}, nil},
}

// waiting returns the backends that wait for the lock.
func (b *bench) waiting(key int64) (pids []int32) {
	for _, l := range b.Locks() {
		if l.Key == key && !l.Granted {
			pids = append(pids, l.PID)
		}
	}
	return pids
}

// A deputy waits on the session that it has.
func TestATransferReachesAnyFollowerOnOneSession(t *testing.T) {
	for scope, opts := range pairs {
		for name, takeover := range map[string]elector.Takeover{"polls": elector.Poll, "tries": elector.Deputy, "waits": elector.Wait} {
			scene(t, name+", "+scope, func(b *bench) {
				one := b.run("one", opts[0]...)
				b.leads(one)
				two := b.run("two", append(slices.Clone(opts[1]), elector.WithTakeover(takeover))...)
				time.Sleep(retry)
				term, _ := one.Term()
				b.wraps(term.TransferTo(always, "two"))
				b.within("it leads", 0, b.leads(two), 20*time.Millisecond)
				time.Sleep(time.Second)
				b.ended(one, hooks.Resigned)
				b.failed(one)
				b.failed(two)
				if n := two.pool.Stats().InUse; n != 1 {
					b.Errorf("%d connections are in use", n)
				}
			})
		}
	}
}

// Its locks are the transaction's. The server would log a warning for each lock that is to be
// released and is not the session's.
func TestATransferInsideATransactionReleasesNoLockOfASession(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one", inside)
		b.leads(one)
		two := b.run("two", inside)
		time.Sleep(retry)
		b.Trace(func(e electortest.Event) {
			if e.What == "Unlock" || e.What == "UnlockTo" && slices.Contains(e.Args, any(true)) {
				b.Errorf("%s %v", e.What, e.Args)
			}
		})
		term, _ := one.Term()
		b.wraps(term.TransferTo(always, "two"))
		b.leads(two)
		ctx, cancel := context.WithTimeout(always, time.Second)
		defer cancel()
		term, _ = two.Term()
		b.wraps(term.TransferTo(ctx, "nobody"), elector.ErrNoSuccessor)
		b.wraps(term.Verify(always))
		b.wraps(term.Resign(always))
		b.leads(one)
		b.Trace(nil)
		b.ended(two, hooks.Resigned)
	})
}

// The wait of a successor may end just before the transaction does that it waits for. Then it
// tries the lock once more.
func TestATransferInsideATransactionReachesASuccessorWhoseWaitHasJustEnded(t *testing.T) {
	for latency := time.Millisecond; latency < 8*time.Millisecond; latency += 250 * time.Microsecond {
		scene(t, fmt.Sprint(latency), func(b *bench) {
			one := b.run("one", inside)
			b.leads(one)
			two := b.run("two", inside)
			time.Sleep(retry)
			one.process.SetLatency(func() time.Duration { return latency })
			two.process.SetLatency(func() time.Duration { return 4 * time.Millisecond })
			var ends atomic.Bool
			go func() {
				_, _ = one.RunIfLeader(always, func(ctx context.Context) error {
					<-ctx.Done()
					ends.Store(true)
					return nil
				})
			}()
			time.Sleep(time.Millisecond)
			b.Trace(func(e electortest.Event) {
				if e.What == "UnlockTo" && e.Done && ends.Swap(false) {
					go func() {
						for _, pid := range b.waiting(one.Key()) {
							b.Cancel(pid)
						}
					}()
				}
			})
			term, _ := one.Term()
			b.wraps(term.TransferTo(always, "two"))
			b.leads(two)
		})
	}
}

// A successor that has lost its connection waits again, while the lock is kept for it.
func TestALeaderInsideATransactionKeepsItsLockForASuccessorThatIsLost(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one", inside)
		b.leads(one)
		two := b.run("two", inside)
		b.run("other", inside, elector.WithTakeover(elector.Deputy))
		time.Sleep(retry)
		term, _ := one.Term()
		ran := make(chan error)
		go func() {
			_, err := one.RunIfLeader(always, func(ctx context.Context) error {
				<-ctx.Done()
				two.process.Freeze()
				for _, pid := range b.waiting(one.Key()) {
					b.Terminate(pid)
				}
				time.AfterFunc(heartbeat/2, two.process.Thaw)
				return nil
			})
			ran <- err
		}()
		time.Sleep(time.Millisecond)
		b.wraps(term.TransferTo(always, "two"))
		b.wraps(<-ran)
		b.leads(two)
	})
}

// A connection that has answered may be silent for as long as the server lets a successor wait.
func TestASuccessorMayWaitForLongOnANewSession(t *testing.T) {
	for scope, opts := range pairs {
		scene(t, scope, func(b *bench) {
			long := elector.WithLease(10 * time.Minute)
			one := b.run("one", append(slices.Clone(opts[0]), long)...)
			b.leads(one)
			two := b.run("two", append(slices.Clone(opts[1]), long, elector.WithTakeover(elector.Poll))...)
			time.Sleep(retry)
			go func() {
				_, _ = one.RunIfLeader(always, func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(2 * idle.AnswerWithin)
					return nil
				})
			}()
			time.Sleep(time.Millisecond)
			term, _ := one.Term()
			b.wraps(term.TransferTo(always, "two"))
			b.within("it leads", 0, b.leads(two), time.Minute)
			b.failed(two)
		})
	}
}

// Of two that wait for one term, the other one gives its connections back.
func TestASuccessorThatDoesNotGetTheLockKeepsNothing(t *testing.T) {
	for scope, opts := range pairs {
		scene(t, scope, func(b *bench) {
			one := b.run("one", opts[0]...)
			b.leads(one)
			opts := append(slices.Clone(opts[1]), elector.WithTakeover(elector.Poll))
			all := map[string]*candidate{"two": b.run("two", opts...), "three": b.run("three", opts...)}
			time.Sleep(retry)
			go func() {
				_, _ = one.RunIfLeader(always, func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(retry)
					return nil
				})
			}()
			time.Sleep(time.Millisecond)
			term, _ := one.Term()
			go func() { _ = term.TransferTo(always, "two") }()
			_ = term.TransferTo(always, "three")
			time.Sleep(lease)
			for id, c := range all {
				if n := c.pool.Stats().InUse; c.IsLeader() != (n == 1) {
					b.Errorf("%s leads %t, and %d connections are in use", id, c.IsLeader(), n)
				}
				b.failed(c)
			}
		})
	}
}

// The answer to the last statement of its interval does not come, and its lease runs out. It waits on
// another session, which takes a seat when it leads: else there would be two deputies.
func TestADeputyThatLosesItsSeatWhileItIsTheSuccessorTakesOneAsTheLeader(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		two := b.run("two")
		time.Sleep(retry)
		b.isDeputy(two)
		b.run("three")
		term, _ := one.Term()
		offered := false
		b.Trace(func(e electortest.Event) {
			switch {
			case e.What == "OfferTransfer":
				offered = true
			case e.What == "Holder" && e.Application == "two" && offered:
				offered = false
				two.process.Cut(electortest.Answers)
			}
		})
		time.AfterFunc(lease-heartbeat/2, two.process.Mend)
		b.wraps(term.TransferTo(always, "two"))
		b.Trace(nil)
		b.leads(two)
		time.Sleep(3 * retry)
		if ids := b.deputies(two); len(ids) != 1 {
			b.Errorf("deputies: %v", ids)
		}
	})
}

// The server releases a lock at once, and does not take it back if the statement fails then: it
// could not take the lock again, say.
func TestAReleaseToASuccessorThatFailsHalfWayCostsNoOtherTerm(t *testing.T) {
	for name, released := range map[string]bool{"released": true, "not released": false} {
		scene(t, name, func(b *bench) {
			var term *elector.Term
			failed := false
			one := b.wired(func(m message, send func() error) error {
				if m.name != "UnlockTo" || term.Valid() || failed {
					return send()
				}
				if failed = true; released {
					b.wraps(send())
				}
				return serverError("53200", "out of shared memory")
			}, "one")
			session, err := elector.NewSession(one.pool, elector.WithHooks(one.rec))
			b.wraps(err)
			defer session.Close(always)
			var terms []*elector.Term
			for _, name := range []string{"invoices", "orders"} {
				e, err := session.Elector(name)
				b.wraps(err)
				terms = append(terms, b.campaign(e))
			}
			term = terms[1]
			two := b.run("two")
			time.Sleep(time.Second)
			if err := term.TransferTo(always, "two"); released { // else nobody asks who has the lock
				b.wraps(err)
			}
			b.wraps(term.Resign(always))
			b.leads(two)
			b.wraps(terms[0].Verify(always))
			b.failed(one)
			b.wraps(terms[0].Resign(always))
		})
	}
}
