//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// group is the candidates of one process for many elections, on one session.
type group struct {
	*elector.Session
	all   []*elector.Elector
	rec   *hookstest.Recorder // of all
	stop  context.CancelFunc
	ended sync.WaitGroup
	errs  chan error // what each Run returned
}

// share makes a session that leaves nothing behind.
func (s *server) share(t *testing.T, pool *sql.DB, opts ...elector.SessionOption) *group {
	t.Helper()
	g := &group{rec: hookstest.NewRecorder()}
	session, err := elector.NewSession(pool, append([]elector.SessionOption{
		elector.WithCandidateID(unique("session")),
		elector.WithLease(lease), elector.WithHeartbeatInterval(heartbeat),
		elector.WithRetryInterval(retry), plainly(g.rec)}, opts...)...)
	check(t, err)
	g.Session = session
	t.Cleanup(func() {
		g.close(t)
		for _, violation := range g.rec.Violations() {
			t.Error("violated:", violation)
		}
		s.leavesNothing(t, &candidate{Elector: g.any(t), pool: pool})
	})
	return g
}

// any is an elector of the session, to ask who it is.
func (g *group) any(t *testing.T) *elector.Elector {
	t.Helper()
	if len(g.all) > 0 {
		return g.all[0]
	}
	e, err := g.Elector("none")
	check(t, err)
	return e
}

// join adds elections to the session.
func (g *group) join(t *testing.T, elections []string, opts ...elector.ElectionOption) *group {
	t.Helper()
	for _, election := range elections {
		e, err := g.Elector(election, opts...)
		check(t, err)
		g.all = append(g.all, e)
	}
	return g
}

// run starts Run of every election, which Close ends.
func (g *group) run(t *testing.T, lead func(context.Context, *elector.Term) error) *group {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	errs := make(chan error, len(g.all))
	g.stop, g.errs = stop, errs
	for _, e := range g.all {
		g.ended.Go(func() { errs <- e.Run(ctx, lead) })
	}
	return g
}

func (g *group) close(t *testing.T) {
	t.Helper()
	expect(t, g.Close(soon(t)))
	if g.stop == nil {
		return
	}
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		g.ended.Wait()
	}()
	closed(t, "every Run returns", returned)
	g.stop()
}

// leading counts the elections that this session leads.
func (g *group) leading() (n int) {
	for _, e := range g.all {
		if e.IsLeader() {
			n++
		}
	}
	return n
}

// elections makes the names of n elections, whose locks must be free at the end.
func (s *server) elections(t *testing.T, n int) (all []string) {
	t.Helper()
	name := unique(t.Name())
	keys := ""
	for i := range n {
		election := electionOf(name, i)
		all = append(all, election)
		keys += fmt.Sprintf(",%d", elector.KeyFromName(election))
	}
	t.Cleanup(func() {
		if s.up() {
			eventually(t, "the locks are free", func() bool {
				return one[int](t, s.admin, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
					AND ((classid::bigint << 32) | objid::bigint) = ANY(ARRAY[`+keys[1:]+`]::bigint[])`) == 0
			})
		}
	})
	return all
}

// ledOnce waits until each election is led by exactly one of the groups.
func ledOnce(t *testing.T, groups ...*group) {
	t.Helper()
	n := len(groups[0].all)
	eventually(t, "each election is led", func() bool {
		sum := 0
		for _, g := range groups {
			sum += g.leading()
		}
		return sum == n
	})
	for i := range n {
		leaders := 0
		for _, g := range groups {
			if g.all[i].IsLeader() {
				leaders++
			}
		}
		if leaders != 1 {
			t.Errorf("election %d is led by %d", i, leaders)
		}
	}
}

func total(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// The settings by which costs are counted: the defaults.
var byDefault = []elector.SessionOption{elector.WithLease(10 * time.Second), elector.WithHeartbeatInterval(2 * time.Second),
	elector.WithRetryInterval(time.Second)}

func TestAThousandElectionsCostAFewStatementsPerSecond(t *testing.T) {
	over(t, map[string]drivers{"pq leads": mixed, "pgx leads": {"pgx", "postgres"}}, false, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 1000)
		var groups []*group
		var counters []*counter
		for i := range 3 {
			pool, counter := d.openCounted(t, i, s.DSN())
			opts := byDefault
			if i == 0 {
				opts = append(opts[:len(opts):len(opts)], elector.WithWatch())
			}
			groups, counters = append(groups, s.share(t, pool, opts...).join(t, elections)), append(counters, counter)
		}
		groups[0].run(t, nil)
		eventually(t, "the first session leads all", func() bool { return groups[0].leading() == 1000 })
		for _, g := range groups[1:] {
			g.run(t, nil)
		}
		for _, g := range groups[1:] {
			_, err := hookstest.WaitN(soon(t), g.rec, 1000, func(e hooks.Campaign) bool { return e.Outcome == hooks.Busy })
			check(t, err)
		}
		before := []map[string]int{counters[0].now(), counters[1].now(), counters[2].now()}
		began := time.Now()
		time.Sleep(4 * time.Second) // that is what is measured
		seconds := time.Since(began).Seconds()
		for i, counter := range counters {
			most := 3 * seconds
			if i == 0 {
				most = 2 * seconds
			}
			if got := counter.since(before[i]); float64(total(got)) > most+1 {
				t.Errorf("session %d: %v in %.1f s", i, got, seconds)
			}
		}
		if n := len(s.holders(t, groups[0].all[0].Key())); n != 1 {
			t.Errorf("%d backends hold a lock", n)
		}
		groups[0].close(t)
		if n := groups[0].leading(); n > 0 {
			t.Errorf("leads %d after Close", n)
		}
		ledOnce(t, groups[1:]...)
		for i, g := range groups {
			if n := len(g.rec.Failures()); n > 0 {
				t.Errorf("session %d: %d failures, such as %v", i, n, g.rec.Failures()[0].Err)
			}
		}
	})
}

func TestTheLossOfASessionEndsAllItsTermsAndAllAreLedAgain(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 1000)
		watched := s.share(t, d.open(t, 0, s.DSN()), append(byDefault, elector.WithWatch())...).join(t, elections).run(t, nil)
		eventually(t, "one session leads all", func() bool { return watched.leading() == 1000 })
		other := s.share(t, d.open(t, 1, s.DSN()), byDefault...).join(t, elections).run(t, nil)
		old := termOf(t, watched.all[0])
		first, lost := watched.rec.Cursor(), time.Now()
		s.terminate(t, s.holders(t, watched.all[0].Key())[0])
		next[hooks.Demoted](t, first, nil)
		for i, e := range watched.all {
			if term, leading := e.Term(); leading && term.ElectedAt().Before(lost) {
				t.Fatalf("election %d is led by the term of the lost session", i)
			}
		}
		_, err := hookstest.WaitN(soon(t), watched.rec, 1000, func(e hooks.Demoted) bool { return e.Reason == hooks.SessionLost })
		check(t, err)
		ledOnce(t, watched, other)
		for i := range watched.all {
			for _, g := range []*group{watched, other} {
				if term, leading := g.all[i].Term(); leading && term.Token() <= old.Token() {
					t.Errorf("token %d does not rise above %d", term.Token(), old.Token())
				}
			}
		}
	})
}

func TestAResignationOfOneDisturbsNoOther(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 20)
		pool, counter := d.openCounted(t, 0, s.DSN())
		g := s.share(t, pool).join(t, elections)
		var terms []*elector.Term
		for _, e := range g.all {
			term, err := e.Campaign(soon(t))
			check(t, err)
			terms = append(terms, term)
		}
		other := s.share(t, d.open(t, 1, s.DSN())).join(t, elections).run(t, nil)
		before := counter.now()
		for i := 0; i < len(terms); i += 2 {
			expect(t, terms[i].Resign(soon(t)))
			expect(t, terms[i].Resign(soon(t)))
		}
		if got := counter.since(before); got["Unlock"] != 10 {
			t.Errorf("ten resignations took %v", got)
		}
		eventually(t, "the other session leads what was resigned", func() bool { return other.leading() == 10 })
		for i, term := range terms {
			if i%2 == 1 {
				expect(t, term.Verify(soon(t)))
			}
			if term.Valid() != (i%2 == 1) || other.all[i].IsLeader() != (i%2 == 0) {
				t.Errorf("election %d: valid %t, led by the other %t", i, term.Valid(), other.all[i].IsLeader())
			}
		}
		expect(t, other.Close(soon(t)))
		for i := 0; i < len(terms); i += 2 { // and again, on the same session
			term, elected, err := g.all[i].TryCampaign(soon(t))
			if err != nil || !elected || term.Token() <= terms[i].Token() {
				t.Errorf("election %d again: %v, %t, %v", i, term, elected, err)
			}
		}
		if n := len(g.rec.Demoted()); n != 10 {
			t.Errorf("%d terms have ended, want 10", n)
		}
	})
}

func TestCloseEndsAllTermsAndFreesAllLocks(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 100)
		causes := make(chan error, len(elections))
		g := s.share(t, d.open(t, 0, s.DSN())).join(t, elections).run(t, func(ctx context.Context, _ *elector.Term) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		})
		eventually(t, "all are led", func() bool { return g.leading() == len(elections) })
		expect(t, g.Close(soon(t)))
		if n := one[int](t, s.admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", g.CandidateID()); n > 0 {
			eventually(t, "the backend is gone", func() bool {
				return one[int](t, s.admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", g.CandidateID()) == 0
			})
		}
		began := time.Now()
		for range elections {
			wraps(t, <-causes, elector.ErrStopped)
			wraps(t, <-g.errs, elector.ErrStopped)
		}
		soonAfter(t, "the end of Run", began)
		if n := len(g.rec.Demoted()); n != len(elections) {
			t.Errorf("%d terms have ended, want %d", n, len(elections))
		}
		for _, e := range g.rec.Demoted() {
			if e.Reason != hooks.Shutdown {
				t.Fatalf("demoted because %s: %v", e.Reason, e.Err)
			}
		}
		expect(t, g.Close(soon(t)))
	})
}

// Whenever Close comes, no term may be left over, nor a lock be freed under one.
func TestCloseInTheMiddleOfElectionsWaitsForEveryLead(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		for i := range 20 {
			elections := s.elections(t, 50)
			var mu sync.Mutex
			working := 0
			count := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				working += n
				return working
			}
			g := s.share(t, d.open(t, 0, s.DSN())).join(t, elections).run(t, func(ctx context.Context, _ *elector.Term) error {
				count(1)
				defer count(-1)
				<-ctx.Done()
				time.Sleep(time.Millisecond)
				return nil
			})
			eventually(t, "the elections begin", func() bool { return g.leading() > 0 || i%4 == 0 })
			time.Sleep(time.Duration(i) * 200 * time.Microsecond)
			expect(t, g.Close(soon(t)))
			if n := count(0); n > 0 {
				t.Errorf("%d leads go on after Close", n)
			}
			for _, e := range g.rec.Demoted() {
				if e.Reason != hooks.Shutdown {
					t.Errorf("demoted because %s: %v", e.Reason, e.Err)
				}
			}
		}
	})
}

func TestCloseIsBoundedByItsContextAndGoesOn(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 3)
		holder := s.stand(t, d.open(t, 1, s.DSN()), elections[2]).run(t, nil)
		holder.elected(t)
		mayReturn := make(chan struct{})
		g := s.share(t, d.open(t, 0, s.DSN())).join(t, elections)
		slow := make(chan error, 1)
		go func() {
			slow <- g.all[0].Run(context.Background(), func(context.Context, *elector.Term) error { <-mayReturn; return nil })
		}()
		quick, follows := make(chan error, 1), make(chan error, 1)
		go func() { quick <- g.all[1].Run(context.Background(), nil) }()
		go func() { follows <- g.all[2].Run(context.Background(), nil) }()
		eventually(t, "two are led", func() bool { return g.leading() == 2 })
		ctx, cancel := context.WithTimeout(context.Background(), 2*retry)
		defer cancel()
		wraps(t, g.Close(ctx), context.DeadlineExceeded)
		// The slow one delays nobody else.
		wraps(t, <-quick, elector.ErrStopped)
		wraps(t, <-follows, elector.ErrStopped)
		if n := len(s.holders(t, g.all[0].Key())); n != 1 {
			t.Errorf("%d backends hold the lock while lead has not returned", n)
		}
		if n := len(s.holders(t, g.all[1].Key())); n != 0 {
			t.Errorf("%d backends hold the lock after Run has returned", n)
		}
		close(mayReturn)
		wraps(t, <-slow, elector.ErrStopped)
		expect(t, g.Close(soon(t)))
	})
}

func TestAClosedSessionIsOfNoMoreUse(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		for name, used := range map[string]bool{"used": true, "unused": false} {
			t.Run(name, func(t *testing.T) {
				elections := s.elections(t, 2)
				g := s.share(t, d.open(t, 0, s.DSN())).join(t, elections)
				if used {
					term, err := g.all[0].Campaign(soon(t))
					check(t, err)
					defer func() { wraps(t, context.Cause(term.Context()), elector.ErrStopped) }()
				}
				expect(t, g.Close(soon(t)))
				for _, e := range g.all {
					_, err := e.Campaign(soon(t))
					wraps(t, err, elector.ErrStopped)
					_, elected, err := e.TryCampaign(soon(t))
					wraps(t, err, elector.ErrStopped)
					wraps(t, e.Run(soon(t), nil), elector.ErrStopped)
					wraps(t, e.Start(soon(t)), elector.ErrStopped)
					check(t, e.Stop(soon(t)))
					if elected || e.IsLeader() {
						t.Error("elected on a closed session")
					}
				}
			})
		}
	})
}

func TestNoLeadOrHookDelaysAnotherElection(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		block := make(chan struct{})
		wait := func() { <-block }
		slow := elector.WithHooks(hooks.Funcs{
			Elected:   func(context.Context, hooks.Elected) { wait() },
			Demoted:   func(context.Context, hooks.Demoted) { wait() },
			Campaign:  func(context.Context, hooks.Campaign) { wait() },
			Heartbeat: func(context.Context, hooks.Heartbeat) { wait() },
			Error:     func(context.Context, hooks.Failure) { wait() },
		})
		elections := s.elections(t, 3)
		g := s.share(t, d.open(t, 0, s.DSN()))
		g.join(t, elections[:1], slow).join(t, elections[1:2]).run(t, func(ctx context.Context, term *elector.Term) error {
			if term.Context() == ctx && g.all[0].IsLeader() {
				wait() // whichever comes first, and both in the end
			}
			<-ctx.Done()
			return nil
		})
		eventually(t, "both lead", func() bool { return g.leading() == 2 })
		quick, err := g.Elector(elections[2])
		check(t, err)
		for range 5 {
			began := time.Now()
			term, err := quick.Campaign(soon(t))
			check(t, err)
			expect(t, term.Verify(soon(t)))
			expect(t, term.Resign(soon(t)))
			soonAfter(t, "a term beside blocked ones", began)
		}
		time.Sleep(lease)
		if g.leading() != 2 {
			t.Error("a slow lead or hook has cost the lease")
		}
		close(block)
	})
}

func TestACampaignOnASessionThatIsCancelledAsItIsGrantedKeepsNoLock(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 100)
		g := s.share(t, d.open(t, 0, s.DSN())).join(t, elections)
		_, err := g.all[0].Campaign(soon(t)) // so that the rest goes fast
		check(t, err)
		var all sync.WaitGroup
		for i, e := range g.all[1:] {
			all.Go(func() {
				for round := range 5 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(4000+37*i+500*round)*time.Microsecond)
					term, err := e.Campaign(ctx)
					cancel()
					if err == nil {
						expect(t, term.Resign(soon(t)))
					} else if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		eventually(t, "all locks but one are free", func() bool {
			return one[int](t, s.admin, `SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
				WHERE locktype = 'advisory' AND objsubid = 1 AND application_name = $1`, g.CandidateID()) == 1
		})
		for _, e := range g.all[1:] { // each lock is taken once, and not twice
			term, elected, err := e.TryCampaign(soon(t))
			if err != nil || !elected {
				t.Fatalf("got %t, %v", elected, err)
			}
			expect(t, term.Resign(soon(t)))
			if pids := s.holders(t, e.Key()); len(pids) > 0 {
				t.Fatalf("backends %v hold the lock after a resignation", pids)
			}
		}
	})
}

func TestAFencedTransactionDelaysItsOwnElectionOnly(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 10)
		f := s.inTransaction(t, d, elections[0])
		key := elector.KeyFromName(elections[0])
		g := s.share(t, d.open(t, 1, s.DSN())).join(t, elections).run(t, nil)
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
			t.Fatal("not leading any more")
		}
		expect(t, term.Resign(soon(t))) // which others do meanwhile
		eventually(t, "it is led again", func() bool { return g.leading() == 9 })
		time.Sleep(heartbeat)
		if g.all[0].IsLeader() {
			t.Error("elected while a transaction of the last term goes on")
		}
		began := time.Now()
		f.finish(t)
		eventually(t, "all are led", func() bool { return g.leading() == 10 })
		soonAfter(t, "the election after the transaction", began)
		_ = key
	})
}

// A campaign that is given up at the barrier gives the lock back too, at once.
func TestACampaignThatIsCancelledAtTheBarrierKeepsNoLock(t *testing.T) {
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

// The session that waits at a barrier is lost: what it held is not held any more.
func TestTheLossOfASessionAtABarrierRefusesNobody(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 3)
		f := s.inTransaction(t, d, elections[0])
		g := s.share(t, d.open(t, 1, s.DSN()), elector.WithWatch()).join(t, elections).run(t, nil)
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

func TestOneHeartbeatProvesAllTerms(t *testing.T) {
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
		told := map[string]int{first.Election: 1}
		for len(told) < 50 || time.Since(began) < lease {
			told[next[hooks.Heartbeat](t, cursor, nil).Election]++
		}
		got := counter.since(before)
		atMost(t, got["Ping"], began)
		if len(got) != 1 {
			t.Errorf("at rest: %v", got)
		}
		for election, n := range told {
			if n > got["Ping"]+1 {
				t.Errorf("%s was told of %d heartbeats of %d", election, n, got["Ping"])
			}
		}
	})
}

func TestASessionTellsWhoLeadsInsteadOfIt(t *testing.T) {
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
		told := map[string]bool{}
		for range elections {
			e := next[hooks.LeaderChanged](t, cursor, nil)
			if e.Current != first.CandidateID() || e.Previous != "" || e.PID == 0 {
				t.Errorf("told %+v", e)
			}
			told[e.Election] = true
		}
		if len(told) != 3 {
			t.Errorf("told of %v", told)
		}
		before := counter.now()
		time.Sleep(10 * retry)
		got := counter.since(before)
		if got["Leaders"] == 0 || got["Leaders"] > 15 || got["TryLocksOrSeeOffers"] > 15 {
			t.Errorf("in %v: %v", 10*retry, got)
		}
		first.close(t)
		for range elections {
			e := next[hooks.LeaderChanged](t, cursor, nil)
			if e.Current != second.CandidateID() || e.Previous != first.CandidateID() {
				t.Errorf("told %+v", e)
			}
		}
	})
}

func TestABadSessionOrElectorOfItIsRefused(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	pool := pgx.open(t, 0, s.DSN())
	_, err := elector.NewSession(nil)
	wraps(t, err, elector.ErrConfig)
	g := s.share(t, pool)
	_, err = g.Elector("one", elector.WithKey(7))
	check(t, err)
	_, err = g.Elector("two", elector.WithKey(7))
	wraps(t, err, elector.ErrConfig)
	_, err = g.Elector("one", elector.WithKey(8))
	check(t, err)
	_, err = g.Elector("one", elector.WithKey(8))
	wraps(t, err, elector.ErrConfig)
	narrow := pq.open(t, 0, s.DSN())
	narrow.SetMaxOpenConns(1)
	_, err = elector.NewSession(narrow)
	wraps(t, err, elector.ErrConfig)
	narrow.SetMaxOpenConns(2)
	_, err = elector.NewSession(narrow, elector.WithWatch())
	wraps(t, err, elector.ErrConfig)
}

func TestASessionPinsOneConnectionHoweverManyItsElections(t *testing.T) {
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

func TestOneOfASessionMayComeAndGoWhileOthersLead(t *testing.T) {
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

func TestASessionOnAHotStandbyOrThroughAPoolerIsRefused(t *testing.T) {
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
		g := l.share(t, d.open(t, 0, l.proxy.DSN()), elector.WithWatch()).join(t, elections).run(t, nil)
		t.Cleanup(l.proxy.Heal)
		eventually(t, "all are led", func() bool { return g.leading() == 100 })
		check(t, l.Restart(soon(t), pgcluster.Immediate))
		eventually(t, "the server is back", l.up)
		_, err := hookstest.WaitN(soon(t), g.rec, 100, func(e hooks.Demoted) bool { return e.Reason == hooks.SessionLost })
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

// Elections with names that come and go leave nothing of themselves on the server, and
// do not disturb the others of their session.
func TestAnElectionOfASessionCanBeClosedAndMadeAgain(t *testing.T) {
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
		if n := one[int](t, s.admin, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1`, s.holders(t, g.all[0].Key())[0]); n != 1 {
			t.Errorf("the session holds %d locks for one election", n)
		}
		if now, leading := g.all[0].Term(); !leading || now != term {
			t.Error("the election that stays was disturbed")
		}
	})
}
