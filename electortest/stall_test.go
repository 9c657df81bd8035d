package electortest_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

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
		term, err := s.one.Campaign(context.Background())
		b.wraps(err)
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
		ctx, stop := context.WithTimeout(context.Background(), 3*lease)
		defer stop()
		b.wraps(one.Run(ctx, nil), context.DeadlineExceeded) // the lead, which began before, may be reported to overrun
		if n, m := len(one.rec.Elected()), len(one.rec.Demoted()); n != 1 || m != 1 {
			b.Errorf("elected %d times, demoted %d times", n, m)
		}
	})
}

// A term that was resigned before its OnElected could be called held its lock until then, so
// it is reported as usual.
func TestATermThatWasResignedBeforeOnElectedIsTold(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", elector.WithHooks(hooks.Funcs{Campaign: func(context.Context, hooks.Campaign) { time.Sleep(lease) }}))
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

// The stall comes with the answer that lets the transaction into the term.
func TestTheFunctionOfInTxDoesNotBeginWhenTheTermHasExpiredBefore(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		term, err := one.Campaign(context.Background())
		b.wraps(err)
		s := &stall{process: one.process}
		b.Trace(func(e electortest.Event) {
			if e.What == "EnterTerm" && e.Done {
				one.process.Freeze()
				go s.now()
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
