package memory_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// nothing is work in a transaction.
func nothing(*sql.Tx) error { return nil }

// pings counts the sessions with a heartbeat while something happens.
func (b *bench) pings(of func()) (n int) {
	b.Helper()
	since := b.asked()
	of()
	synctest.Wait()
	b.Trace(nil)
	for _, asked := range since() {
		if slices.Contains(asked, "Ping") {
			n++
		}
	}
	return n
}

// A statement has failed on a connection of a pool. Each session of the pool is asked whether it
// lives, unless the statement's context has ended.
func TestAFailedStatementMakesAHeartbeatOfEachSessionOfItsPool(t *testing.T) {
	starting := serverError("57P03", "the database system is starting up")
	for name, c := range map[string]struct {
		fails string
		ends  bool // the context of the call
		call  func(ctx context.Context, b *bench, first *candidate, term *elector.Term, work func(*sql.Tx) error) error
		want  int
	}{
		"Leader":         {"Holder", false, leaderOf, 3},
		"Leader, ended":  {"Holder", true, leaderOf, 0},
		"an attempt":     {"DescribeServer", false, otherAttempt, 3},
		"a standby":      {"", false, standbyAttempt, 3},
		"InTx":           {"", false, fencedHere, 3},
		"InTx, ended":    {"", true, fencedHere, 0},
		"InTx elsewhere": {"", false, fencedElsewhere, 4},
	} {
		scene(t, name, func(b *bench) {
			var fails atomic.Bool
			ctx, end := context.WithCancel(always)
			defer end()
			first := b.wired(func(m message, send func() error) error {
				if !fails.Load() || m.name != c.fails {
					return send()
				}
				if c.ends {
					end()
				}
				return starting
			}, "first")
			all := []*elector.Term{b.campaign(first.Elector)}
			for _, election := range []string{"one", "two", "three"} {
				e, err := elector.New(first.pool, election)
				b.check(err)
				all = append(all, b.campaign(e))
			}
			b.wraps(all[3].Resign(always))
			time.Sleep(heartbeat / 4)
			n := b.pings(func() {
				fails.Store(true)
				err := c.call(ctx, b, first, all[0], func(*sql.Tx) error {
					if c.ends {
						end()
						time.Sleep(time.Millisecond)
					}
					return starting
				})
				if err == nil {
					b.Error("no error")
				}
				fails.Store(false)
				time.Sleep(heartbeat / 4)
			})
			if n != c.want {
				b.Errorf("%d heartbeats, want %d", n, c.want)
			}
			for _, term := range all[:3] {
				b.wraps(term.Resign(always))
			}
		})
	}
}

func leaderOf(ctx context.Context, _ *bench, first *candidate, _ *elector.Term, _ func(*sql.Tx) error) error {
	_, err := first.Leader(ctx)
	return err
}

func otherAttempt(ctx context.Context, b *bench, first *candidate, _ *elector.Term, _ func(*sql.Tx) error) error {
	e, err := elector.New(first.pool, "four")
	b.check(err)
	_, _, err = e.TryCampaign(ctx)
	return err
}

func standbyAttempt(ctx context.Context, b *bench, first *candidate, term *elector.Term, work func(*sql.Tx) error) error {
	standby := b.NewStandby(0)
	b.Cleanup(standby.Close)
	first.process.ConnectTo(standby)
	defer first.process.ConnectTo(b.Server)
	first.pool.SetMaxIdleConns(0)
	return otherAttempt(ctx, b, first, term, work)
}

func fencedHere(ctx context.Context, _ *bench, first *candidate, term *elector.Term, work func(*sql.Tx) error) error {
	return term.InTx(ctx, first.pool, nil, work)
}

// The transaction is of a term with another pool.
func fencedElsewhere(ctx context.Context, b *bench, first *candidate, _ *elector.Term, work func(*sql.Tx) error) error {
	pool := b.Open()
	defer pool.Close()
	e, err := elector.New(pool, "elsewhere")
	b.check(err)
	term := b.campaign(e)
	defer func() { b.wraps(term.Resign(always)) }()
	defer time.Sleep(time.Millisecond)
	return term.InTx(ctx, first.pool, nil, work)
}

// A leader's pool has reached another server. Its session is asked which server it is on, once, and
// compared with a newer one only.
func TestASessionIsComparedOnlyWithANewerServer(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		term := b.campaign(one.Elector)
		standby := b.NewStandby(0)
		defer standby.Close()
		one.pool.SetMaxIdleConns(0)
		one.process.ConnectTo(standby)
		look := func() {
			_, err := one.Leader(always)
			b.wraps(err, elector.ErrNoLeader)
		}
		time.Sleep(heartbeat / 4)
		if n := b.pings(look); n != 1 {
			b.Errorf("%d heartbeats", n)
		}
		time.Sleep(heartbeat / 4)
		if n := b.pings(look); n != 0 {
			b.Errorf("%d heartbeats", n)
		}
		b.wraps(context.Cause(term.Context()))
		b.wraps(standby.Promote())
		look()
		time.Sleep(heartbeat / 4)
		b.wraps(context.Cause(term.Context()), elector.ErrOldPrimary)
		b.wraps(term.Resign(always), elector.ErrOldPrimary)
	})
}

// A session could not learn which server its own is. That ends no term, and it asks again.
func TestASessionThatCannotCompareItsServerGoesOn(t *testing.T) {
	for name, c := range map[string]func(b *bench, one *candidate, term *elector.Term) error{
		"Leader": func(b *bench, one *candidate, _ *elector.Term) error {
			_, err := one.Leader(always)
			b.wraps(err, elector.ErrNoLeader)
			return errOops // which nobody sees
		},
		"InTx": func(b *bench, one *candidate, term *elector.Term) error {
			return term.InTx(always, one.pool, nil, nothing)
		},
	} {
		scene(t, name, func(b *bench) {
			var fails atomic.Int32
			one := b.wired(func(m message, send func() error) error {
				if m.name == "Identify" && !m.inTx && fails.Add(-1) >= 0 {
					return errOops
				}
				return send()
			}, "one")
			term := b.campaign(one.Elector)
			time.Sleep(heartbeat / 4)
			b.failOver(one)
			fails.Store(5)
			err := c(b, one, term)
			if !errors.Is(err, errOops) || strings.Contains(err.Error(), "another cluster") {
				b.Errorf("got %v", err)
			}
			time.Sleep(heartbeat / 8)
			b.wraps(context.Cause(term.Context()))
			fails.Store(0)
			_, err = one.Leader(always)
			b.wraps(err, elector.ErrNoLeader)
			time.Sleep(heartbeat / 8)
			b.wraps(context.Cause(term.Context()), elector.ErrOldPrimary)
			b.wraps(term.Resign(always), elector.ErrNotLeader)
		})
	}
}

// Before a session is made, its connection is compared with the newest primary. If that fails, the
// error is the reason.
func TestAConnectionThatCannotBeComparedIsNotUsed(t *testing.T) {
	bubble(t, func(b *bench) {
		var fails atomic.Bool
		one := b.wired(func(m message, send func() error) error {
			if m.name == "Identify" && fails.Load() {
				return errOops
			}
			return send()
		}, "one")
		term := b.campaign(one.Elector)
		b.failOver(one)
		b.wraps(term.InTx(always, one.pool, nil, nothing), elector.ErrOldPrimary)
		b.wraps(term.Resign(always), elector.ErrOldPrimary)
		fails.Store(true)
		_, _, err := one.TryCampaign(always)
		if b.wraps(err, errOops); errors.Is(err, elector.ErrOldPrimary) {
			b.Errorf("got %v", err)
		}
		fails.Store(false)
		b.wraps(b.campaign(one.Elector).Resign(always))
	})
}

// A candidate finds a standby, which is promoted before it answers the attempt. Its session is on
// that primary, and not on what the standby was.
func TestAServerThatIsPromotedDuringAnAttemptIsKnownByItsNewTimeline(t *testing.T) {
	bubble(t, func(b *bench) {
		var third *electortest.Server
		var promotes atomic.Bool
		one := b.wired(func(m message, send func() error) error {
			if m.name == "TryLock" && promotes.Swap(false) {
				b.wraps(third.Promote())
			}
			return send()
		}, "one")
		term := b.campaign(one.Elector)
		second := b.failOver(one)
		b.wraps(term.InTx(always, one.pool, nil, nothing), elector.ErrOldPrimary)
		b.wraps(term.Resign(always), elector.ErrOldPrimary)
		b.wraps(b.campaign(one.Elector).Resign(always))
		third = second.NewStandby(0)
		defer third.Close()
		one.process.ConnectTo(third)
		promotes.Store(true)
		term = b.campaign(one.Elector)
		if term.Token()>>48 != 3 {
			b.Errorf("the token is %x", term.Token())
		}
		fourth := third.NewStandby(0)
		defer fourth.Close()
		b.wraps(fourth.Promote())
		one.process.ConnectTo(fourth)
		_, err := one.Leader(always)
		b.wraps(err, elector.ErrNoLeader)
		time.Sleep(heartbeat / 8)
		b.wraps(context.Cause(term.Context()), elector.ErrOldPrimary)
		b.wraps(term.Resign(always), elector.ErrOldPrimary)
	})
}

// A slow look at the server that the pool reaches is not repeated meanwhile.
func TestADeputyLooksAroundOnceAtATime(t *testing.T) {
	bubble(t, func(b *bench) {
		b.leads(b.run("leader"))
		var looks, most atomic.Int32
		two := b.wired(func(m message, send func() error) error {
			if m.name != "Identify" {
				return send()
			}
			most.Store(max(most.Load(), looks.Add(1)))
			m.delay(validity * 9 / 10)
			looks.Add(-1)
			return send()
		}, "two", elector.WithTakeover(elector.Deputy))
		b.runFor(10*heartbeat, two)
		if most.Load() != 1 {
			b.Errorf("%d at once", most.Load())
		}
		time.Sleep(lease)
	})
}

// A connection of the pool is of no use. The transaction takes another one, if there is an idle one.
func TestATransactionThatCannotBeginOnASpoiltConnectionTakesAnother(t *testing.T) {
	aborted := serverError("25P02", "current transaction is aborted")
	for name, c := range map[string]struct {
		err   error
		again bool
	}{"another code's": {aborted, true}, "spoilt": {errSpoilt, true}, "refused": {errOops, false}} {
		scene(t, name, func(b *bench) {
			one := b.wired(fail("BEGIN", 1, 1, c.err), "work")
			one.pool.SetMaxIdleConns(4)
			term := b.campaign(b.candidate("one").Elector)
			var all []*sql.Conn
			for range 2 {
				conn, err := one.pool.Conn(always)
				b.check(err)
				all = append(all, conn)
			}
			for _, conn := range all {
				b.wraps(conn.Close())
			}
			if err := term.InTx(always, one.pool, nil, nothing); (err == nil) != c.again || err != nil && !errors.Is(err, c.err) {
				b.Errorf("got %v", err)
			}
			if n := one.pool.Stats().OpenConnections; (n == 1) != c.again {
				b.Errorf("%d connections are open", n)
			}
			b.wraps(term.Resign(always))
		})
	}
}
