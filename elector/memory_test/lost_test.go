package memory_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/idle"
)

// A term is as old as its oldest proof: that of the last commit, once the standbys acknowledge none.
func TestTheAgeOfATermIsThatOfItsOldestProof(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		b.leads(one)
		time.Sleep(3*heartbeat + heartbeat/2)
		term := b.term(one)
		b.CutStandbys()
		cut := time.Now()
		time.Sleep(2 * heartbeat)
		if at := term.RenewedAt(); at.After(cut) || at.Before(cut.Add(-heartbeat)) {
			b.Errorf("renewed %v after the standbys were cut off", at.Sub(cut))
		}
		deadline := term.Deadline()
		time.Sleep(heartbeat / 2)
		one.process.Freeze()
		time.Sleep(time.Until(deadline) + heartbeat)
		one.process.Thaw()
		if d := b.demoted(one); d.Late != heartbeat || !d.At.Equal(deadline) {
			b.Errorf("the term ended at %v, %v late; its deadline was %v", d.At, d.Late, deadline)
		}
	})
}

// A deputy asks on another connection whether the leader offers it the lock. That connection fails: the seat is on one that lives.
func TestADeputyKeepsItsSeatThoughAnotherConnectionFails(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		most time.Duration // until it is asked again
	}{"fails": {errOops, 3 * heartbeat}, "was dead": {driver.ErrBadConn, heartbeat}} {
		scene(t, name, func(b *bench) {
			one := b.run("one")
			b.leads(one)
			var tries atomic.Int32
			refused := fail("HolderOffers", 1, 1, c.err)
			two := b.start(b.wired(func(m message, send func() error) error {
				if m.name == "TryLock" {
					tries.Add(1)
				}
				return refused(m, send)
			}, "two", elector.WithTakeover(elector.Deputy)))
			time.Sleep(2 * retry)
			tries.Store(0)
			began := time.Now()
			b.wraps(b.term(one).TransferTo(always, "two"))
			b.leads(two)
			b.within("it leads", 0, time.Since(began), c.most+heartbeat/2)
			if tries.Load() > 0 {
				b.Error("the deputy has lost its seat")
			}
		})
	}
}

// Locks of sessions do not show to a deputy, where those of transactions may: another scope is tried.
func TestADeputyWhoseLocksDoNotShowTriesTransactions(t *testing.T) {
	bubble(t, func(b *bench) {
		b.leads(b.run("one"))
		two := b.start(b.wired(b.answers("TrialLock", 1, false), "two", elector.WithTakeover(elector.Deputy), elector.WithScope(elector.Auto)))
		time.Sleep(2 * retry)
		synctest.Wait()
		if all := two.rec.Campaigns(); len(two.done) > 0 || !all[len(all)-1].InTransaction {
			b.Errorf("campaigns: %+v", all)
		}
	})
}

// Close ends the only attempt, perhaps before the context that the attempt has. That is a clean stop.
func TestAnAttemptThatCloseEndsIsACleanStop(t *testing.T) {
	for name, shared := range map[string]bool{"own session": false, "shared session": true} {
		scene(t, name, func(b *bench) {
			one := b.wired(func(m message, send func() error) error {
				if strings.HasPrefix(m.name, "TryLock") {
					m.delay(time.Second)
				}
				return send()
			}, "one")
			for _, attempt := range []func(*elector.Elector) error{
				func(e *elector.Elector) error { _, err := e.TryRun(always, nil); return err },
				func(e *elector.Elector) error { _, _, err := e.TryCampaign(always); return err },
			} {
				e, err := elector.New(one.pool, "orders")
				b.check(err)
				closes := e.Close
				if shared {
					s, err := elector.NewSession(one.pool)
					b.check(err)
					e, err = s.Elector("orders")
					b.check(err)
					closes = s.Close
				}
				done := make(chan error)
				go func() { done <- attempt(e) }()
				time.Sleep(time.Second / 2)
				go func() { _ = closes(always) }()
				if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, elector.ErrStopped) {
					b.Errorf("got %v", err)
				}
				time.Sleep(lease)
			}
		})
	}
}

// A campaign begins when it is asked for, though its candidate is unhealthy.
func TestACampaignOfAnUnhealthyCandidateHasBegun(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		one.ReportHealth(elector.HealthReport{})
		b.start(one)
		time.Sleep(time.Minute)
		one.ReportHealth(elector.HealthReport{Score: 1})
		b.leads(one)
		synctest.Wait()
		b.within("it has campaigned", time.Minute, one.rec.Elected()[0].Campaigned, time.Minute+retry)
	})
}

// A deputy inside a transaction begins another one, without its seat, and is granted the lock by the first try there. Strangers have
// both seats at that moment. It takes one as soon as it can: else there would be two deputies.
func TestADeputyThatIsElectedInANewTransactionTakesASeat(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one", inside)
		b.leads(one)
		var tries atomic.Int32
		two := b.start(b.wired(func(m message, send func() error) error {
			if m.name == "TryTransactionLock" && tries.Add(1) == 2 {
				one.process.Kill()
				m.delay(time.Millisecond) // until the server has noticed
				b.strangerOnSeats(one)
			}
			return send()
		}, "two", inside, elector.WithTakeover(elector.Deputy)))
		b.leads(two)
		if n := tries.Load(); n != 2 {
			b.Errorf("elected by try %d", n)
		}
		for _, l := range b.Locks() {
			if l.Guard {
				b.Terminate(l.PID)
			}
		}
		time.Sleep(heartbeat)
		pid := b.pid(two)
		if !slices.ContainsFunc(b.Locks(), func(l electortest.Lock) bool { return l.Guard && l.PID == pid }) {
			b.Errorf("the leader has no seat: %+v", b.Locks())
		}
	})
}

// A lock is offered to an election on a shared session. The session of its own on which it is to take the lock cannot be had for a
// reason that would be final for a candidate which has never reached a primary.
func TestATransferToASharedSessionThatFailsEndsNoCampaign(t *testing.T) {
	for name, err := range map[string]error{"a standby": elector.ErrServerReadOnly, "a pooler": serverError("26000", "prepared statement does not exist")} {
		scene(t, name, func(b *bench) {
			one := b.run("one")
			b.leads(one)
			var fails atomic.Bool
			spare := b.wired(func(m message, send func() error) error {
				if fails.Load() && m.name == "DescribeServer" {
					return err
				}
				return send()
			}, "spare")
			s, err := elector.NewSession(spare.pool, elector.WithCandidateID("two"))
			b.check(err)
			e, err := s.Elector("orders")
			b.check(err)
			b.wraps(e.Start(always))
			time.Sleep(2 * retry)
			fails.Store(true)
			ctx, cancel := context.WithTimeout(always, 2*retry)
			defer cancel()
			_ = b.term(one).TransferTo(ctx, "two")
			fails.Store(false)
			b.wraps(b.term(one).TransferTo(always, "two"))
			for !e.IsLeader() {
				time.Sleep(time.Second)
			}
			b.wraps(e.Stop(always))
			b.wraps(s.Close(always))
		})
	}
}

// Of several hosts the first is frozen, so each new connection takes its connect_timeout. A session inside a transaction needs two.
func TestConnectionsThatTakeLongToOpenAreWaitedFor(t *testing.T) {
	for name, scope := range scopes {
		scene(t, name, func(b *bench) {
			one := b.wired(func(m message, send func() error) error {
				if m.name == "CONNECT" {
					m.delay(validity + heartbeat)
				}
				return send()
			}, "one", scope, elector.WithLease(2*lease))
			one.pool.SetMaxIdleConns(-1)
			b.within("elected", 0, b.leads(b.start(one)), 10*lease)
			b.failed(one)
		})
	}
}

// A pooler lets a transaction wait for a backend. That is no silence of an idle connection, which is given up sooner.
func TestATransactionMayWaitForABackendForTheWholeValidity(t *testing.T) {
	bubble(t, func(b *bench) {
		var waits atomic.Bool
		one := b.wired(func(m message, send func() error) error {
			if waits.Load() && m.name == "BEGIN" {
				m.delay(idle.AnswerWithin + heartbeat)
			}
			return send()
		}, "one", inside, elector.WithLease(time.Minute))
		b.wraps(b.campaign(one.Elector).Resign(always))
		waits.Store(true)
		b.wraps(b.campaign(one.Elector).Resign(always))
		b.failed(one)
	})
}
