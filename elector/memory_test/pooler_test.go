package memory_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

// What a pooler or its server answers to BEGIN, and what the candidate says of it. The check of the
// server begins two transactions.
func TestATransactionThatDoesNotBeginNamesItsCause(t *testing.T) {
	const full = "A pooler may have no server connection left"
	waited := serverError("08P01", "query_wait_timeout")
	violated := serverError("08P01", "prepared statement did not exist")
	for name, c := range map[string]struct {
		err       error
		message   string
		nth       int // that fails, and each one after it; 0 means only the first
		want      error
		says      string
		permanent bool
	}{
		"no connection in time":         {waited, "BEGIN", 1, waited, full, false},
		"a closed connection":           {driver.ErrBadConn, "BEGIN", 1, driver.ErrBadConn, full, false},
		"as in statement pooling":       {violated, "BEGIN", 1, violated, "permit no transactions", false},
		"a server in recovery":          {serverError("0A000", "cannot set transaction read-write mode during recovery"), "BEGIN", 1, elector.ErrServerReadOnly, "begin a transaction", true},
		"a full lock table":             {serverError("53200", "out of shared memory"), "BEGIN", 1, elector.ErrLockTableFull, "begin a transaction", false},
		"the second, in time":           {waited, "BEGIN", 2, nil, full, false},
		"the second, closed":            {driver.ErrBadConn, "BEGIN", 2, nil, full, false},
		"the second, statement pooling": {violated, "BEGIN", 2, nil, full, false},
		"the second, a full lock table": {serverError("53200", "out of shared memory"), "BEGIN", 2, elector.ErrLockTableFull, "begin a transaction", false},
		"once closed":                   {driver.ErrBadConn, "BEGIN", 0, nil, "", false},
		"once statement pooling":        {violated, "BEGIN", 0, nil, "", false},
	} {
		scene(t, name, func(b *bench) {
			last := math.MaxInt
			if c.nth == 0 {
				last = 1
			}
			one := b.wired(fail(c.message, max(c.nth, 1), last, c.err), "one", inside, elector.WithReadOnlyTimeout(0))
			term, elected, err := one.TryCampaign(always)
			if c.nth == 0 {
				if b.wraps(err); elected {
					b.wraps(term.Resign(always))
				} else {
					b.Error("not elected")
				}
				return
			}
			if c.want != nil {
				b.wraps(err, c.want)
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				b.Errorf("got %v", err)
			}
			if b.failed(one, hooks.OpCampaign); one.rec.Failures()[0].Permanent != c.permanent {
				b.Errorf("permanent: %t", !c.permanent)
			}
			if n := one.pool.Stats().InUse; n != 0 {
				b.Errorf("%d connections are in use", n)
			}
		})
	}
}

// A backend that ends, a full pooler and one in statement mode say the same, with lib/pq.
func TestAPoolerPermitsNoTransactionsOnceItHasRefusedFiveInTenSeconds(t *testing.T) {
	for _, refusal := range []error{driver.ErrBadConn, serverError("08P01", "refused")} {
		for _, permits := range []time.Duration{0, 8 * time.Second} { // after which one begins
			scene(t, fmt.Sprint(refusal, permits), func(b *bench) {
				var last, refused atomic.Int64
				start := time.Now()
				last.Store(int64(permits))
				one := b.wired(func(m message, send func() error) error {
					if at := last.Load(); m.name != "BEGIN" || at > 0 && int64(time.Since(start)) > at && last.CompareAndSwap(at, 0) {
						return send()
					}
					refused.Add(1)
					return refusal
				}, "one", inside)
				err := one.Run(always, nil)
				b.wraps(err, elector.ErrSessionPooled)
				b.wraps(err, refusal)
				b.within("it is refused", permits+10*time.Second, time.Since(start), permits+time.Minute)
				if n := refused.Load(); n < 5 {
					b.Errorf("refused after %d transactions", n)
				}
				for _, f := range one.rec.Failures() {
					if f.Permanent != (f.Err == err) {
						b.Errorf("permanent: %t, %v", f.Permanent, f.Err)
					}
				}
			})
		}
	}
}

// Whichever it is: the check does not go on, and finds no other reason.
func TestAStatementThatFailsInTheCheckOfATransactionIsTheReason(t *testing.T) {
	for _, c := range []struct {
		message string
		nth     int
	}{{"BEGIN", 1}, {"DescribeServer", 1}, {"NamedStatement", 1}, {"ApplySettings", 1}, {"BEGIN", 2}, {"ShowsSnapshot", 1}, {"TryPair", 1},
		{"PingTransaction", 1}, {"ShowsSnapshot", 2}, {"PairIsFree", 1}, {"ROLLBACK", 1}, {"PairIsFree", 2}} {
		scene(t, fmt.Sprint(c.message, c.nth), func(b *bench) {
			failure := serverError("53200", "out of shared memory")
			if c.message == "ROLLBACK" {
				failure = errOops
			}
			one := b.wired(fail(c.message, c.nth, c.nth, failure), "one", inside)
			term, elected, err := one.TryCampaign(always)
			if elected {
				b.Error("elected")
				b.wraps(term.Resign(always))
			}
			if c.message == "ROLLBACK" {
				b.wraps(err, errOops)
			} else {
				b.wraps(err, elector.ErrLockTableFull)
			}
			b.failed(one, hooks.OpCampaign)
			for _, f := range one.rec.Failures() {
				if f.Permanent {
					b.Errorf("refused permanently: %v", f.Err)
				}
			}
			b.wraps(b.campaign(one.Elector).Resign(always))
		})
	}
}

// Of candidates that check the server at the same time, the last one makes no check.
func TestACandidateThatSharesACheckLearnsWhatItHasFound(t *testing.T) {
	// third has three candidates of a process begin one after the other, and returns the last.
	third := func(b *bench, process *electortest.Process, opts ...elector.Option) (*candidate, error) {
		b.Helper()
		pool := process.Open()
		process.SetLatency(func() time.Duration { return time.Millisecond })
		tries := func(s *candidate) error {
			term, elected, err := s.TryCampaign(always)
			if elected {
				b.wraps(term.Resign(always))
			}
			return err
		}
		var before sync.WaitGroup
		for _, id := range []string{"one", "two"} {
			s := b.candidateOn(process, pool, id)
			before.Go(func() { b.wraps(tries(s)) })
			time.Sleep(time.Millisecond)
		}
		s := b.candidateOn(process, pool, "three", append(opts, elector.WithReadOnlyTimeout(0))...)
		err := tries(s)
		before.Wait()
		process.SetLatency(nil)
		return s, err
	}
	scene(t, "a pooler", func(b *bench) {
		asked := b.count()
		s, err := third(b, b.NewPooler(10).NewProcess())
		b.wraps(err)
		if n := asked()["NamedStatement"]; n != 2 {
			b.Errorf("%d checks of a transaction, want those of the first and the second", n)
		}
		if c := s.rec.Campaigns(); len(c) != 1 || !c[0].InTransaction {
			b.Errorf("%+v", c)
		}
	})
	replicated(t, func(b *bench) {
		_, err := third(b, b.NewPooler(10).NewProcess(), synchronously)
		b.wraps(err, elector.ErrSessionPooled) // with synchronous standbys the scope is not the same
	})
	scene(t, "a primary", func(b *bench) { // a standby after it is a failover
		process := b.NewProcess()
		asked := b.count()
		s, err := third(b, process)
		b.wraps(err)
		if n := asked()["DescribeServer"]; n != 2*22 {
			b.Errorf("%d questions, want those of the first and the second", n)
		}
		s.pool.SetMaxIdleConns(-1)
		standby := b.NewStandby(0)
		b.Cleanup(standby.Close)
		process.ConnectTo(standby)
		_, _, err = s.TryCampaign(always)
		b.wraps(err, elector.ErrServerReadOnly)
		if b.failed(s, hooks.OpCampaign); s.rec.Failures()[0].Permanent {
			b.Error("refused permanently")
		}
	})
}

// Other code has left transactions open on connections of the pool. No session is inside one.
func TestATransactionThatOtherCodeHasLeftOpenIsNoSessions(t *testing.T) {
	for name, c := range map[string]struct {
		statement string // in the transaction
		begins    wire   // how a server answers a session that begins another one
		opts      []elector.Option
	}{
		"polling":                             {"-- name: InTransaction :one", passes, nil},
		"polling, failed":                     {"fail", passes, nil},
		"waiting":                             {"-- name: InTransaction :one", passes, []elector.Option{elector.WithTakeover(elector.Wait)}},
		"waiting, failed":                     {"fail", passes, []elector.Option{elector.WithTakeover(elector.Wait)}},
		"in a transaction":                    {"fail", passes, []elector.Option{inside}},
		"in a transaction, with a snapshot":   {"", fail("RepeatableRead", 1, 3, serverError("25001", "SET TRANSACTION ISOLATION LEVEL must be called before any query")), []elector.Option{inside}},
		"in a transaction, one that is ended": {"", fail("RepeatableRead", 1, 3, serverError("25P02", "current transaction is aborted")), []elector.Option{inside}},
	} {
		scene(t, name, func(b *bench) {
			const spoilt = 3
			one := b.wired(c.begins, "one", c.opts...)
			one.pool.SetMaxIdleConns(spoilt)
			var all []*sql.Conn
			for range spoilt {
				conn, err := one.pool.Conn(always)
				b.check(err)
				if c.statement != "" {
					_, err = conn.ExecContext(always, "BEGIN")
					b.wraps(err)
					_, _ = conn.ExecContext(always, c.statement)
				}
				all = append(all, conn)
			}
			for _, conn := range all {
				b.wraps(conn.Close())
			}
			start := time.Now()
			term := b.campaign(one.Elector)
			b.within("elected", 0, time.Since(start), 0)
			b.failed(one)
			b.wraps(term.Verify(always))
			b.wraps(term.InTx(always, one.pool, nil, func(*sql.Tx) error { return nil }))
			time.Sleep(lease)
			b.wraps(context.Cause(term.Context()))
			b.wraps(term.Resign(always))
		})
	}
}

// The server has released the lock, whatever the error is.
func TestAnErrorInsideTheTransactionOfALeaderEndsItsTermAtOnce(t *testing.T) {
	for _, name := range []string{"PingTransaction", "Savepoint", "ReleaseIt"} {
		for _, code := range []string{"25P02", "42704", "53200", "XX000", ""} {
			scene(t, name+" "+code, func(b *bench) {
				var fails atomic.Bool
				one := b.wired(func(m message, send func() error) error {
					if !fails.Load() || m.name != name {
						return send()
					}
					if code == "" { // the transaction is another one
						*m.text = "SHOW another"
						return send()
					}
					return serverError(code, "refused")
				}, "one", inside)
				b.Handle(func(electortest.Statement) (electortest.Answer, error) {
					return electortest.Answer{Rows: [][]any{{""}}}, nil
				})
				seats := name != "PingTransaction" // a leader without a seat tries for one behind a savepoint
				if seats && code == "" {
					return
				}
				if seats {
					b.strangerOnSeats(one)
				}
				fails.Store(seats)
				term := b.campaign(one.Elector)
				if !seats {
					time.Sleep(heartbeat / 2)
					fails.Store(true)
					time.Sleep(heartbeat / 2)
				}
				synctest.Wait()
				cause := context.Cause(term.Context())
				b.wraps(cause, elector.ErrSessionLost)
				if got := state(cause); got != code && code != "42704" {
					b.Errorf("the cause has the state %q: %v", got, cause)
				}
				b.wraps(term.Resign(always), elector.ErrNotLeader)
			})
		}
	}
}

// After a query, its portal keeps a snapshot until the next statement, and a snapshot holds back
// VACUUM. So a statement without one comes last.
func TestAnIdleTransactionHasNoSnapshot(t *testing.T) {
	bubble(t, func(b *bench) {
		var last sync.Map // what each backend did
		b.Trace(func(e electortest.Event) { last.Store(e.PID, e.What) })
		one := b.candidate("one", inside)
		term := b.campaign(one.Elector)
		leader := b.pid(one)
		check := func() {
			synctest.Wait()
			if what, _ := last.Load(leader); what != "PingTransaction" {
				b.Errorf("the leader is idle after %s", what)
			}
		}
		for range 10 {
			check()
			time.Sleep(heartbeat / 3)
		}
		_, err := one.Leader(always) // and compares the server with the session's
		b.wraps(err)
		time.Sleep(10 * time.Millisecond)
		check()
		ctx, stop := context.WithTimeout(always, time.Second)
		defer stop()
		go func() {
			time.Sleep(time.Second / 2)
			check()
		}()
		b.wraps(term.TransferTo(ctx, "nobody"), elector.ErrNoSuccessor)
		b.wraps(term.Resign(always))
	})
}

// A pooler ends the transaction of a client that is gone.
func TestAKilledLeaderBehindAPoolerIsReplacedAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		pooler := b.NewPooler(6)
		on := func(id string) *candidate {
			process := pooler.NewProcess()
			return b.candidateOn(process, process.Open(), id)
		}
		leader := on("one")
		term := b.campaign(leader.Elector)
		next := b.start(on("two"))
		time.Sleep(heartbeat / 2)
		leader.process.Kill()
		b.within("the other leads", 0, b.leads(next), 5*time.Second/4) // it polls
		b.wraps(term.Resign(always), elector.ErrSessionLost)
	})
}

// A leader inside a transaction cannot wait for standbys, so no other scope is tried.
func TestSynchronousStandbysAreNotWaitedForThroughAPooler(t *testing.T) {
	replicated(t, func(b *bench) {
		pooled := b.NewPooler(4).NewProcess()
		_, _, err := b.candidateOn(pooled, pooled.Open(), "one", synchronously).TryCampaign(always)
		b.wraps(err, elector.ErrSessionPooled)
	})
}

// A request that is refused says why, and is withdrawn at once. Its maker first asks who leads, in a
// transaction of its own.
func TestARequestThatCannotBeMadeLeavesNothingBehind(t *testing.T) {
	for _, c := range []struct {
		message string
		first   int
	}{{"Holder", 1}, {"BEGIN", 2}, {"ApplySettings", 1}, {"ApplySettings", 2}, {"Ring", 1}, {"Holder", 2}} {
		scene(t, fmt.Sprint(c.message, c.first), func(b *bench) {
			leader := b.run("leader")
			b.leads(leader)
			other := b.wired(fail(c.message, c.first, math.MaxInt, errOops), "other")
			start := time.Now()
			_, err := ask(b, resignOf(other))
			if b.wraps(err, errOops); errors.Is(err, elector.ErrUnanswered) {
				b.Errorf("got %v", err)
			}
			b.within("the answer", 0, time.Since(start), 0)
			synctest.Wait()
			if n := other.pool.Stats().InUse; n != 0 || len(b.Locks()) > 2 {
				b.Errorf("%d connections are in use, and these locks held: %+v", n, b.Locks())
			}
			b.ended(leader)
		})
	}
}

func TestABeginThatWaitsForABackendEndsWithItsContext(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.NewPooler(1).Open()
		defer pool.Close()
		tx, err := pool.Begin() // and keeps the only backend
		b.check(err)
		defer tx.Rollback()
		ctx, stop := context.WithTimeout(always, time.Second)
		defer stop()
		began := time.Now()
		_, err = pool.ExecContext(ctx, "BEGIN")
		b.wraps(err, context.DeadlineExceeded)
		b.within("it returns", time.Second, time.Since(began), time.Second)
	})
}

// answers returns a wire on which the n-th message of that name, and no other, gets that row.
func (b *bench) answers(name string, nth int, row ...any) wire {
	b.Handle(func(electortest.Statement) (electortest.Answer, error) {
		return electortest.Answer{Rows: [][]any{row}}, nil
	})
	var n atomic.Int32
	return func(m message, send func() error) error {
		if m.name == name && n.Add(1) == int32(nth) {
			*m.text = "SHOW another"
		}
		return send()
	}
}

// Another backend has answered in the middle of an attempt. The next one leads inside a transaction,
// unless the error may have another cause.
func TestACandidateThatAPoolerMovesInAnAttemptLeadsInsideATransaction(t *testing.T) {
	missing := serverError("26000", "prepared statement does not exist")
	for name, c := range map[string]struct {
		wire  func(b *bench) wire
		scope elector.Scope
		moved bool
	}{
		"moved":                   {func(b *bench) wire { return b.answers("Confirm", 1, true, int32(1), int64(1), "0", false, "") }, elector.Auto, true},
		"moved, in session scope": {func(b *bench) wire { return b.answers("Confirm", 1, true, int32(1), int64(1), "0", false, "") }, elector.SessionScope, false},
		"statements come and go":  {func(*bench) wire { return fail("TryLock", 1, 2, missing) }, elector.Auto, false},
	} {
		scene(t, name, func(b *bench) {
			one := b.wired(c.wire(b), "one", elector.WithScope(c.scope))
			_, _, err := one.TryCampaign(always)
			b.wraps(err, elector.ErrSessionPooled)
			term := b.campaign(one.Elector)
			synctest.Wait()
			if all := one.rec.Campaigns(); all[len(all)-1].InTransaction != c.moved {
				b.Errorf("inside a transaction: %t", !c.moved)
			}
			b.wraps(term.Resign(always))
			b.failed(one, hooks.OpCampaign)
		})
	}
}

// A heartbeat finds another backend, and the check of transactions fails once. The next check finds
// no pooler.
func TestALeaderThatAPoolerHasMovedLeadsInASessionWithoutThePooler(t *testing.T) {
	bubble(t, func(b *bench) {
		moved := b.answers("Ping", 2, int64(1), false, false)
		refused := fail("NamedStatement", 1, 1, errOops)
		one := b.wired(func(m message, send func() error) error {
			return moved(m, func() error { return refused(m, send) })
		}, "one", elector.WithScope(elector.Auto))
		term := b.campaign(one.Elector)
		<-term.Context().Done()
		b.wraps(term.Resign(always), elector.ErrSessionPooled)
		_, _, err := one.TryCampaign(always)
		b.wraps(err, errOops)
		b.wraps(b.campaign(one.Elector).Resign(always))
		synctest.Wait()
		if all := one.rec.Campaigns(); all[len(all)-1].InTransaction {
			b.Errorf("campaigns: %+v", all)
		}
	})
}

// The lock is granted inside a transaction, and confirmed on another connection. Whichever message
// fails, the candidate is not elected, and leaves nothing behind.
func TestAGrantThatCannotBeConfirmedIsGivenUp(t *testing.T) {
	full := serverError("53200", "out of shared memory")
	for _, c := range []struct {
		message string
		nth     int
		err     error
	}{
		{"TryTransactionLock", 1, full}, {"BEGIN", 4, errOops}, {"ApplySettings", 2, full}, {"Confirm", 1, full}, {"Confirm", 1, errOops},
		{"COMMIT", 1, errOops}, {"PingTransaction", 2, full},
	} {
		scene(t, fmt.Sprint(c.message, c.nth), func(b *bench) {
			var mended atomic.Bool
			fails := fail(c.message, c.nth, math.MaxInt, c.err)
			one := b.wired(func(m message, send func() error) error {
				if m.name == "COMMIT" && !mended.Load() && c.message != "COMMIT" && c.message != "PingTransaction" {
					b.Error("a transaction in which a statement has failed is committed")
				}
				if mended.Load() {
					return send()
				}
				return fails(m, send)
			}, "one", inside)
			_, elected, err := one.TryCampaign(always)
			mended.Store(true)
			if b.wraps(err, c.err); elected {
				b.Error("elected")
			}
			b.leftNothing(one)
			b.failed(one, hooks.OpCampaign)
			b.wraps(b.campaign(one.Elector).Resign(always))
		})
	}
}

// The connection that confirms a grant came with a transaction that other code has left open, with a
// snapshot. It is not committed, and another one confirms the next grant.
func TestAGrantIsNotConfirmedInATransactionOfOtherCode(t *testing.T) {
	bubble(t, func(b *bench) {
		var sets atomic.Int32 // of the second campaign
		sets.Store(math.MinInt32)
		one := b.wired(func(m message, send func() error) error {
			if m.name == "RepeatableRead" && sets.Add(1) == 2 {
				return serverError("25001", "SET TRANSACTION ISOLATION LEVEL must be called before any query")
			}
			return send()
		}, "one", inside)
		one.pool.SetMaxIdleConns(4)
		b.wraps(b.campaign(one.Elector).Resign(always))
		sets.Store(0)
		b.wraps(b.campaign(one.Elector).Resign(always))
		if n := sets.Load(); n <= 2 {
			b.Errorf("%d transactions began, want more than the two of the first grant", n)
		}
		b.failed(one)
	})
}

// The driver fails inside a savepoint. That is no refusal by the server.
func TestAnErrorOfTheDriverBehindASavepointEndsTheTerm(t *testing.T) {
	bubble(t, func(b *bench) {
		var saved atomic.Bool
		refused := fail("TryPair", 1, 1, serverError("53200", "out of shared memory"))
		breaks := fail("TryPair", 1, 1, errOops)
		one := b.wired(func(m message, send func() error) error {
			saved.CompareAndSwap(false, m.name == "Savepoint")
			if !saved.Load() {
				return send()
			}
			return refused(m, func() error { return breaks(m, send) })
		}, "one", inside)
		b.strangerOnSeats(one)
		term := b.campaign(one.Elector)
		synctest.Wait()
		b.wraps(context.Cause(term.Context()))
		time.Sleep(heartbeat) // the next try for a seat follows
		b.wraps(context.Cause(term.Context()), elector.ErrSessionLost, errOops)
		b.wraps(term.Resign(always), elector.ErrNotLeader)
	})
}

// The transaction has ended on the server when it is committed to release its lock.
func TestAResignationOfATransactionThatIsOverSaysSo(t *testing.T) {
	bubble(t, func(b *bench) {
		var moved atomic.Bool
		b.Handle(func(electortest.Statement) (electortest.Answer, error) {
			return electortest.Answer{Rows: [][]any{{""}}}, nil
		})
		one := b.wired(func(m message, send func() error) error {
			if m.name == "PingTransaction" && moved.Load() {
				*m.text = "SHOW another"
			}
			return send()
		}, "one", inside)
		term := b.campaign(one.Elector)
		time.Sleep(heartbeat / 2)
		moved.Store(true)
		b.wraps(term.Resign(always), elector.ErrSessionLost)
	})
}

// A heartbeat waits for the COMMIT of a resignation, and then finds no transaction.
func TestAHeartbeatAfterAResignationIsNoLoss(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.wired(func(m message, send func() error) error {
			err := send()
			if m.name == "COMMIT" {
				time.Sleep(heartbeat * 3 / 2)
			}
			return err
		}, "one", inside, elector.WithTakeover(elector.Wait))
		term := b.campaign(one.Elector)
		time.Sleep(heartbeat)
		b.wraps(term.Resign(always))
		b.ended(one, hooks.Resigned)
		time.Sleep(heartbeat * 3 / 2) // a COMMIT may outlast the resignation
	})
}

// hogs has other code take each connection of the pool that is free.
func (b *bench) hogs(pool *sql.DB) {
	ctx, stop := context.WithCancel(always)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := pool.Conn(ctx)
			if err != nil {
				return
			}
			defer conn.Close()
		}
	}()
	b.Cleanup(func() {
		stop()
		<-done
	})
}

// A candidate that waits for the lock inside a transaction has the connection for its grant.
func TestACandidateThatWaitsInsideATransactionNeedsNoOtherConnectionToLead(t *testing.T) {
	for name, c := range map[string]struct {
		opts []elector.Option
		ends func(b *bench, one *candidate)
	}{
		"a deputy": {[]elector.Option{elector.WithTakeover(elector.Deputy)}, func(b *bench, one *candidate) { b.Terminate(b.pid(one)) }},
		"a successor": {[]elector.Option{elector.WithTakeover(elector.Poll), elector.WithRetryInterval(heartbeat)}, func(b *bench, one *candidate) {
			b.wraps(b.term(one).TransferTo(always, "two"))
		}},
	} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one", inside)
			one.process.SetDriver(electortest.PQ) // or it learns of its end before the deputy looks, and leads again
			b.leads(b.start(one))
			var waits atomic.Bool
			held := make(chan struct{})
			two := b.wired(func(m message, send func() error) error {
				err := send()
				if m.name == "PrepareWait" && waits.CompareAndSwap(false, true) {
					close(held)
				}
				return err
			}, "two", append(c.opts, inside)...)
			two.pool.SetMaxOpenConns(2)
			b.start(two)
			time.Sleep(3*heartbeat + heartbeat/2)
			if name == "a deputy" {
				b.hogs(two.pool)
				time.Sleep(2 * heartbeat)
			} else {
				go func() {
					<-held
					b.hogs(two.pool)
				}()
			}
			c.ends(b, one)
			b.within("it leads", 0, b.leads(two), heartbeat)
			b.failed(two)
		})
	}
}

// A pooler may have another backend answer between two statements of a follower.
func TestAFollowerThatAPoolerMovesIsNoDeputy(t *testing.T) {
	bubble(t, func(b *bench) {
		b.leads(b.run("one"))
		b.Handle(func(s electortest.Statement) (electortest.Answer, error) {
			row := []any{int32(1), false, int64(1), "1.5"}
			if s.SQL == "Confirm" {
				row = []any{false, int32(1), int64(1), "0", false, ""}
			}
			return electortest.Answer{Rows: [][]any{row}}, nil
		})
		two := b.wired(func(m message, send func() error) error {
			if m.name == "PrepareWait" || m.name == "Confirm" {
				*m.text = m.name
			}
			return send()
		}, "two", elector.WithTakeover(elector.Wait), elector.WithScope(elector.SessionScope))
		b.runFor(retry/2, two)
		if f := two.rec.Failures(); len(f) == 0 || !errors.Is(f[0].Err, elector.ErrSessionPooled) {
			b.Errorf("failures: %+v", f)
		}
	})
}

// A deputy's transaction has ended, or its attempt fails. That is not the answer that the lock is
// busy.
func TestADeputyWhoseAttemptInATransactionFailsSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		wire func(b *bench) wire
		says string
	}{
		"over":    {func(b *bench) wire { return b.answers("TryInTransaction", 2) }, "the transaction that held the lock has ended on the server"},
		"refused": {func(*bench) wire { return fail("TryInTransaction", 2, 2, errOops) }, errOops.Error()},
	} {
		scene(t, name, func(b *bench) {
			b.leads(b.run("one", inside))
			two := b.wired(c.wire(b), "two", inside, elector.WithTakeover(elector.Deputy))
			b.runFor(time.Minute, two)
			if b.failed(two, hooks.OpCampaign); !strings.Contains(two.rec.Failures()[0].Err.Error(), c.says) {
				b.Errorf("got %v", two.rec.Failures()[0].Err)
			}
		})
	}
}

// A transaction that is given up for what its statements have shown is rolled back.
func TestATransactionThatIsGivenUpIsRolledBack(t *testing.T) {
	bubble(t, func(b *bench) {
		var rollbacks, failed atomic.Int32
		refused := fail("ShowsSnapshot", 1, 1, serverError("53200", "out of shared memory"))
		one := b.wired(func(m message, send func() error) error {
			err := refused(m, send)
			if m.name == "ROLLBACK" {
				rollbacks.Add(1)
			}
			if m.name == "ROLLBACK" && err != nil {
				failed.Add(1)
			}
			return err
		}, "one", inside)
		_, _, err := one.TryCampaign(always)
		b.wraps(err, elector.ErrLockTableFull)
		if synctest.Wait(); rollbacks.Load() != 2 || failed.Load() > 0 {
			b.Errorf("%d transactions were rolled back, %d in vain", rollbacks.Load(), failed.Load())
		}
	})
}

// A follower asks beside its transaction who leads. If nobody does any more, it goes on with that
// connection, unless its COMMIT has failed.
func TestTheConnectionBesideATransactionIsKeptUnlessItFails(t *testing.T) {
	for name, c := range map[string]struct {
		commits error
		most    int // connections
	}{"kept": {nil, 3}, "failed": {errOops, math.MaxInt}} {
		scene(t, name, func(b *bench) {
			b.leads(b.run("one", inside))
			b.Handle(func(electortest.Statement) (electortest.Answer, error) {
				return electortest.Answer{Columns: make([]string, 10)}, nil
			})
			var connects atomic.Int32
			var asked atomic.Bool
			two := b.wired(func(m message, send func() error) error {
				switch m.name {
				case "CONNECT":
					connects.Add(1)
				case "Holder":
					asked.Store(true)
					*m.text = "SHOW nobody"
				case "COMMIT":
					asked.Store(false)
					if c.commits != nil {
						_ = send()
						return c.commits
					}
				case "ROLLBACK":
					if asked.Swap(false) {
						b.Error("a transaction without an error is rolled back")
					}
				}
				return send()
			}, "two", inside, elector.WithTakeover(elector.Poll), elector.WithRetryInterval(heartbeat))
			b.runFor(time.Minute, two)
			if n := connects.Load(); int(n) > c.most || c.commits != nil && n < 10 {
				b.Errorf("%d connections", n)
			}
			b.failed(two)
		})
	}
}

// Calls wait for each other on a slow link. Each of them renews the validity.
func TestCallsThatWaitForEachOtherLongerThanTheValiditySucceed(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		term := b.campaign(one.Elector)
		one.process.SetLatency(func() time.Duration { return validity / 5 })
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() { b.wraps(term.Verify(always)) })
			time.Sleep(time.Millisecond)
		}
		calls.Wait()
		one.process.SetLatency(nil)
		b.wraps(term.Resign(always))
	})
}

// A pool below database/sql does not keep a connection that is inside a transaction. So one that is
// given up is left inside one: by the driver itself, or else by a statement.
func TestAConnectionIsGivenUpInsideATransaction(t *testing.T) {
	for name, c := range map[string]struct {
		bare   bool  // the driver's connection executes nothing itself
		err    error // of BEGIN
		last   int   // of those that fail
		opts   []elector.Option
		begins int
	}{
		"at once":                 {false, nil, 0, nil, 1},
		"after an error":          {false, errOops, 1, nil, 2},
		"after errors":            {false, errOops, 9, nil, 2},
		"by a statement":          {false, driver.ErrSkip, 1, nil, 2},
		"by one that is prepared": {false, driver.ErrSkip, 2, nil, 3},
		"by a driver that cannot": {true, nil, 0, nil, 1},
		"a transaction":           {false, nil, 0, []elector.Option{inside}, 0},
	} {
		scene(t, name, func(b *bench) {
			var closing atomic.Bool
			var mu sync.Mutex
			begins, prepared := 0, 0
			one := b.wiredBy(c.bare, func(m message, send func() error) error {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case m.name == "PREPARE" && closing.Load():
					prepared++
				case m.name == "BEGIN" && closing.Load():
					if begins++; begins <= c.last {
						return c.err
					}
				}
				return send()
			}, "one", c.opts...)
			term := b.campaign(one.Elector)
			closing.Store(true)
			b.wraps(term.Resign(always))
			synctest.Wait()
			if begins != c.begins || (prepared > 0) != (c.bare || c.begins == 3) {
				b.Errorf("BEGIN was sent %d times, and prepared %d times", begins, prepared)
			}
			b.failed(one)
		})
	}
}

// A pooler would keep it.
func TestALeaderInsideATransactionPreparesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		opts []elector.Option
		want int
	}{"inside": {[]elector.Option{inside}, 0}, "outside": {nil, 1}} {
		scene(t, name, func(b *bench) {
			var unlocks atomic.Int32
			one := b.wired(func(m message, send func() error) error {
				if m.name == "PREPARE" && strings.Contains(*m.text, "-- name: Unlock ") {
					unlocks.Add(1)
				}
				return send()
			}, "one", append(c.opts, elector.WithTakeover(elector.Wait))...)
			first := b.campaign(b.candidate("first", c.opts...).Elector)
			b.start(one)
			time.Sleep(heartbeat)
			b.wraps(first.Resign(always))
			b.leads(one)
			time.Sleep(heartbeat) // and it has prepared its release
			synctest.Wait()
			if n := int(unlocks.Load()); n != c.want {
				b.Errorf("the release was prepared %d times", n)
			}
		})
	}
}

// Nor is that of other code committed on a connection that a leader asks for its requests.
func TestALeaderAsksForItsRequestsInNoTransactionOfOtherCode(t *testing.T) {
	bubble(t, func(b *bench) {
		var leads atomic.Bool
		var asked, committed atomic.Int32
		one := b.wired(func(m message, send func() error) error {
			switch {
			case !leads.Load():
			case m.name == "Requests":
				asked.Add(1)
			case m.name == "COMMIT":
				committed.Add(1)
			}
			return send()
		}, "one", inside)
		term := b.campaign(one.Elector)
		leads.Store(true)
		time.Sleep(3 * heartbeat)
		if asked.Load() < 2 || committed.Load() > 0 {
			b.Errorf("it asked %d times, and %d transactions were committed", asked.Load(), committed.Load())
		}
		b.wraps(context.Cause(term.Context()))
		b.wraps(term.Resign(always))
	})
}

// The offer ends while the successor waits. Its last attempt inside its transaction fails.
func TestASuccessorWhoseLastAttemptFailsSaysSoOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		term, _ := one.Term()
		ctx, withdraw := context.WithCancel(always)
		defer withdraw()
		go func() { _ = term.TransferTo(ctx, "two") }()
		var looks atomic.Int32 // whether the leader offers its lock
		two := b.wired(func(m message, send func() error) error {
			switch {
			case m.name == "PrepareWait":
				withdraw()
				time.Sleep(time.Millisecond)
			case m.name == "HolderOffers":
				looks.Add(1)
			case m.name == "TryInTransaction" && looks.Load() == 2:
				return errOops
			}
			return send()
		}, "two", inside, elector.WithTakeover(elector.Poll))
		b.runFor(validity, two)
		if b.failed(two, hooks.OpCampaign); len(two.rec.Failures()) > 0 {
			b.wraps(two.rec.Failures()[0].Err, errOops)
		}
	})
}

// A client that waits for a backend of a full pooler gets one when the backend of another has ended.
func TestAClientThatWaitsForABackendGetsOneWhenAnotherEnds(t *testing.T) {
	for what, end := range map[string]func(*electortest.Server, *electortest.Pooler, int32){
		"terminate":             func(s *electortest.Server, _ *electortest.Pooler, pid int32) { s.Terminate(pid) },
		"restart of the pooler": func(_ *electortest.Server, p *electortest.Pooler, _ int32) { p.Restart() },
		"restart of the server": func(s *electortest.Server, _ *electortest.Pooler, _ int32) { s.Stop(); s.Start() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := electortest.NewServer()
				defer server.Close()
				var pid int32
				server.Handle(func(s electortest.Statement) (electortest.Answer, error) {
					pid = s.PID
					return electortest.Answer{}, nil
				})
				pooler := server.NewPooler(1)
				a, b := pooler.Open(), pooler.Open()
				defer a.Close()
				defer b.Close()
				tx, err := a.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec("mine"); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				answered := make(chan error, 1)
				go func() {
					_, err := b.ExecContext(ctx, "other")
					answered <- err
				}()
				time.Sleep(time.Second)
				end(server, pooler, pid)
				_ = tx.Rollback()
				if err := <-answered; err != nil || time.Since(began) > time.Minute {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
			})
		})
	}
}

// A killed process that waited for a backend takes none, as PgBouncer forgets a client that has gone.
func TestAKilledProcessThatWaitedForABackendTakesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		server.Handle(func(electortest.Statement) (electortest.Answer, error) { return electortest.Answer{}, nil })
		pooler := server.NewPooler(1)
		killed := pooler.NewProcess()
		a, b, c := pooler.Open(), killed.Open(), pooler.Open()
		defer a.Close()
		defer b.Close()
		defer c.Close()
		tx, err := a.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		go func() {
			_, err := b.BeginTx(context.Background(), nil)
			waited <- err
		}()
		time.Sleep(time.Second)
		killed.Kill()
		time.Sleep(time.Second)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := c.ExecContext(ctx, "other"); err != nil {
			t.Errorf("the backend is kept for a process that was killed: %v", err)
		}
		if err := <-waited; !errors.Is(err, electortest.ErrKilled) {
			t.Errorf("the call of the killed process: %v", err)
		}
	})
}
