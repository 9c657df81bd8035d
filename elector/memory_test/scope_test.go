package memory_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/seat"
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
		synctest.Wait()
		if n := len(b.Locks()); n != 0 {
			b.Errorf("%d locks are left", n)
		}
		b.wraps(b.campaign(all[1]).Resign(always))
	})
}

// Its locks end one by one.
func TestASharedSessionThroughAPoolerIsRefused(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.NewPooler(4).Open()
		defer pool.Close()
		session, err := elector.NewSession(pool)
		b.wraps(err)
		e, err := session.Elector("orders")
		b.wraps(err)
		ctx, stop := context.WithTimeout(always, time.Minute)
		defer stop()
		err = e.Run(ctx, nil)
		if b.wraps(err, elector.ErrSessionPooled); !strings.Contains(fmt.Sprint(err), "a session for each election can") {
			b.Errorf("got %v", err)
		}
		b.wraps(session.Close(always))
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
		if err == nil || !strings.Contains(err.Error(), "A pooler may have no server connection left") {
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
			other := b.run("other", append(opts, elector.WithTakeover(elector.Poll), elector.WithRetryInterval(100*time.Millisecond))...)
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
			b.wraps(term.Verify(always))
			b.wraps(term.Resign(always))
			b.leads(other)
			synctest.Wait()
			if at := <-returned; other.rec.Elected()[0].At.Before(at) {
				b.Error("the next one was elected before the work had returned")
			}
			b.ended(one, hooks.Resigned)
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
	for name, takeover := range map[string]elector.Takeover{"deputy": elector.Deputy, "wait": elector.Wait} {
		scene(t, name, func(b *bench) {
			opts := []elector.Option{inside, elector.WithTakeover(takeover), elector.WithRetryInterval(time.Minute)}
			one := b.candidate("one", opts...)
			one.process.SetDriver(electortest.PQ) // or it learns of the end before the deputy looks, and leads again
			b.leads(b.start(one))
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
		"deputy": {{inside}, {inside, elector.WithTakeover(elector.Deputy)}},
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
			synctest.Wait()
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
	for name, opts := range map[string][]elector.Option{"in a session": nil, "in a transaction": {inside}} {
		scene(t, name, func(b *bench) {
			time.Sleep(time.Second)
			other := electortest.NewServer()
			b.Cleanup(other.Close)
			there := other.Open()
			b.Cleanup(func() { _ = there.Close() })
			elsewhere, err := elector.New(there, "orders", opts...)
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
			if term, elected, err := e.TryCampaign(always); elected || err == nil || errors.Is(err, elector.ErrSessionPooled) {
				b.Errorf("elected on the word of another server: %+v, %v; its leader has the token %d", term, err, theirs.Token())
			}
			b.wraps(theirs.Resign(always))
		})
	}
}

// holding returns the backends that hold a lock of an election, or a seat.
func (b *bench) holding() map[int32]bool {
	pids := map[int32]bool{}
	for _, l := range b.Locks() {
		if l.Granted && !l.Shared {
			pids[l.PID] = true
		}
	}
	return pids
}

// asked records the statements from now on. Each call returns those since the last one, by
// backend.
func (b *bench) asked() (since func() map[int32][]string) {
	var mu sync.Mutex
	all := map[int32][]string{}
	b.Trace(func(e electortest.Event) {
		mu.Lock()
		defer mu.Unlock()
		if !e.Done {
			all[e.PID] = append(all[e.PID], e.What)
		}
	})
	return func() map[int32][]string {
		mu.Lock()
		defer mu.Unlock()
		since := all
		all = map[int32][]string{}
		return since
	}
}

// Until its next statement a session would keep the snapshot of a query, which holds back VACUUM.
// The lock of a relation that it reads would last until the end of its transaction.
func TestASessionInsideATransactionKeepsNoSnapshotAndReadsNoRelation(t *testing.T) {
	keepsNothing := []string{"PingTransaction", "TryInTransaction", "WaitLock"}
	readsRelation := []string{"Confirm", "HoldsLock", "Holder", "Requests", "Leaders", "UnlockTo"}
	for name, takeover := range map[string]elector.Takeover{"polls": elector.Poll, "tries": elector.Deputy, "waits": elector.Wait} {
		scene(t, name, func(b *bench) {
			opts := []elector.Option{inside, elector.WithTakeover(takeover), elector.WithDeputyInterval(heartbeat / 2)}
			one := b.run("one", opts...)
			b.leads(one)
			two := b.run("two", opts...)
			since, before := b.asked(), map[int32]bool{}
			look := func() {
				for range 200 {
					time.Sleep(20 * time.Millisecond)
					synctest.Wait()
					now, asked := b.holding(), since()
					for pid := range now {
						for i, what := range asked[pid] {
							if i == len(asked[pid])-1 && !slices.Contains(keepsNothing, what) || before[pid] && slices.Contains(readsRelation, what) {
								b.Errorf("a session was asked %s, the last of %v", what, asked[pid])
							}
						}
					}
					before = now
				}
			}
			look()
			term, _ := one.Term()
			go func() { b.wraps(term.Verify(always)) }()
			look()
			b.wraps(term.TransferTo(always, "two"))
			b.leads(two)
			look()
			b.Trace(nil)
		})
	}
}

// A deputy gives its backend to the pooler at each heartbeat interval, for CREATE INDEX CONCURRENTLY
// may wait for the end of its transaction. It says so if it gets none back.
func TestADeputyInsideATransactionMakesWayForOthersOfItsPooler(t *testing.T) {
	for name, takeover := range map[string]elector.Takeover{"tries": elector.Deputy, "waits": elector.Wait} {
		scene(t, name, func(b *bench) {
			b.Cleanup(func() { time.Sleep(time.Second) }) // until calls that nobody waits for have returned
			pooler := b.NewPooler(4)
			through := func(id string) (*elector.Elector, *electortest.Process, *hookstest.Recorder) {
				process, rec := pooler.NewProcess(), hookstest.NewRecorder()
				pool := process.Open()
				b.Cleanup(func() { _ = pool.Close() })
				e, err := elector.New(pool, "orders", inside, elector.WithCandidateID(id), elector.WithTakeover(takeover), elector.WithHooks(rec))
				b.wraps(err)
				return e, process, rec
			}
			one, _, _ := through("one")
			term := b.campaign(one)
			two, process, rec := through("two")
			ctx, stop := context.WithCancel(always)
			done := make(chan error)
			go func() { done <- two.Run(ctx, nil) }()
			time.Sleep(3 * time.Second)
			process.SetLatency(func() time.Duration { return time.Millisecond })
			strangers := pooler.Open()
			b.Cleanup(func() { _ = strangers.Close() })
			for range 3 { // that the leader and the deputy leave, and one more
				began := time.Now()
				tx, err := strangers.Begin()
				b.wraps(err)
				b.Handle(func(electortest.Statement) (electortest.Answer, error) { return electortest.Answer{}, nil })
				_, err = tx.Exec("SELECT")
				b.wraps(err)
				b.within("it has a backend", 0, time.Since(began), heartbeat+100*time.Millisecond)
				b.Cleanup(func() { _ = tx.Rollback() })
			}
			time.Sleep(2 * lease)
			if f := rec.Failures(); !slices.ContainsFunc(f, func(f hooks.Failure) bool {
				return strings.Contains(f.Err.Error(), "A pooler may have no server connection left")
			}) {
				b.Errorf("failures: %+v", f)
			}
			stop()
			b.wraps(<-done, context.Canceled)
			_ = term.Resign(always)
		})
	}
}

// Each deputy would take one of the pooler's few connections.
func TestAFollowerThroughAPoolerIsNoDeputyUnlessItIsToldToBe(t *testing.T) {
	for name, opts := range map[string][]elector.Option{"not told": nil, "told": {elector.WithTakeover(elector.Deputy)}} {
		scene(t, name, func(b *bench) {
			pooler := b.NewPooler(6)
			leading, following := pooler.Open(), pooler.Open()
			defer leading.Close()
			defer following.Close()
			one, err := elector.New(leading, "orders", elector.WithCandidateID("one"))
			b.wraps(err)
			term := b.campaign(one)
			rec := hookstest.NewRecorder()
			two, err := elector.New(following, "orders", append(opts, elector.WithCandidateID("two"), elector.WithHooks(rec))...)
			b.wraps(err)
			ctx, stop := context.WithCancel(always)
			done := make(chan error)
			go func() { done <- two.Run(ctx, nil) }()
			time.Sleep(time.Minute + deputyInterval/2) // and not between two transactions of the deputy
			all, err := one.Candidates(always)
			b.wraps(err)
			if deputies := len(all) - 1; deputies != len(opts) || following.Stats().InUse > 0 && opts == nil {
				b.Errorf("%d deputies, and %d connections are in use", deputies, following.Stats().InUse)
			}
			if n := len(rec.Campaigns()); opts == nil && (n < 60 || n > 82) { // each three quarters of a second to a second
				b.Errorf("%d attempts in a minute", n)
			}
			for _, c := range rec.Campaigns() {
				if !c.InTransaction || c.Deputy != (opts != nil) {
					b.Errorf("%+v", c)
				}
			}
			b.wraps(term.Resign(always))
			b.leads(&candidate{Elector: two})
			stop()
			b.wraps(<-done, context.Canceled)
		})
	}
}

func TestAFollowerInsideATransactionSeesEachLeader(t *testing.T) {
	for name, takeover := range map[string]elector.Takeover{"polls": elector.Poll, "tries": elector.Deputy, "waits": elector.Wait} {
		scene(t, name, func(b *bench) {
			one := b.run("one", inside)
			b.leads(one)
			three := b.run("three", inside)
			follower := b.run("follower", inside, elector.WithTakeover(takeover))
			time.Sleep(2 * retry)
			term, _ := one.Term()
			b.wraps(term.TransferTo(always, "three"))
			b.leads(three)
			time.Sleep(2 * retry)
			var seen []string
			for _, c := range follower.rec.LeaderChanges() {
				seen = append(seen, c.Current)
			}
			if !slices.Equal(seen, []string{"one", "three"}) {
				b.Errorf("saw %q", seen)
			}
			for _, c := range follower.rec.Campaigns() {
				if !c.InTransaction {
					b.Errorf("%+v", c)
				}
			}
			b.Stop()
			time.Sleep(time.Second)
			if all := follower.rec.Campaigns(); !all[len(all)-1].InTransaction || all[len(all)-1].Outcome != hooks.Failed {
				b.Errorf("%+v", all[len(all)-1])
			}
		})
	}
}

func TestAFencedTransactionOfATermInsideATransaction(t *testing.T) {
	bubble(t, func(b *bench) {
		b.Handle(func(electortest.Statement) (electortest.Answer, error) { return electortest.Answer{}, nil })
		one := b.candidate("one", inside)
		one.process.SetDriver(electortest.PQ)
		term := b.campaign(one.Elector)
		b.wraps(term.InTx(always, one.pool, nil, func(tx *sql.Tx) error {
			_, err := tx.Exec("UPDATE")
			return err
		}))
		two := b.run("two", inside)
		began := time.Now()
		b.wraps(term.InTx(always, one.pool, nil, func(*sql.Tx) error {
			b.Terminate(b.pid(one))
			time.Sleep(200 * time.Millisecond) // before it looks
			if len(two.rec.Elected()) > 0 {
				b.Error("the next one was elected before the transaction has ended")
			}
			return nil
		}))
		b.leads(two)
		b.within("the next one leads", 200*time.Millisecond, time.Since(began), heartbeat)
		b.wraps(term.InTx(always, one.pool, nil, func(*sql.Tx) error { return nil }), elector.ErrNotLeader, elector.ErrRolledBack)
		b.wraps(term.Resign(always), elector.ErrNotLeader)
	})
}

type silent struct{}

func (silent) Subscribe(func(string)) (unsubscribe func()) { return func() {} }

// Its listeners are told that the lock is free.
func TestALeaderInsideATransactionTellsThatItResigns(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", inside, elector.WithNotifier(silent{}))
		term := b.campaign(one.Elector)
		time.Sleep(time.Second)
		var told []string
		b.Trace(func(e electortest.Event) {
			if e.What == "Notify" && e.Done {
				told = append(told, fmt.Sprint(e.Args))
			}
		})
		b.wraps(term.Resign(always))
		b.Trace(nil)
		if len(told) != 1 || !strings.Contains(told[0], fmt.Sprint("free ", one.Key())) {
			b.Errorf("told %q", told)
		}
	})
}

// A leader without a seat tries for one while the last leader may still have it. Each try has a
// snapshot, so in a transaction there are three at most.
func TestALeaderInsideATransactionSoonGivesUpToTrySeats(t *testing.T) {
	for name, c := range map[string]struct {
		taken time.Duration
		tries int // with that of the offer
	}{"that are free soon": {10 * time.Millisecond, 4}, "that strangers have": {time.Hour, 7}} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one", inside)
			stranger := b.strangerOnSeats(one)
			term := b.campaign(one.Elector)
			two := b.run("two", inside)
			time.Sleep(retry)
			asked := b.count()
			b.wraps(term.TransferTo(always, "two"))
			time.AfterFunc(c.taken, func() { _ = stranger.Raw(func(any) error { return driver.ErrBadConn }) })
			time.Sleep(time.Minute)
			if n := asked()["TryPair"]; n != c.tries || !two.IsLeader() {
				b.Errorf("%d tries; it leads: %t", n, two.IsLeader())
			}
		})
	}
}

// strangerOnSeats returns the connection of a stranger that holds both seats of the candidate's
// election.
func (b *bench) strangerOnSeats(s *candidate) *sql.Conn {
	b.Helper()
	pool := b.Open()
	stranger, err := pool.Conn(always)
	b.check(err)
	high, low := lockkey.Halves(seat.Key(s.Key()))
	for _, seat := range []int32{low, low ^ 1} {
		_, err := db.New(stranger).TryPair(always, db.TryPairParams{High: high, Low: seat})
		b.wraps(err)
	}
	b.Cleanup(func() { _, _ = stranger.Close(), pool.Close() })
	return stranger
}

// A candidate in session scope, which a pooler has not kept from it, leads on a backend of the
// pooler. On the same backend the server grants the lock to a transaction, too.
func TestACandidateOnTheBackendOfASessionIsNotElected(t *testing.T) {
	bubble(t, func(b *bench) {
		pooler := b.NewPooler(3)
		pool := pooler.Open()
		defer pool.Close()
		two, err := elector.New(pool, "orders", inside)
		b.wraps(err)
		strangers := pooler.Open()
		defer strangers.Close()
		_, err = db.New(strangers).TryLock(always, db.TryLockParams{Key: two.Key(), Settings: election.Encode([]map[string]string{
			{"name": "idle_session_timeout", "value": "3600000"}})})
		b.wraps(err)
		synctest.Wait() // until the pooler has that backend back
		tx, err := strangers.Begin()
		b.wraps(err)
		_, err = db.New(tx).DescribeServer(always) // keeps it
		b.wraps(err)
		_, elected, err := two.TryCampaign(always) // on another one
		if b.wraps(err); elected {
			b.Error("elected")
		}
		synctest.Wait()
		b.wraps(tx.Rollback())
		synctest.Wait() // the next transaction gets the backend that came back last
		asked := b.count()
		_, elected, err = two.TryCampaign(always)
		if b.wraps(err, elector.ErrSessionPooled); elected || !strings.Contains(err.Error(), "a candidate in session scope is on the same backend") {
			b.Errorf("elected %t, %v", elected, err)
		}
		if asked()["EvictHolder"] > 0 {
			b.Error("the backend of the leader was terminated")
		}
	})
}

// A grant is confirmed on another connection, which may be slow. Until then the transaction is kept
// alive.
func TestAGrantInsideATransactionIsKeptUntilItIsConfirmed(t *testing.T) {
	bubble(t, func(b *bench) {
		var elected atomic.Bool
		one := b.wired(func(m message, send func() error) error {
			if !elected.Load() && (m.name == "ApplySettings" || m.name == "Confirm") {
				m.delay(lease * 6 / 10) // together they take longer than a lease
			}
			return send()
		}, "one", inside)
		term := b.campaign(one.Elector)
		elected.Store(true)
		b.wraps(term.Verify(always))
		b.wraps(term.Resign(always))
		b.failed(one)
	})
}

// What a deputy asks on its second connection fails, and so that is closed. The deputy needs one when it is granted the lock.
func TestADeputyInsideATransactionReplacesASecondConnectionThatWasLost(t *testing.T) {
	for name, takeover := range map[string]elector.Takeover{"tries": elector.Deputy, "waits": elector.Wait} {
		scene(t, name, func(b *bench) {
			one := b.run("one", inside)
			b.leads(one)
			two := b.start(b.wired(fail("Holder", 1, 1000, errOops), "two", inside, elector.WithTakeover(takeover)))
			time.Sleep(2*heartbeat + heartbeat/2)
			one.process.Kill()
			b.within("it leads", 0, b.leads(two), time.Second)
			b.failed(two)
		})
	}
}
