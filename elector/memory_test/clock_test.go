package memory_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

func TestAClockThatIsSetForwardEndsATermAndOneSetBackDoesNot(t *testing.T) {
	for shift, survives := range map[time.Duration]bool{time.Hour: false, -time.Hour: true, time.Second: true} {
		bubble(t, func(b *bench) {
			one := b.run("one")
			b.leads(one)
			term, _ := one.Term()
			one.process.ShiftClock(shift)
			if err := term.Verify(context.Background()); !survives {
				b.wraps(err, elector.ErrNotLeader, elector.ErrLeaseExpired)
				if strings.Contains(err.Error(), "%!") {
					b.Errorf("got %v", err)
				}
			}
			if term.Valid() != survives || survives && !one.IsLeader() { // it may lead again
				b.Errorf("after a shift of %v: leads %v", shift, term.Valid())
			}
			time.Sleep(2 * lease)
			if term.Valid() != survives {
				b.Errorf("a while after a shift of %v: leads %v", shift, term.Valid())
			}
			b.leads(one)
		})
	}
}

// A glance is a connector to a process whose clock is wrong for one look at it.
type glance struct {
	connector
	wrong atomic.Bool
}

func (g *glance) Driver() driver.Driver            { return g }
func (g *glance) Open(string) (driver.Conn, error) { return nil, errOops }
func (g *glance) ClockShift() time.Duration {
	if g.wrong.CompareAndSwap(true, false) {
		return lease
	}
	return 0
}

// A late answer that is read between two looks has the same effect.
func TestAClockThatIsSetBackBeforeTheNextLookEndsNoTerm(t *testing.T) {
	bubble(t, func(b *bench) {
		process := b.NewProcess()
		lends := process.Open()
		defer lends.Close()
		g := &glance{connector: connector{lends: lends, wire: passes}}
		one := b.candidateOn(process, sql.OpenDB(g), "one")
		term := b.campaign(one.Elector)
		synctest.Wait()
		g.wrong.Store(true)
		ran, err := one.RunIfLeader(always, func(context.Context) error { return nil })
		if b.wraps(err); !ran || g.wrong.Load() {
			b.Errorf("ran %t, and nobody has looked: %t", ran, g.wrong.Load())
		}
		b.wraps(term.Resign(always))
		b.ended(one, hooks.Resigned)
	})
}

// A step of the clock ends a term of whose end the server knows nothing. The lock is held until
// the work has returned all the same.
func TestAClockThatIsSetForwardLeavesTheLockToTheWork(t *testing.T) {
	for style, work := range map[string]func(b *bench, one *candidate, windDown func()){
		"TryRun": func(b *bench, one *candidate, windDown func()) {
			_, err := one.TryRun(always, func(ctx context.Context, _ *elector.Term) error {
				<-ctx.Done()
				windDown()
				return nil
			})
			b.wraps(err, elector.ErrLeaseExpired)
		},
		"Campaign": func(b *bench, one *candidate, windDown func()) {
			term := b.campaign(one.Elector)
			<-term.Context().Done()
			windDown()
			b.wraps(term.Resign(always), elector.ErrNotLeader)
		},
	} {
		for name, opts := range map[string][]elector.Option{"in session scope": nil, "in transaction scope": {inside}} {
			scene(t, style+", "+name, func(b *bench) {
				one := b.candidate("one", opts...)
				returned := make(chan time.Time, 1)
				go work(b, one, func() {
					time.Sleep(lease / 6) // the drain is a fifth
					returned <- time.Now()
				})
				b.leads(one)
				other := b.run("other", append(opts, elector.WithTakeover(elector.Deputy))...)
				time.Sleep(2*heartbeat + heartbeat/2) // a step during a heartbeat ends no term: its answer proves that the lock is held
				one.process.ShiftClock(lease)
				b.leads(other)
				synctest.Wait()
				if at := <-returned; other.rec.Elected()[0].At.Before(at) {
					b.Errorf("the next one was elected %v before the work returned", at.Sub(other.rec.Elected()[0].At))
				}
			})
		}
	}
}

// The server receives the leader's messages, but its answers are lost. The leader holds the lock
// while its connection is open, so the connection must stay open until the work has returned.
func TestALeaderThatHearsNothingKeepsItsLockUntilItsWorkHasReturned(t *testing.T) {
	for _, driver := range []electortest.Driver{electortest.PGX, electortest.PQ} {
		bubble(t, func(b *bench) {
			one := b.candidate("one")
			one.process.SetDriver(driver)
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			held, done := make(chan int, 2), make(chan error)
			go func() {
				done <- one.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
					one.process.Cut(electortest.Answers)
					<-ctx.Done()
					held <- len(b.Locks())
					time.Sleep(lease / 6) // the drain is a fifth
					held <- len(b.Locks())
					stop()
					return nil
				})
			}()
			if n := <-held; n != 2 { // the lock and its seat
				b.Errorf("driver %v: as the term ends, %d locks are held", driver, n)
			}
			if n := <-held; n != 2 { // the lock and its seat
				b.Errorf("driver %v: as the work returns, %d locks are held", driver, n)
			}
			b.wraps(<-done, context.Canceled)
			one.process.Mend()
			time.Sleep(lease)
			if n := len(b.Locks()); n != 0 {
				b.Errorf("driver %v: %d locks are left", driver, n)
			}
		})
	}
}

// stall freezes a process once, for longer than any lease, at the worst moment.
type stall struct {
	process *electortest.Process
	one     *candidate
	done    atomic.Bool
}

func (s *stall) now() {
	if s.done.CompareAndSwap(false, true) {
		s.process.Freeze()
		time.Sleep(2 * lease)
		s.process.Thaw()
	}
}

// Subscribe makes it a notifier. A campaign unsubscribes between the grant and the work.
func (s *stall) Subscribe(func(string)) (unsubscribe func()) { return s.now }

// stalls returns a candidate that stalls between the grant and the work, in one term.
func stalls(b *bench, opts ...elector.Option) *stall {
	b.Helper()
	s := &stall{}
	s.one = b.candidate("one", append(opts, elector.WithNotifier(s))...)
	s.process = s.one.process
	return s
}

// begins fails the test if user code begins in a term that is not valid.
func begins(b *bench, what string, e *elector.Elector) {
	b.Helper()
	if !e.IsLeader() {
		b.Errorf("%s began in a term that is not valid", what)
	}
}

// expiredOnce fails the test unless the hooks reported one expired term and no other failure.
func expiredOnce(b *bench, s *candidate) {
	b.Helper()
	if f := s.rec.Failures(); len(f) != 1 || f[0].Op != hooks.OpHeartbeat || !errors.Is(f[0].Err, elector.ErrLeaseExpired) {
		b.Errorf("failures: %+v", f)
	}
}

func TestALeadDoesNotBeginWhenTheTermHasExpiredBefore(t *testing.T) {
	bubble(t, func(b *bench) {
		s := stalls(b)
		b.wraps(s.one.Run(context.Background(), func(context.Context, *elector.Term) error {
			begins(b, "lead", s.one.Elector)
			return nil
		}))
		expiredOnce(b, s.one)
	})
}

func TestCampaignReturnsNoTermThatHasExpired(t *testing.T) {
	bubble(t, func(b *bench) {
		s := stalls(b)
		start := time.Now()
		term, err := s.one.Campaign(context.Background())
		b.wraps(err)
		b.within("elected again", 2*lease, time.Since(start), 2*lease+time.Second) // without a drain, since no work has begun
		begins(b, "the work of Campaign's caller", s.one.Elector)
		b.wraps(term.Resign(context.Background()))
		expiredOnce(b, s.one)
	})
}

// OnElected comes after OnCampaign, however long that takes.
func TestOnElectedIsNotCalledWhenTheTermHasExpiredBefore(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &stall{}
		var one *candidate
		one = b.candidate("one", elector.WithHooks(hooks.Funcs{
			Campaign: func(context.Context, hooks.Campaign) { s.now() },
			Elected:  func(context.Context, hooks.Elected) { begins(b, "OnElected", one.Elector) },
		}))
		s.process = one.process
		b.runFor(3*lease, one) // the lead, which began before, may be reported to overrun
		if n, m := len(one.rec.Elected()), len(one.rec.Demoted()); n != 1 || m != 1 {
			b.Errorf("elected %d times, demoted %d times", n, m)
		}
	})
}

// A term is resigned before OnElected is called. It held its lock until then.
func TestATermThatIsResignedBeforeOnElectedIsReported(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", elector.WithHooks(hooks.Funcs{Campaign: func(context.Context, hooks.Campaign) { time.Sleep(3 * lease / 2) }}))
		term, err := one.Campaign(context.Background())
		b.wraps(err)
		b.wraps(term.Resign(context.Background()), elector.ErrOverrun)
		time.Sleep(lease)
		b.wraps(term.Resign(context.Background()))
		if n, m := len(one.rec.Elected()), len(one.rec.Demoted()); n != 1 || m != 1 {
			b.Errorf("elected %d times, demoted %d times", n, m)
		}
	})
}

// The stall comes with the answer that admits the transaction.
func TestTheFunctionOfInTxDoesNotBeginWhenTheTermHasExpiredBefore(t *testing.T) {
	for name, stalls := range map[string]func(p *electortest.Process){
		"frozen": func(p *electortest.Process) {
			p.Freeze()
			go (&stall{process: p}).now()
		},
		"its machine slept": func(p *electortest.Process) { p.ShiftClock(lease) },
	} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one")
			term, err := one.Campaign(context.Background())
			b.wraps(err)
			b.Trace(func(e electortest.Event) {
				if e.What == "EnterTerm" && e.Done {
					stalls(one.process)
				}
			})
			err = term.InTx(context.Background(), one.pool, nil, func(*sql.Tx) error {
				begins(b, "the function of InTx", one.Elector)
				return nil
			})
			b.wraps(err, elector.ErrRolledBack, elector.ErrNotLeader)
			_ = term.Resign(context.Background())
		})
	}
}

// While a machine sleeps its timers stand still, and the server may end its sessions. Then the wall clock
// jumps.
func TestATermEndsSoonAfterItsMachineHasSlept(t *testing.T) {
	for name, length := range map[string]time.Duration{"a lease of ten seconds": 10 * time.Second, "of five minutes": 5 * time.Minute} {
		scene(t, name, func(b *bench) {
			one := b.run("one", elector.WithLease(length))
			b.leads(one)
			term, _ := one.Term()
			time.Sleep(10*time.Minute + time.Millisecond)
			one.process.ShiftClock(time.Hour)
			b.Terminate(b.pid(one))
			woke := time.Now()
			<-term.Context().Done()
			b.within("the end of the term", 0, time.Since(woke), time.Second/4)
		})
	}
}

// A machine may take its network down before it sleeps: a heartbeat is under way then, or waits
// for another call that hangs.
func TestATermEndsSoonAfterItsMachineHasSleptDuringAHeartbeat(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, term *elector.Term){
		"that was sent": func(context.Context, *elector.Term) {},
		"that waits":    func(ctx context.Context, term *elector.Term) { _ = term.Verify(ctx) },
	} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one", elector.WithLease(time.Minute))
			term := b.campaign(one.Elector)
			pid := b.pid(one)
			one.process.Cut(electortest.Both)
			short, stop := context.WithTimeout(always, time.Second)
			defer stop()
			call(short, term)
			time.Sleep(20 * time.Second) // a third of the lease
			b.Terminate(pid)
			other := b.run("other")
			b.leads(other)
			if !term.Valid() {
				b.Error("the term has ended before the machine slept")
			}
			one.process.ShiftClock(time.Hour)
			woke := time.Now()
			<-term.Context().Done()
			b.within("the end of the term", 0, time.Since(woke), time.Second/4)
			one.process.Mend()
			b.wraps(term.Resign(always), elector.ErrNotLeader, elector.ErrLeaseExpired)
		})
	}
}

// The machine has slept, and the context does not know yet.
func TestALeadThatIsTheFirstToSeeTheEndOfItsTermIsCalledAgain(t *testing.T) {
	for name, see := range map[string]func(ctx context.Context, one *candidate, term *elector.Term) error{
		"by Valid": func(_ context.Context, _ *candidate, term *elector.Term) error {
			if term.Valid() {
				return errOops
			}
			return nil
		},
		"by Verify": func(ctx context.Context, _ *candidate, term *elector.Term) error { return term.Verify(ctx) },
		"by InTx": func(ctx context.Context, one *candidate, term *elector.Term) error {
			return term.InTx(ctx, one.pool, nil, func(*sql.Tx) error { return nil })
		},
	} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one")
			ctx, stop := context.WithCancel(always)
			terms := 0
			err := one.Run(ctx, func(ctx context.Context, term *elector.Term) error {
				if terms++; terms == 2 {
					stop()
					return nil
				}
				time.Sleep(heartbeat / 2) // OnElected has been called
				one.process.ShiftClock(lease)
				return see(ctx, one, term)
			})
			b.wraps(err, context.Canceled)
			if d := one.rec.Demoted(); terms != 2 || d[0].Reason != hooks.LeaseExpired {
				b.Errorf("%d terms, the first one ended by %+v", terms, d)
			}
		})
	}
}
