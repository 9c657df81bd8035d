//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

func TestAFencedTransactionDelaysOnlyItsElection(t *testing.T) {
	inSessionScope(t, "a shared session needs it")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 10)
		f := s.inTransaction(t, d, elections[0])
		// With a shorter lease the transaction would be overdue on a busy machine, and be ended.
		g := s.share(t, d.open(t, 1, s.DSN()), elector.WithLease(time.Minute)).join(t, elections).run(t, nil)
		eventually(t, "the others are led", func() bool { return g.leading() == 9 })
		leader, err := g.all[0].Leader(soon(t))
		check(t, err)
		s.terminate(t, int(leader.PID))
		eventually(t, "the session holds the lock", func() bool {
			leader, err := g.all[0].Leader(soon(t))
			return err == nil && leader.CandidateID == g.CandidateID()
		})
		term, leading := g.all[1].Term()
		if !leading {
			t.Fatal("no longer leading")
		}
		expect(t, term.Resign(soon(t))) // other elections continue meanwhile
		eventually(t, "it is led again", func() bool { return g.leading() == 9 })
		time.Sleep(heartbeat)
		if g.all[0].IsLeader() {
			t.Error("elected while a transaction of the last term goes on")
		}
		began := time.Now()
		f.finish(t)
		eventually(t, "all are led", func() bool { return g.leading() == 10 })
		soonAfter(t, "the election after the transaction", began)
	})
}

// A campaign that is cancelled at the barrier releases the lock at once.
func TestACampaignThatIsCancelledAtTheBarrierKeepsNoLock(t *testing.T) {
	inSessionScope(t, "a shared session needs it")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 2)
		f := s.inTransaction(t, d, elections[0])
		g := s.share(t, d.open(t, 1, s.DSN())).join(t, elections)
		_, err := g.all[1].Campaign(soon(t))
		check(t, err)
		leader, err := g.all[0].Leader(soon(t))
		check(t, err)
		s.terminate(t, int(leader.PID))
		for range 3 {
			ctx, cancel := context.WithCancel(soon(t))
			returned := make(chan error, 1)
			go func() {
				_, err := g.all[0].Campaign(ctx)
				returned <- err
			}()
			eventually(t, "the session holds the lock", func() bool {
				leader, err := g.all[0].Leader(soon(t))
				return err == nil && leader.CandidateID == g.CandidateID()
			})
			cancel()
			wraps(t, <-returned, context.Canceled)
		}
		eventually(t, "the lock is free", func() bool {
			_, err := g.all[0].Leader(soon(t))
			return errors.Is(err, elector.ErrNoLeader)
		})
		f.finish(t)
		term, err := g.all[0].Campaign(soon(t))
		check(t, err)
		expect(t, term.Resign(soon(t)))
		if _, err := g.all[0].Leader(soon(t)); !errors.Is(err, elector.ErrNoLeader) {
			t.Errorf("the lock is held after a resignation: %v", err)
		}
	})
}

// When a session that waits at a barrier is lost, its elections continue on a new one.
func TestALostSessionAtABarrierIsReplaced(t *testing.T) {
	inSessionScope(t, "a shared session needs it")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 3)
		f := s.inTransaction(t, d, elections[0])
		patient := elector.WithLease(time.Minute) // a transaction that is older is terminated
		g := s.share(t, d.open(t, 1, s.DSN()), patient).join(t, elections).run(t, nil)
		leader, err := g.all[0].Leader(soon(t))
		check(t, err)
		s.terminate(t, int(leader.PID))
		for range 2 {
			var pid int32
			eventually(t, "the session holds the lock", func() bool {
				leader, err := g.all[0].Leader(soon(t))
				pid = leader.PID
				return err == nil && leader.CandidateID == g.CandidateID() && g.leading() == 2
			})
			after := g.rec.Cursor()
			after.SkipSeen()
			s.terminate(t, int(pid))
			next[hooks.Demoted](t, after, nil)
			next[hooks.Demoted](t, after, nil)
		}
		f.finish(t)
		eventually(t, "all are led", func() bool { return g.leading() == 3 })
		for _, f := range g.rec.Failures() {
			if f.Permanent {
				t.Errorf("%s: %v", f.Op, f.Err)
			}
		}
	})
}

func TestOneHeartbeatExtendsAllTermsOfASession(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool, counter := d.openCounted(t, 0, s.DSN())
		elections := s.elections(t, 50)
		g := s.share(t, pool).join(t, elections).run(t, nil)
		eventually(t, "all are led", func() bool { return g.leading() == 50 })
		before := counter.now()
		began := time.Now()
		cursor := g.rec.Cursor()
		cursor.SkipSeen()
		first := next[hooks.Heartbeat](t, cursor, nil)
		reported := map[string]int{first.Election: 1}
		for len(reported) < 50 || time.Since(began) < lease {
			reported[next[hooks.Heartbeat](t, cursor, nil).Election]++
		}
		got := counter.since(before)
		atMost(t, got["Ping"], began)
		if most := 2 + int(time.Since(began)/time.Second); got["HeldLocks"] > most {
			t.Errorf("the locks are validated %d times in %v", got["HeldLocks"], time.Since(began))
		}
		delete(got, "HeldLocks")
		if len(got) != 1 {
			t.Errorf("at rest: %v", got)
		}
		for election, n := range reported {
			if n > got["Ping"]+1 {
				t.Errorf("%s reported %d heartbeats of %d", election, n, got["Ping"])
			}
		}
	})
}

func TestASessionReportsOtherLeaders(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 3)
		seen := hookstest.NewRecorder()
		first := s.share(t, d.open(t, 0, s.DSN())).join(t, elections).run(t, nil)
		eventually(t, "all are led", func() bool { return first.leading() == 3 })
		pool, counter := d.openCounted(t, 1, s.DSN())
		second := s.share(t, pool, elector.WithHooks(hooks.Funcs{LeaderChanged: seen.OnLeaderChanged})).join(t, elections).run(t, nil)
		cursor := seen.Cursor()
		reported := map[string]bool{}
		for range elections {
			e := next[hooks.LeaderChanged](t, cursor, nil)
			if e.Current != first.CandidateID() || e.Previous != "" || e.PID == 0 {
				t.Errorf("reported %+v", e)
			}
			reported[e.Election] = true
		}
		if len(reported) != 3 {
			t.Errorf("reported %v", reported)
		}
		before := counter.now()
		time.Sleep(10 * retry)
		got := counter.since(before)
		if got["Leaders"] == 0 || got["Leaders"] > 15 || got["TryLocks"] > 15 {
			t.Errorf("in %v: %v", 10*retry, got)
		}
		first.close(t)
		for range elections {
			e := next[hooks.LeaderChanged](t, cursor, nil)
			if e.Current != second.CandidateID() || e.Previous != first.CandidateID() {
				t.Errorf("reported %+v", e)
			}
		}
	})
}

func TestASessionPinsOneConnectionForAllElections(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		pool.SetMaxOpenConns(2)
		elections := s.elections(t, 100)
		g := s.share(t, pool).join(t, elections).run(t, nil)
		eventually(t, "all are led", func() bool { return g.leading() == 100 })
		if n := pool.Stats().InUse; n != 1 {
			t.Errorf("%d connections are in use", n)
		}
		s.terminate(t, s.holders(t, g.all[0].Key())[0])
		_, err := hookstest.WaitN[hooks.Demoted](soon(t), g.rec, 100, nil)
		check(t, err)
		eventually(t, "all are led again", func() bool { return g.leading() == 100 })
	})
}

func TestElectionsOfASessionStartAndEndIndependently(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 40)
		first := s.share(t, d.open(t, 0, s.DSN())).join(t, elections)
		second := s.share(t, d.open(t, 1, s.DSN())).join(t, elections)
		var mu sync.Mutex
		leaders, terms := map[string]int{}, map[string]int{}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var all sync.WaitGroup
		for _, g := range []*group{first, second} {
			for _, e := range g.all {
				all.Go(func() {
					for ctx.Err() == nil {
						_ = e.Run(ctx, func(context.Context, *elector.Term) error {
							mu.Lock()
							terms[e.Election()]++
							leaders[e.Election()]++
							if n := leaders[e.Election()]; n > 1 {
								t.Errorf("%d lead %s", n, e.Election())
							}
							mu.Unlock()
							time.Sleep(time.Millisecond)
							mu.Lock()
							leaders[e.Election()]--
							mu.Unlock()
							return nil
						})
					}
				})
			}
		}
		eventually(t, "each election is led five times", func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, election := range elections {
				if terms[election] < 5 {
					return false
				}
			}
			return true
		})
		cancel()
		all.Wait()
		for _, g := range []*group{first, second} {
			for _, e := range g.rec.Demoted() {
				if e.Reason != hooks.Resigned && e.Reason != hooks.Shutdown {
					t.Errorf("demoted because %s: %v", e.Reason, e.Err)
				}
			}
		}
	})
}

func TestASessionOnAStandbyOrATransactionPoolerIsRefused(t *testing.T) {
	t.Parallel()
	primary := own(t)
	standby, err := primary.AddStandby(t.Context())
	check(t, err)
	b := bounced(t, primary, pgcluster.Transaction, pgcluster.WithPoolSize(20))
	overEach(t, func(t *testing.T, d drivers) {
		for dsn, sentinel := range map[string]error{standby.DSN(): elector.ErrServerReadOnly, b.DSN(): elector.ErrSessionPooled} {
			session, err := elector.NewSession(d.open(t, 0, dsn), elector.WithLease(lease), elector.WithReadOnlyTimeout(0))
			check(t, err)
			for i := range 3 {
				e, err := session.Elector(electionOf("any", i))
				check(t, err)
				wraps(t, e.Run(soon(t), nil), sentinel)
			}
			expect(t, session.Close(soon(t)))
		}
		if n := one[int](t, on(t, primary).admin, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n > 0 {
			t.Errorf("%d locks are left", n)
		}
	})
}

func TestASessionSurvivesARestartOfTheServerAndADeadLink(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		l := behindAProxy(t)
		elections := l.elections(t, 100)
		g := l.share(t, d.open(t, 0, l.cut())).join(t, elections).run(t, nil)
		t.Cleanup(l.proxy.Heal)
		eventually(t, "all are led", func() bool { return g.leading() == 100 })
		_, err := hookstest.WaitN(soon(t), g.rec, 100, func(hooks.Elected) bool { return true }) // or OnDemoted is not called
		check(t, err)
		check(t, l.Restart(soon(t), pgcluster.Immediate))
		eventually(t, "the server is back", l.up)
		_, err = hookstest.WaitN(soon(t), g.rec, 100, func(e hooks.Demoted) bool { return e.Reason == hooks.SessionLost })
		check(t, err)
		eventually(t, "all are led again", func() bool { return g.leading() == 100 })
		l.proxy.BlackHole()
		_, err = hookstest.WaitN(soon(t), g.rec, 100, func(e hooks.Demoted) bool { return e.Reason == hooks.LeaseExpired })
		check(t, err)
		l.frees(t, g.all[0].Key())
		if n := g.leading(); n > 0 {
			t.Errorf("%d are led on a dead link", n)
		}
		l.proxy.Heal()
		eventually(t, "all are led again", func() bool { return g.leading() == 100 })
	})
}

// Closed elections leave nothing on the server and do not affect the session's others.
func TestAnElectionOfASessionCanBeClosedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 2)
		stays, comes := elections[0], elections[1]
		g := s.share(t, d.open(t, 0, s.DSN())).join(t, []string{stays}).run(t, nil)
		eventually(t, "the election that stays is led", func() bool { return g.leading() == 1 })
		term := termOf(t, g.all[0])
		for range 20 {
			e, err := g.Elector(comes)
			check(t, err)
			returned := make(chan error, 1)
			began := make(chan struct{})
			worked := false
			go func() {
				returned <- e.Run(context.Background(), func(ctx context.Context, _ *elector.Term) error {
					close(began)
					<-ctx.Done()
					if len(s.holders(t, e.Key())) == 0 {
						t.Error("the lock was released before the work returned")
					}
					worked = true
					return nil
				})
			}()
			closed(t, "the lead begins", began)
			_, err = g.Elector(comes)
			wraps(t, err, elector.ErrConfig)
			check(t, e.Close(soon(t)))
			wraps(t, <-returned, elector.ErrStopped)
			if pids := s.holders(t, e.Key()); len(pids) > 0 || !worked {
				t.Errorf("after Close backends %v hold the lock; the work has returned: %t", pids, worked)
			}
		}
		if n := one[int](t, s.admin, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND pid = $1`, s.holders(t, g.all[0].Key())[0]); n != 1 {
			t.Errorf("the session holds %d locks for one election", n)
		}
		if now, leading := g.all[0].Term(); !leading || now != term {
			t.Error("the election that stays has a new term")
		}
	})
}
