package electortest_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

var inside = elector.WithScope(elector.TransactionScope)

func TestAnElectionThroughAPoolerIsLedInsideATransaction(t *testing.T) {
	bubble(t, func(b *bench) {
		pooler := b.NewPooler(4)
		var all []*elector.Elector
		for range 2 {
			pool := pooler.Open()
			defer pool.Close()
			e, err := elector.New(pool, "orders")
			b.wraps(err)
			all = append(all, e)
		}
		term := b.campaign(all[0])
		b.wraps(term.Verify(always))
		if _, elected, err := all[1].TryCampaign(always); elected || err != nil {
			b.Errorf("the second was elected: %v, %v", elected, err)
		}
		time.Sleep(time.Minute)
		b.wraps(term.Verify(always))
		b.wraps(term.Resign(always))
		if n := len(b.Locks()); n != 0 {
			b.Errorf("%d locks are left", n)
		}
		b.wraps(b.campaign(all[1]).Resign(always))
	})
}

// A pooler of one backend has none for the second connection of a candidate.
func TestAPoolerWithoutAConnectionLeftIsNamed(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.NewPooler(1).Open()
		defer pool.Close()
		e, err := elector.New(pool, "orders", inside)
		b.wraps(err)
		_, _, err = e.TryCampaign(always)
		if err == nil || !strings.Contains(err.Error(), "the pooler may have no server connection left") {
			b.Errorf("got %v", err)
		}
	})
}

func TestAStoppedLeaderLosesItsTransactionAfterALease(t *testing.T) {
	for name, stop := range map[string]func(*candidate){
		"frozen": func(c *candidate) { c.process.Freeze() },
		"cut":    func(c *candidate) { c.process.Cut(electortest.Both) },
	} {
		scene(t, name, func(b *bench) {
			one := b.run("one", inside)
			b.leads(one)
			two := b.run("two", inside)
			time.Sleep(heartbeat)
			stop(one)
			b.within("the next one leads", lease-heartbeat, b.leads(two), lease+heartbeat)
			one.process.Thaw()
			one.process.Mend()
			time.Sleep(lease)
			b.ended(one, hooks.LeaseExpired)
		})
	}
}

// An error inside the transaction would release the lock at once. A transfer for which there is
// no room in the lock table leaves it to the work, until that has returned.
func TestATransferIntoAFullLockTableLeavesTheLockToTheWork(t *testing.T) {
	for name, opts := range map[string][]elector.Option{"in session scope": nil, "in transaction scope": {inside}} {
		scene(t, name, func(b *bench) {
			one := b.run("one", opts...)
			b.leads(one)
			other := b.run("other", append(opts, elector.WithStandby(elector.Poll), elector.WithRetryInterval(100*time.Millisecond))...)
			returned := make(chan time.Time, 1)
			go func() {
				_, err := one.RunIfLeader(always, func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(time.Second)
					return nil
				})
				b.wraps(err)
				returned <- time.Now()
			}()
			time.Sleep(time.Second)
			term, _ := one.Term()
			b.LimitLocks(1)
			time.AfterFunc(10*time.Millisecond, func() { b.LimitLocks(0) })
			b.wraps(term.TransferTo(always, "two"), elector.ErrNoSuccessor, elector.ErrLockTableFull)
			b.leads(other)
			synctest.Wait()
			if at := <-returned; other.rec.Elected()[0].At.Before(at) {
				b.Error("the next one was elected before the work had returned")
			}
			b.ended(one, hooks.Resigned)
		})
	}
}

// A term that cannot be watched goes on, whichever of its first messages finds the lock table
// full.
func TestAFullLockTableEndsNoWatchedTermInATransaction(t *testing.T) {
	for most := range 60 {
		scene(t, fmt.Sprint(most), func(b *bench) {
			one := b.candidate("one", inside, elector.WithWatch())
			var sent atomic.Int32
			one.process.SetLatency(func() time.Duration {
				if sent.Add(1) == int32(most) {
					go b.LimitLocks(1)
				}
				return time.Millisecond
			})
			ctx, cancel := context.WithTimeout(always, time.Second)
			defer cancel()
			term, err := one.Campaign(ctx)
			if err != nil {
				return // there was no room for the election
			}
			time.Sleep(time.Minute)
			b.wraps(context.Cause(term.Context()))
			b.wraps(term.Resign(always))
		})
	}
}

// The barrier and the token are another connection's. If the session loses its lock meanwhile,
// another may have led, with a smaller token: it is not elected.
func TestACandidateThatLosesItsTransactionAtTheBarrierIsNotElected(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", inside)
		pool := b.Open()
		defer pool.Close()
		fenced, err := pool.Begin()
		b.wraps(err)
		guard := db.PairIsFreeParams{High: int32(one.Key() >> 32), Low: int32(one.Key())}
		_, err = db.New(fenced).PairIsFree(always, guard) // shares the guard lock, as InTx does
		b.wraps(err)
		campaign := make(chan error)
		go func() {
			_, _, err := one.TryCampaign(always)
			campaign <- err
		}()
		time.Sleep(time.Second)
		b.Terminate(b.pid(one))
		b.wraps(fenced.Rollback())
		if err := <-campaign; err == nil {
			b.Error("the attempt did not fail")
		}
		b.failed(one, hooks.OpCampaign) // and not the first heartbeat of a term
	})
}

func TestADeputyInsideATransaction(t *testing.T) {
	for name, standby := range map[string]elector.Standby{"deputy": elector.Deputy, "wait": elector.Wait} {
		scene(t, name, func(b *bench) {
			opts := []elector.Option{inside, elector.WithStandby(standby), elector.WithRetryInterval(time.Minute)}
			one := b.run("one", opts...)
			b.leads(one)
			two := b.run("two", opts...)
			time.Sleep(2 * time.Minute)
			b.Terminate(b.pid(one))
			b.within("the deputy leads", 0, b.leads(two), 200*time.Millisecond)
		})
	}
}

func TestTransfersInsideATransaction(t *testing.T) {
	for name, opts := range map[string][2][]elector.Option{
		"inside": {{inside}, {inside}},
		"out":    {{inside}, nil},
		"in":     {nil, {inside}},
		"deputy": {{inside}, {inside, elector.WithStandby(elector.Deputy)}},
	} {
		scene(t, name, func(b *bench) {
			one := b.run("one", opts[0]...)
			b.leads(one)
			two := b.run("two", opts[1]...)
			time.Sleep(heartbeat)
			leader, next := one, two
			for range 4 {
				term, _ := leader.Term()
				b.wraps(term.TransferTo(always, next.CandidateID()))
				b.leads(next)
				leader, next = next, leader
				time.Sleep(heartbeat)
			}
			term, _ := leader.Term()
			ctx, cancel := context.WithTimeout(always, time.Second)
			defer cancel()
			if err := term.TransferTo(ctx, "nobody"); err == nil {
				b.Error("transferred to nobody")
			}
			if n := len(b.Locks()); n > 4 {
				b.Errorf("an offer is left: %+v", b.Locks())
			}
		})
	}
}

// A turning connector leads to each of its servers in turn, as while an address moves.
type turning struct {
	servers []*sql.DB
	next    *atomic.Int64
	turns   *atomic.Bool
}

func (c turning) Driver() driver.Driver { return c.servers[0].Driver() }

func (c turning) Connect(ctx context.Context) (conn driver.Conn, err error) {
	if c.turns.Load() {
		c.next.Add(1)
	}
	lent, err := c.servers[c.next.Load()%int64(len(c.servers))].Conn(ctx)
	if err != nil {
		return nil, err
	}
	return conn, lent.Raw(func(c any) error {
		conn = c.(driver.Conn)
		return nil
	})
}

// towards returns a pool that leads to the first server, until it turns.
func (b *bench) towards(servers ...*electortest.Server) (pool *sql.DB, turns *atomic.Bool) {
	c := turning{next: new(atomic.Int64), turns: new(atomic.Bool)}
	for _, s := range servers {
		lending := s.Open()
		b.Cleanup(func() { _ = lending.Close() })
		c.servers = append(c.servers, lending)
	}
	pool = sql.OpenDB(c)
	pool.SetMaxIdleConns(-1)
	b.Cleanup(func() { _ = pool.Close() })
	return pool, c.turns
}

// The lock is on one server, and the connection beside it leads to the other, which does not know
// it. That is no reason to refuse either.
func TestAPoolThatLeadsToTwoServersIsNotRefused(t *testing.T) {
	for name, early := range map[string]bool{"at the check": true, "at the grant": false} {
		scene(t, name, func(b *bench) {
			time.Sleep(time.Second)
			other := electortest.NewServer()
			b.Cleanup(other.Close)
			pool, turns := b.towards(b.Server, other)
			turns.Store(early)
			e, err := elector.New(pool, "orders", inside)
			b.wraps(err)
			first := b.campaign(b.candidate("first", inside).Elector)
			run := make(chan error, 1)
			ctx, stop := context.WithCancel(always)
			go func() { run <- e.Run(ctx, nil) }()
			time.Sleep(2 * time.Second)
			turns.Store(true)
			b.wraps(first.Resign(always))
			time.Sleep(time.Minute)
			select {
			case err := <-run:
				b.Fatalf("refused: %v", err)
			default:
			}
			if e.IsLeader() {
				b.Error("it leads")
			}
			turns.Store(false)
			time.Sleep(time.Minute)
			if !e.IsLeader() {
				b.Error("it does not lead")
			}
			stop()
			b.wraps(<-run, context.Canceled)
		})
	}
}

// On the other server the leader's backend has the process id that this candidate's has here.
func TestALeaderOfAnotherServerWithTheSameProcessIDConfirmsNobody(t *testing.T) {
	bubble(t, func(b *bench) {
		time.Sleep(time.Second)
		other := electortest.NewServer()
		b.Cleanup(other.Close)
		there := other.Open()
		b.Cleanup(func() { _ = there.Close() })
		elsewhere, err := elector.New(there, "orders", inside)
		b.wraps(err)
		for range 100 {
			conn, err := there.Conn(always)
			b.wraps(err)
			b.wraps(conn.Raw(func(any) error { return driver.ErrBadConn }), driver.ErrBadConn) // uses process ids up
		}
		theirs := b.campaign(elsewhere)
		leader, err := elsewhere.Leader(always)
		b.wraps(err)

		pool, turns := b.towards(b.Server, other)
		e, err := elector.New(pool, "orders", inside)
		b.wraps(err)
		first := b.campaign(b.candidate("first", inside).Elector)
		if _, elected, err := e.TryCampaign(always); elected || err != nil { // and the server is checked
			b.Fatal(elected, err)
		}
		b.wraps(first.Resign(always))
		here := b.Open()
		b.Cleanup(func() { _ = here.Close() })
		for pid := int32(0); pid < leader.PID-1; {
			conn, err := here.Conn(always)
			b.wraps(err)
			row, err := db.New(conn).DescribeServer(always)
			b.wraps(err)
			pid = row.Pid
			b.wraps(conn.Raw(func(any) error { return driver.ErrBadConn }), driver.ErrBadConn)
		}
		turns.Store(true) // the connection beside the session is the first
		if term, elected, err := e.TryCampaign(always); elected || err == nil {
			b.Errorf("elected on the word of another server: %+v, %v; its leader has the token %d", term, err, theirs.Token())
		}
		b.wraps(theirs.Resign(always))
	})
}

// The end of the leader's transaction ends its watcher's wait, too.
func TestAWatchedLeaderResignsInsideATransaction(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", inside, elector.WithWatch())
		one.process.SetLatency(func() time.Duration { // one message in four is overtaken by others
			return time.Duration(rand.IntN(4)/3) * 100 * time.Millisecond
		})
		for range 50 {
			term := b.campaign(one.Elector)
			time.Sleep(time.Second)
			b.wraps(term.Resign(always))
		}
		b.failed(one)
	})
}
