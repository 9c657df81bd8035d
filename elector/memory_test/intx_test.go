package memory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// A lead that returns InTx's error after its term ended has not failed.
func TestTheTermHasEndedWhenInTxFindsItsSessionLost(t *testing.T) {
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open()
	defer pool.Close()
	for range 300 {
		e, err := elector.New(pool, "orders", elector.WithLease(time.Hour), elector.WithHeartbeatInterval(10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leader, err := e.Leader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		server.Terminate(leader.PID)
		err = term.InTx(t.Context(), pool, nil, func(*sql.Tx) error { return errors.New("called") })
		if !errors.Is(err, elector.ErrNotLeader) || term.Context().Err() == nil {
			t.Fatalf("got %v, and the term's context %v", err, term.Context().Err())
		}
		_ = term.Resign(t.Context())
	}
}

// An unanswered COMMIT or ROLLBACK must not prolong the work: waiting does not change its
// outcome, and another may lead by then. Nobody can say what a function did that has failed: it may have sent COMMIT.
func TestAnUnansweredCommitIsNotWaitedForPastTheDrain(t *testing.T) {
	for _, driver := range []electortest.Driver{electortest.PGX, electortest.PQ} {
		for _, with := range []error{nil, errors.New("not now")} {
			bubble(t, func(b *bench) {
				one := b.candidate("one")
				one.process.SetDriver(driver)
				term, err := one.Campaign(context.Background())
				b.wraps(err)
				err = term.InTx(context.Background(), one.pool, nil, func(*sql.Tx) error {
					one.process.Cut(electortest.Answers)
					return with
				})
				b.wraps(err, elector.ErrOutcomeUnknown, elector.ErrLeaseExpired)
				b.within("InTx returns, once the term has ended", -validity, time.Since(term.Deadline()), lease/5-time.Millisecond) // the drain
				one.process.Mend()
				_ = term.Resign(context.Background())
			})
		}
	}
}

// If only a clock jumps, nothing of the drain is left, and yet the server keeps the lock for one drain: as long may InTx take,
// with a lease so short that its drain ends before other graces do.
func TestAfterAJumpOfTheClockInTxReturnsBeforeTheServerFreesTheLock(t *testing.T) {
	for _, driver := range []electortest.Driver{electortest.PGX, electortest.PQ} {
		for name, call := range map[string]func(b *bench, one *candidate, term *elector.Term) error{
			"in fn": func(b *bench, one *candidate, term *elector.Term) error {
				return term.InTx(always, one.pool, nil, func(tx *sql.Tx) error {
					one.process.Cut(electortest.Answers)
					one.process.ShiftClock(lease)
					_, err := tx.ExecContext(term.Context(), "SELECT")
					return err
				})
			},
			"in BEGIN": func(b *bench, one *candidate, term *elector.Term) error {
				b.check(one.pool.Ping())
				one.process.Cut(electortest.Answers)
				one.process.ShiftClock(lease)
				return term.InTx(always, one.pool, nil, func(*sql.Tx) error { return nil })
			},
		} {
			scene(t, fmt.Sprint(name, " ", driver), func(b *bench) {
				one := b.candidate("one", elector.WithLease(2*time.Second), elector.WithHeartbeatInterval(200*time.Millisecond))
				one.process.SetDriver(driver)
				term, err := one.Campaign(always)
				b.check(err)
				var ended time.Time
				context.AfterFunc(term.Context(), func() { ended = time.Now() })
				err = call(b, one, term)
				if returned := time.Now(); err == nil {
					b.Error("InTx returned nil")
				} else if synctest.Wait(); ended.IsZero() || returned.Sub(ended) > 400*time.Millisecond {
					b.Errorf("InTx returned %v after the end of the term, whose drain is a fifth of the lease: %v", returned.Sub(ended), err)
				}
				one.process.Mend()
				_ = term.Resign(always)
			})
		}
	}
}

// If the session is lost during COMMIT, InTx waits for the answer for half of the drain. Otherwise
// the caller would have to find out the outcome.
func TestAnAnswerToCommitIsAwaitedForHalfOfTheDrain(t *testing.T) {
	for late, want := range map[time.Duration]error{lease / 20: nil, lease / 8: elector.ErrOutcomeUnknown} { // the drain is a fifth of the lease
		bubble(t, func(b *bench) {
			one := b.candidate("one")
			term, err := one.Campaign(context.Background())
			b.wraps(err)
			var deadline time.Time
			err = term.InTx(context.Background(), one.pool, nil, func(*sql.Tx) error {
				one.process.Cut(electortest.Answers)
				deadline = term.Deadline()
				time.AfterFunc(time.Until(deadline)+late, one.process.Mend)
				return nil
			})
			if want == nil {
				b.wraps(err)
				b.within("the answer comes, once the term has ended", late, time.Since(deadline), late+10*time.Millisecond)
			} else {
				b.wraps(err, want)
			}
			time.Sleep(lease / 20)
			_ = term.Resign(context.Background())
		})
	}
}

// The caller of Campaign has the drain to return when the term ends, and the session may
// live on: a COMMIT that waits for the standbys must not take longer than that.
func TestACommitThatWaitsForStandbysReturnsWithinTheDrain(t *testing.T) {
	for _, synchronous := range []bool{false, true} {
		replicated(t, func(b *bench) {
			b.Handle(func(s electortest.Statement) (electortest.Answer, error) {
				s.OnCommit(func() {})
				return electortest.Answer{}, nil
			})
			var unhealthy atomic.Bool
			opts := []elector.Option{synchronously}
			if !synchronous {
				opts = []elector.Option{elector.WithHealth(func(context.Context) elector.HealthReport {
					if unhealthy.Load() {
						return elector.HealthReport{Score: 0}
					}
					return elector.HealthReport{Score: 1}
				}, elector.HealthPolicy{Interval: heartbeat})}
			}
			one := b.candidate("one", opts...)
			term, err := one.Campaign(context.Background())
			b.wraps(err)
			ended := make(chan time.Time, 1)
			context.AfterFunc(term.Context(), func() { ended <- time.Now() })
			err = term.InTx(context.Background(), one.pool, nil, func(tx *sql.Tx) error {
				_, err := tx.Exec("write")
				b.CutStandbys()
				unhealthy.Store(true)
				time.AfterFunc(heartbeat/2, func() { // the setting lists no standby any more, but the COMMIT still waits
					if synchronous {
						b.SetSynchronousStandbys("FIRST 1 (s1)")
					}
				})
				return err
			})
			b.wraps(err, elector.ErrOutcomeUnknown)
			b.within("InTx returns, once the term has ended", 0, time.Since(<-ended), lease/5-time.Millisecond) // the drain
			b.ReconnectStandbys()
			_ = term.Resign(context.Background())
		})
	}
}

// Run waits for its lead, and holds the lock meanwhile.
func TestACommitOfALeadThatWaitsForStandbysIsWaitedForAfterTheTerm(t *testing.T) {
	replicated(t, func(b *bench) {
		b.Handle(func(s electortest.Statement) (electortest.Answer, error) {
			s.OnCommit(func() {})
			return electortest.Answer{}, nil
		})
		one := b.candidate("one")
		ctx, stop := context.WithCancel(always)
		b.wraps(one.Run(ctx, func(ctx context.Context, term *elector.Term) error {
			b.wraps(term.InTx(always, one.pool, nil, func(tx *sql.Tx) error {
				_, err := tx.Exec("write")
				b.CutStandbys()
				time.AfterFunc(time.Millisecond, stop)
				time.AfterFunc(drain+time.Second, b.ReconnectStandbys)
				return err
			}))
			b.wraps(ctx.Err(), context.Canceled)
			return nil
		}), context.Canceled)
	})
}

func TestATransactionThatItsFunctionEndsHasAnUnknownOutcome(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		term := b.campaign(one.Elector)
		for _, ends := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
			err := term.InTx(always, one.pool, nil, ends)
			if b.wraps(err, elector.ErrOutcomeUnknown, sql.ErrTxDone); errors.Is(err, elector.ErrRolledBack) {
				b.Errorf("got %v", err)
			}
		}
		b.wraps(term.InTx(always, nil, nil, (*sql.Tx).Commit), elector.ErrConfig)
		b.wraps(term.InTx(always, one.pool, nil, nil), elector.ErrConfig)
		b.wraps(term.Resign(always))
	})
}

// The end of the term reaches the transaction's context on another goroutine, which may be late.
func TestATransactionIsNotCommittedOnceItsTermHasEnded(t *testing.T) {
	ended, end := context.WithCancel(always)
	end()
	for range 5 {
		bubble(t, func(b *bench) {
			one := b.candidate("one")
			term := b.campaign(one.Elector)
			err := term.InTx(always, one.pool, nil, func(*sql.Tx) error {
				_ = term.Resign(ended)
				return nil
			})
			b.wraps(err, elector.ErrRolledBack, elector.ErrNotLeader, elector.ErrResigned)
			b.wraps(term.Resign(always))
		})
	}
}

func TestAFencedTransactionEndsWithTheTermAndHoldsTheReleaseBack(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		term := b.campaign(one.Elector)
		time.AfterFunc(time.Second, func() { _ = term.Resign(always) })
		err := term.InTx(always, one.pool, nil, func(*sql.Tx) error {
			<-term.Context().Done()
			if time.Sleep(2 * time.Second); len(one.rec.Demoted()) != 0 || !b.holds(one.Elector) {
				b.Error("the release did not wait")
			}
			return nil
		})
		b.wraps(err, elector.ErrRolledBack, elector.ErrResigned)
		b.wraps(term.Resign(always))
	})
}

// The server ends a leader's session during a transaction of its term.
func TestTheNextTermWaitsForTheTransactionsOfTheLast(t *testing.T) {
	for _, shares := range []bool{false, true} {
		bubble(t, func(b *bench) {
			committed := false
			b.Handle(func(s electortest.Statement) (electortest.Answer, error) {
				s.OnCommit(func() { committed = true })
				return electortest.Answer{}, nil
			})
			one := b.candidate("one")
			one.process.SetDriver(electortest.PQ)
			term, err := one.Campaign(context.Background())
			b.check(err)
			goOn, wrote := make(chan bool), make(chan error)
			go func() {
				wrote <- term.InTx(context.Background(), one.pool, nil, func(tx *sql.Tx) error {
					_, err := tx.Exec("write")
					goOn <- true
					<-goOn
					return err
				})
			}()
			<-goOn
			b.Terminate(b.pid(one))
			elected, resign := b.next(shares)
			time.Sleep(200 * time.Millisecond) // before it looks whether its session lives
			select {
			case led := <-elected:
				b.Error("the next term began beside a transaction of the last")
				elected <- led
			default:
			}
			goOn <- true
			b.wraps(<-wrote)
			if !<-elected || !committed {
				b.Errorf("elected, committed %v", committed)
			}
			err = term.InTx(context.Background(), one.pool, nil, func(*sql.Tx) error { return nil })
			b.wraps(err, elector.ErrNotLeader, elector.ErrRolledBack)
			resign()
			_ = term.Resign(context.Background())
		})
	}
}

// next is the next leader, with or without a shared session.
func (b *bench) next(shares bool) (elected chan bool, resign func()) {
	b.Helper()
	two := b.candidate("two").Elector
	closes := func() {}
	if shares {
		pool := b.Open()
		session, err := elector.NewSession(pool)
		b.check(err)
		if two, err = session.Elector("orders"); err != nil {
			b.Fatal(err)
		}
		closes = func() {
			_ = session.Close(context.Background())
			_ = pool.Close()
		}
	}
	elected = make(chan bool, 1)
	var term *elector.Term
	go func() {
		var err error
		term, err = two.Campaign(context.Background())
		elected <- err == nil
	}()
	return elected, func() {
		_ = term.Resign(context.Background())
		closes()
	}
}

func TestATransactionThatPanicsLeavesNothingOnItsContext(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		term := b.campaign(one.Elector)
		ctx := &watchedContext{Context: b.Context()}
		func() {
			defer func() { _ = recover() }()
			_ = term.InTx(ctx, one.pool, nil, func(*sql.Tx) error { panic("oops") })
		}()
		synctest.Wait()
		if n := ctx.derived.Load(); n != 0 {
			b.Errorf("%d contexts are left", n)
		}
		b.wraps(term.Resign(always))
	})
}
