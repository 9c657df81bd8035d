package memory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

// grace is how long a driver's call may take to return when its connection is given up.
const grace = time.Second

// stuck returns a candidate whose driver ignores contexts while it waits for an answer.
func (b *bench) stuck() *candidate {
	s := b.candidate("one")
	s.process.SetDriver(electortest.PQ)
	return s
}

// cutAt cuts the candidate off before it gets the answer to its n-th statement.
func (b *bench) cutAt(s *candidate, n int) {
	s.process.SetLatency(func() time.Duration { return time.Millisecond })
	sent := 0
	b.Trace(func(event electortest.Event) {
		if event.Done || event.What == "connected" || event.What == "ended" {
			return
		}
		if sent++; sent == n {
			go s.process.Cut(electortest.Both)
		}
	})
}

// whole fails the test if the text of a failure is incomplete, for instance without a cause.
func (b *bench) whole(s *candidate) (calls int) {
	b.Helper()
	for _, f := range s.rec.Failures() {
		if f.Op == hooks.OpCall {
			calls++
		}
		if strings.Contains(f.Err.Error(), "%!") {
			b.Errorf("a failure reads %q", f.Err)
		}
	}
	return calls
}

func TestACampaignOnADeadLinkGoesOnWithoutADeadline(t *testing.T) {
	const statements = 13 // those of the server check, the grant, and its confirmation
	calls := 0
	for n := 1; n <= statements; n++ {
		for _, limit := range []time.Duration{0, 300 * time.Millisecond} {
			scene(t, fmt.Sprint(n, " ", limit), func(b *bench) {
				one := b.stuck()
				b.cutAt(one, n)
				start, ctx, want, most := time.Now(), always, elector.ErrNoAnswer, validity+3*grace
				if n > 4 { // the ROLLBACK of the server check's transaction gets no answer either
					most += validity
				}
				if limit > 0 {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(always, limit)
					defer stop()
					want, most = context.DeadlineExceeded, limit+2*grace
				}
				term, elected, err := one.TryCampaign(ctx)
				if elected { // an attempt has fewer statements
					b.Mend(one)
					b.wraps(term.Resign(always))
					return
				}
				b.wraps(err, want)
				b.within("it ends", 0, time.Since(start), most)
				synctest.Wait()
				calls += b.whole(one)
				b.Mend(one)
				time.Sleep(grace)
				if n := one.pool.Stats().InUse; n != 0 {
					b.Errorf("%d connections are in use after the link was restored", n)
				}
				b.wraps(b.campaign(one.Elector).Resign(always))
			})
		}
	}
	if calls < statements {
		t.Errorf("%d calls were reported to hang", calls)
	}
}

// So does one that finds the lock busy inside a transaction, whose ROLLBACK gets no answer.
func TestAnAttemptInsideATransactionEndsSoonAfterItsContext(t *testing.T) {
	busy := 0
	for n := 1; n <= 40; n++ {
		scene(t, fmt.Sprint(n), func(b *bench) {
			b.leads(b.run("leader", inside))
			one := b.candidate("one", inside)
			one.process.SetDriver(electortest.PQ)
			b.cutAt(one, n)
			const limit = 300 * time.Millisecond
			ctx, stop := context.WithTimeout(always, limit)
			defer stop()
			start := time.Now()
			if _, _, err := one.TryCampaign(ctx); err == nil {
				busy++
			}
			b.within("it ends", 0, time.Since(start), limit+3*grace)
			b.Mend(one)
			time.Sleep(grace)
			if n := one.pool.Stats().InUse; n != 0 {
				b.Errorf("%d connections are in use after the link was restored", n)
			}
		})
	}
	if busy == 0 {
		t.Error("each attempt met the cut before its answer")
	}
}

// Mend restores the link that cutAt cut.
func (b *bench) Mend(s *candidate) {
	b.Trace(nil)
	s.process.Mend()
}

func TestALeaderOnADeadLinkStopsInTimeAndSaysWhatHangs(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.stuck()
		ctx, stop := context.WithCancel(always)
		defer stop()
		b.wraps(one.Run(ctx, func(ctx context.Context, term *elector.Term) error {
			time.Sleep(3 * time.Second)
			one.process.Cut(electortest.Both)
			<-ctx.Done()
			b.within("it stops", 9*time.Second, time.Since(term.ElectedAt()), 9*time.Second) // after one heartbeat
			if term.Valid() || one.IsLeader() {
				b.Error("it leads")
			}
			stop()
			return nil
		}), context.Canceled)
		b.ended(one, hooks.LeaseExpired)
		b.failed(one, hooks.OpHeartbeat, hooks.OpCall)
		b.wraps(one.rec.Failures()[1].Err, elector.ErrLeaseExpired)
		if err := one.rec.Failures()[0].Err; errors.Is(err, elector.ErrSessionLost) || !strings.Contains(err.Error(), "no heartbeat was answered") {
			b.Errorf("it ends by %v", err)
		}
		b.whole(one)
		one.process.Mend()
	})
}

func TestNothingElseHangsOnADeadLink(t *testing.T) {
	for name, call := range map[string]func(context.Context, *elector.Elector, *elector.Term) error{
		"Verify": func(ctx context.Context, _ *elector.Elector, term *elector.Term) error { return term.Verify(ctx) },
		"Resign": func(ctx context.Context, _ *elector.Elector, term *elector.Term) error { return term.Resign(ctx) },
		"Leader": func(ctx context.Context, e *elector.Elector, _ *elector.Term) error {
			_, err := e.Leader(ctx)
			return err
		},
		"Candidates": func(ctx context.Context, e *elector.Elector, _ *elector.Term) error {
			_, err := e.Candidates(ctx)
			return err
		},
		"Observe": func(ctx context.Context, e *elector.Elector, _ *elector.Term) error {
			for leader, err := range e.Observe(ctx) {
				return fmt.Errorf("yielded %v, %w", leader, err)
			}
			return context.Cause(ctx)
		},
	} {
		scene(t, name, func(b *bench) {
			one := b.stuck()
			term := b.campaign(one.Elector)
			one.process.Cut(electortest.Both)
			ctx, stop := context.WithTimeout(always, 500*time.Millisecond)
			defer stop()
			start := time.Now()
			b.wraps(call(ctx, one.Elector, term), context.DeadlineExceeded)
			b.within(name, 500*time.Millisecond, time.Since(start), 500*time.Millisecond)
			one.process.Mend()
			_ = term.Resign(always)
		})
	}
}

func TestObserveReportsAServerThatDoesNotAnswer(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.stuck()
		one.process.Cut(electortest.Both)
		start := time.Now()
		for _, err := range one.Observe(always) {
			if took := time.Since(start); err == nil || took > lease {
				b.Errorf("got %v after %v", err, took)
			}
			break
		}
		one.process.Mend()
	})
}

func TestAReleaseOnADeadLinkEndsWithTheValidity(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.stuck()
		term := b.campaign(one.Elector)
		time.Sleep(time.Second)
		one.process.Cut(electortest.Both)
		b.wraps(term.Resign(always), elector.ErrSessionLost, elector.ErrLeaseExpired)
		b.within("it ends", 0, time.Since(term.ElectedAt()), validity+grace)
		if synctest.Wait(); len(one.rec.Failures()) != 2 { // both come at the end of the validity, in either order
			b.Errorf("reported %+v", one.rec.Failures())
		}
		one.process.Mend()
	})
}

func TestAVerifyWithACancelledContextSendsNothingAndDoesNotEndTheTerm(t *testing.T) {
	for range 10 {
		bubble(t, func(b *bench) {
			one := b.stuck()
			term := b.campaign(one.Elector)
			b.Trace(func(event electortest.Event) { b.Errorf("sent %+v", event) })
			ctx, cancel := context.WithCancel(always)
			cancel()
			b.wraps(term.Verify(ctx), context.Canceled)
			synctest.Wait()
			b.Trace(nil)
			b.wraps(term.Resign(always))
		})
	}
}

func TestAConnectThatHangsEndsTheAttempt(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.stuck()
		one.process.Cut(electortest.Both)
		start := time.Now()
		_, _, err := one.TryCampaign(always)
		if took := time.Since(start); errors.Is(err, elector.ErrNoAnswer) || !strings.Contains(fmt.Sprint(err), "no connection from the pool within 30s") || took != 30*time.Second {
			b.Errorf("got %v after %v", err, took)
		}
		one.process.Mend()
	})
}

// The server goes away between two heartbeats, 30 s apart, and a statement on another
// connection fails.

var longLease = elector.WithLease(150 * time.Second)

// transaction returns work with a transaction, during one part of which the server crashes.
func transaction(part string, crash func()) func(ctx context.Context, term *elector.Term, pool *sql.DB) error {
	return func(ctx context.Context, term *elector.Term, pool *sql.DB) error {
		if part == "BEGIN" {
			crash()
		}
		return term.InTx(ctx, pool, nil, func(tx *sql.Tx) error {
			if part == "a statement" {
				crash()
			}
			if _, err := tx.Exec("write"); err != nil {
				return err
			}
			if part == "COMMIT" {
				crash()
			}
			return nil
		})
	}
}

func TestAFailedStatementOnADeadServerEndsTheTermAtOnce(t *testing.T) {
	for name, ask := range map[string]func(b *bench, s *candidate, term *elector.Term) error{
		"InTx, BEGIN": func(b *bench, s *candidate, term *elector.Term) error {
			return transaction("BEGIN", b.Crash)(b.Context(), term, s.pool)
		},
		"InTx, a statement": func(b *bench, s *candidate, term *elector.Term) error {
			return transaction("a statement", b.Crash)(b.Context(), term, s.pool)
		},
		"InTx, COMMIT": func(b *bench, s *candidate, term *elector.Term) error {
			return transaction("COMMIT", b.Crash)(b.Context(), term, s.pool)
		},
		"InTx on another pool": func(b *bench, s *candidate, term *elector.Term) error {
			other := s.process.Open()
			defer other.Close()
			return transaction("BEGIN", b.Crash)(b.Context(), term, other)
		},
		"Leader": func(b *bench, s *candidate, _ *elector.Term) error {
			b.Crash()
			_, err := s.Leader(b.Context())
			return err
		},
		"Candidates": func(b *bench, s *candidate, _ *elector.Term) error {
			b.Crash()
			_, err := s.Candidates(b.Context())
			return err
		},
		"an attempt in another election": func(b *bench, s *candidate, _ *elector.Term) error {
			other, err := elector.New(s.pool, "invoices")
			b.wraps(err)
			b.Crash()
			_, _, err = other.TryCampaign(b.Context())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.Handle(func(electortest.Statement) (electortest.Answer, error) { return electortest.Answer{}, nil })
				s := b.candidate("one", longLease)
				term, err := s.Campaign(b.Context())
				b.wraps(err)
				time.Sleep(5 * time.Second)
				if err := ask(b, s, term); err == nil {
					b.Error("no error of a server that has crashed")
				}
				met := time.Now()
				<-term.Context().Done()
				b.within("the term ends", 0, time.Since(met), 10*time.Millisecond)
				b.wraps(context.Cause(term.Context()), elector.ErrSessionLost)
				_ = term.Resign(context.Background())
			})
		})
	}
}

// The session lives: many errors cost it at most four heartbeats a second.
func TestAnErrorOnAnotherConnectionCostsOnlyAHeartbeat(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.candidate("one", longLease)
		term, err := s.Campaign(b.Context())
		b.wraps(err)
		elsewhere := b.NewStandby(0)
		elsewhere.Stop()
		lost := elsewhere.Open()
		defer lost.Close()
		before := len(s.rec.Heartbeats())
		for range 1000 {
			b.wraps(term.InTx(b.Context(), lost, nil, func(*sql.Tx) error { return nil }), elector.ErrRolledBack)
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(s.rec.Heartbeats()) - before; n < 38 || n > 41 {
			b.Errorf("%d heartbeats in 10 s", n)
		}
		if !term.Valid() {
			b.Errorf("the term has ended: %v", context.Cause(term.Context()))
		}
		b.wraps(term.Resign(b.Context()))
	})
}
