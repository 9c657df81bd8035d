package memory_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

// The end of a term, and that of the caller's context, in the middle of a call. All calls name the same causes.
func TestACallThatFailsNamesTheEndOfTheTermFirst(t *testing.T) {
	errCaller := errors.New("the caller has ended")
	type ends struct {
		term  error // the cause of its end; nil if it goes on
		ctx   error // of the caller's context; nil if it goes on
		child bool  // that context is the term's, as that which lead gets
	}
	// call is made while the term goes on. It calls end when it is under way.
	type call func(b *bench, one *candidate, ctx context.Context, term *elector.Term, end func()) error
	for name, c := range map[string]struct {
		call
		names func(e ends) []error // what the error wraps
	}{
		"InTx, in its function": {func(b *bench, one *candidate, ctx context.Context, term *elector.Term, end func()) error {
			return term.InTx(ctx, one.pool, nil, func(*sql.Tx) error { end(); return ctx.Err() })
		}, func(e ends) []error { return append(causes(e.term, e.ctx), elector.ErrRolledBack) }},
		"InTx, in its function, which does not notice": {func(b *bench, one *candidate, ctx context.Context, term *elector.Term, end func()) error {
			return term.InTx(ctx, one.pool, nil, func(*sql.Tx) error { end(); return nil })
		}, func(e ends) []error { return append(causes(e.term, e.ctx), elector.ErrRolledBack) }},
		"InTx, while it begins": {func(b *bench, one *candidate, ctx context.Context, term *elector.Term, end func()) error {
			one.pool.SetMaxOpenConns(one.pool.Stats().InUse + 1)
			busy, err := one.pool.Conn(always)
			b.check(err)
			time.AfterFunc(time.Millisecond, end)
			defer one.pool.SetMaxOpenConns(0)
			defer busy.Close()
			return term.InTx(ctx, one.pool, nil, func(*sql.Tx) error { b.Error("called"); return nil })
		}, func(e ends) []error { return append(causes(e.term, e.ctx), elector.ErrRolledBack) }},
		"InTx, before": {func(b *bench, one *candidate, ctx context.Context, term *elector.Term, end func()) error {
			end()
			return term.InTx(ctx, one.pool, nil, func(*sql.Tx) error { b.Error("called"); return nil })
		}, func(e ends) []error { return append(causes(e.term, e.ctx), elector.ErrRolledBack) }},
		"Verify": {func(b *bench, one *candidate, ctx context.Context, term *elector.Term, end func()) error {
			end()
			return term.Verify(ctx)
		}, func(e ends) []error { return causes(e.term, e.ctx) }},
		"Resign": {func(b *bench, one *candidate, ctx context.Context, term *elector.Term, end func()) error {
			var err error
			_, _ = one.RunIfLeader(always, func(context.Context) error { // which holds the lock back
				end()
				if e := ctx.Err(); e == nil {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, time.Second)
					defer stop()
				}
				err = term.Resign(ctx)
				return nil
			})
			return err
		}, func(e ends) []error {
			switch {
			case e.term == elector.ErrSessionLost:
				return causes(e.term, e.ctx)
			case e.child:
				return []error{elector.ErrResigned}
			case e.ctx == nil:
				return []error{context.DeadlineExceeded}
			}
			return causes(nil, e.ctx)
		}},
		"RunIfLeader": {func(b *bench, one *candidate, ctx context.Context, _ *elector.Term, end func()) error {
			end()
			synctest.Wait() // between the two ends it runs nothing, and has no error
			ran, err := one.RunIfLeader(ctx, func(context.Context) error { return nil })
			if ran && ctx.Err() != nil {
				b.Error("ran")
			}
			return err
		}, func(e ends) []error {
			if e.child {
				return []error{e.term}
			}
			return causes(nil, e.ctx)
		}},
	} {
		for _, e := range []ends{
			{term: elector.ErrSessionLost}, {ctx: errCaller}, {term: elector.ErrSessionLost, ctx: errCaller},
			{term: elector.ErrSessionLost, child: true}, {term: elector.ErrResigned}, {term: elector.ErrResigned, child: true},
			{term: elector.ErrResigned, ctx: errCaller},
		} {
			if name == "InTx, while it begins" && e.term != nil && e.ctx != nil {
				continue // it returns at the first
			}
			for range 10 { // the two ends reach the call on other goroutines
				scene(t, name, func(b *bench) {
					one := b.candidate("one")
					term := b.campaign(one.Elector)
					ctx, stop := context.WithCancelCause(always)
					if e.child {
						ctx, stop = context.WithCancelCause(term.Context())
					}
					defer stop(nil)
					pid := b.pid(one)
					err := c.call(b, one, ctx, term, func() {
						switch e.term {
						case elector.ErrSessionLost:
							b.Terminate(pid)
							_ = term.Verify(always)
						case elector.ErrResigned:
							go func() { _ = term.Resign(always) }()
							<-term.Context().Done()
						}
						if e.ctx != nil {
							stop(e.ctx)
						}
					})
					want := c.names(e)
					if b.wraps(err, want...); e.term == nil && errors.Is(err, elector.ErrNotLeader) {
						b.Errorf("%+v: got %v", e, err)
					}
					_ = term.Resign(always)
				})
			}
		}
	}
}

// TryRun's context ends while its lead winds down after the loss of the term. Run, which would go on, names its context.
func TestTryRunNamesALostTermBesideTheEndOfItsContext(t *testing.T) {
	for _, tries := range []bool{true, false} {
		bubble(t, func(b *bench) {
			one := b.candidate("one")
			ctx, stop := context.WithCancel(always)
			work := func(lead context.Context, term *elector.Term) error {
				synctest.Wait() // until the hooks know of the term
				b.Terminate(b.pid(one))
				<-lead.Done()
				stop()
				return lead.Err()
			}
			if tries {
				_, err := one.TryRun(ctx, work)
				b.wraps(err, context.Canceled, elector.ErrSessionLost)
			} else {
				b.wraps(one.Run(ctx, work), context.Canceled)
			}
			b.ended(one, hooks.SessionLost)
		})
	}
}

// causes are what the error of a call on a term wraps.
func causes(term, ctx error) (all []error) {
	if term != nil {
		all = append(all, elector.ErrNotLeader, term)
	}
	if ctx != nil {
		all = append(all, ctx, context.Canceled)
	}
	return all
}

// A process that thaws finds that its term has ended at its deadline. Its successor began after that.
func TestATermEndsAtItsDeadlineHoweverLateThatIsNoticed(t *testing.T) {
	for name, stands := range map[string]func(b *bench, one *candidate, d time.Duration){
		"frozen": func(b *bench, one *candidate, d time.Duration) {
			one.process.Freeze()
			time.Sleep(d)
			one.process.Thaw()
		},
		"cut off": func(b *bench, one *candidate, d time.Duration) {
			one.process.Cut(electortest.Both)
			time.Sleep(d)
			one.process.Mend()
		},
	} {
		scene(t, name, func(b *bench) {
			one, other := b.run("one"), b.candidate("other")
			b.leads(one)
			time.Sleep(2*heartbeat + heartbeat/2)
			term, _ := one.Term()
			began, deadline := term.ElectedAt(), term.Deadline()
			b.start(other)
			stands(b, one, 30*time.Second)
			synctest.Wait()
			b.ended(one, hooks.LeaseExpired)
			d, elected := one.rec.Demoted()[0], other.rec.Elected()[0]
			if !d.At.Equal(deadline) || d.Held != deadline.Sub(began) || d.At.After(elected.At) {
				b.Errorf("the term, valid until %v, ended at %v, held %v; the next one began at %v", deadline, d.At, d.Held, elected.At)
			}
			late := 30*time.Second - heartbeat/2 - (validity - heartbeat)
			if name != "frozen" {
				late = 0
			}
			b.within("the end was noticed", late-time.Second, d.Late, late+time.Second)
		})
	}
}
