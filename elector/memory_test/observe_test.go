package memory_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

// Observe yields each leader once, and once that nobody leads or that the server does not answer. A
// follower's hook is called once for each leader.
func TestObserveYieldsEachChangeAndEachErrorOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		watcher, one, two := b.candidate("watcher"), b.candidate("one"), b.candidate("two")
		var term atomic.Pointer[elector.Term]
		lead := func(s *candidate) func() { return func() { term.Store(b.campaign(s.Elector)) } }
		resign := func() { b.wraps(term.Load().Resign(always)) }
		steps := []struct {
			do    func()
			want  string // the leader
			fails bool   // to ask
		}{
			{func() {}, "", false},
			{lead(one), "one", false},
			{b.Stop, "", true},
			{func() { b.Start(); _ = term.Load().Resign(always); lead(one)() }, "one", false},
			{func() { resign(); lead(one)() }, "one", false}, // another session of the same candidate
			{resign, "", false},
			{b.Stop, "", true},
			{b.Start, "", false},
			{lead(two), "two", false},
		}
		i := 0
		next := func() { time.AfterFunc(5*time.Second, steps[i].do) } // long after the previous result
		next()
		for leader, err := range watcher.Observe(always) {
			if want := steps[i]; leader.CandidateID != want.want || (err != nil) != (want.want == "") || errors.Is(err, elector.ErrNoLeader) == want.fails && err != nil {
				b.Errorf("step %d: got %+v, %v", i, leader, err)
			}
			if i++; i == len(steps) {
				break
			}
			next()
		}
		resign()
	})
}

// A moment after the grant the leader says since when it leads. That is no change.
func TestObserveYieldsALeaderOnceThatSaysLaterSinceWhenItLeads(t *testing.T) {
	bubble(t, func(b *bench) {
		watcher, one := b.candidate("watcher", elector.WithRetryInterval(10*time.Millisecond)), b.candidate("one")
		one.process.SetLatency(func() time.Duration { return 50 * time.Millisecond })
		ctx, stop := context.WithTimeout(always, 5*time.Second)
		defer stop()
		elected := make(chan *elector.Term)
		go func() { elected <- b.campaign(one.Elector) }()
		var seen []elector.Leader
		for leader, err := range watcher.Observe(ctx) {
			if len(seen) > 0 {
				b.wraps(err)
			}
			seen = append(seen, leader)
		}
		now, err := watcher.Leader(always)
		b.wraps(err)
		if len(seen) != 2 || seen[1].CandidateID != "one" || !seen[1].ElectedAt.IsZero() || now.ElectedAt.IsZero() {
			b.Errorf("saw %+v, and now it is %+v", seen, now)
		}
		b.wraps((<-elected).Resign(always))
	})
}

func TestObserveEndsWithItsContext(t *testing.T) {
	for name, before := range map[string]func(b *bench){"while it waits": func(*bench) {}, "while it asks": func(b *bench) { b.Stall() }} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one")
			before(b)
			ctx, stop := context.WithTimeout(always, 100*time.Millisecond)
			defer stop()
			start := time.Now()
			for _, err := range one.Observe(ctx) {
				b.wraps(err, elector.ErrNoLeader)
			}
			b.within("it ends", 100*time.Millisecond, time.Since(start), 100*time.Millisecond)
			b.Resume()
		})
	}
}

func TestTheLeaderIsAsTheServerSays(t *testing.T) {
	bubble(t, func(b *bench) {
		one, two := b.candidate("one"), b.candidate("two")
		_, err := two.Leader(always)
		b.wraps(err, elector.ErrNoLeader)
		all, err := two.Candidates(always)
		if b.wraps(err); len(all) != 0 {
			b.Errorf("got %+v", all)
		}
		start := time.Now()
		term := b.campaign(one.Elector)
		time.Sleep(5 * time.Second)
		waiting := b.run("waiting", elector.WithTakeover(elector.Wait))
		time.Sleep(heartbeat / 2)
		leader, err := two.Leader(always)
		b.wraps(err)
		all, err = two.Candidates(always)
		b.wraps(err)
		leads := elector.Candidate{CandidateID: leader.CandidateID, PID: leader.PID, User: leader.User, Addr: leader.Addr, SessionAt: leader.SessionAt,
			Leading: true, Lease: leader.Lease, Scope: leader.Scope, ElectedAt: leader.ElectedAt}
		if len(all) != 2 || all[0] != leads || all[1].Leading || all[1].CandidateID != "waiting" || all[1].QueuedAt.IsZero() ||
			leader.CandidateID != "one" || leader.PID == 0 || leader.SessionAt.Before(start) || leader.SessionAt.After(term.ElectedAt()) {
			b.Errorf("got %+v and %+v", leader, all)
		}
		b.wraps(term.Resign(always))
		b.leads(waiting)
	})
}

// A follower learns of each leader within its bound: a heartbeat interval if it is the deputy,
// else a retry interval. A new session of the same candidate is a change, too.
func TestAChangeOfLeaderIsReportedWithinItsBound(t *testing.T) {
	ill := elector.WithHealth(func(ctx context.Context) elector.HealthReport { <-ctx.Done(); return elector.HealthReport{Score: 0} }, elector.HealthPolicy{Interval: time.Minute})
	for name, c := range map[string]struct {
		opts  []elector.Option
		bound time.Duration
	}{
		"polls":        {[]elector.Option{elector.WithTakeover(elector.Poll)}, time.Second},
		"is deputy":    {nil, heartbeat},
		"waits":        {[]elector.Option{elector.WithTakeover(elector.Wait)}, heartbeat},
		"is unhealthy": {[]elector.Option{ill}, retry},
	} {
		scene(t, name, func(b *bench) {
			stranger := b.candidate("stranger")
			term := b.campaign(stranger.Elector)
			follower := b.run("follower", c.opts...)
			for i, id := range []string{"a", "b", "b", "c"} {
				next := b.candidate(id, elector.WithTakeover(elector.Wait))
				elected := make(chan *elector.Term)
				go func() { elected <- b.campaign(next.Elector) }()
				time.Sleep(5 * time.Second)
				if c.bound == heartbeat { // it would be the next
					follower.stop()
					<-follower.done
					follower.done <- nil
					b.wraps(term.Resign(always))
					term = <-elected
					follower = b.run("follower", c.opts...)
				} else {
					b.wraps(term.Resign(always))
					term = <-elected
				}
				start := time.Now()
				time.Sleep(c.bound + 10*time.Millisecond)
				changes := follower.rec.LeaderChanges()
				if n := len(changes); n == 0 || changes[n-1].Current != id || changes[n-1].At.Sub(start) > c.bound {
					b.Errorf("leader %d: reported %+v", i, changes)
				}
			}
			n := len(follower.rec.LeaderChanges())
			time.Sleep(time.Minute)
			if again := follower.rec.LeaderChanges(); len(again) != n {
				b.Errorf("reported again: %+v", again[n:])
			}
			follower.stop()
			b.wraps(term.Resign(always))
		})
	}
}

// However it was elected, and in either scope. A session of another program tells nothing.
func TestALeaderTellsItsLeaseItsScopeAndSinceWhenItLeads(t *testing.T) {
	for scope, opts := range map[elector.Scope][]elector.Option{elector.SessionScope: nil, elector.TransactionScope: {inside}} {
		for name, takeover := range map[string]elector.Takeover{"polls": elector.Poll, "tries": elector.Deputy, "waits": elector.Wait} {
			scene(t, fmt.Sprint(name, ", ", scope), func(b *bench) {
				pool := b.Open()
				defer pool.Close()
				stranger, err := pool.Conn(always)
				b.wraps(err)
				one := b.candidate("one", append(opts, elector.WithTakeover(takeover))...)
				_, err = db.New(stranger).TryAsDeputy(always, one.Key())
				b.wraps(err)
				if leader, err := one.Leader(always); err != nil || leader.PID == 0 || leader.Scope != elector.Auto || leader.Lease != 0 || !leader.ElectedAt.IsZero() {
					b.Errorf("got %+v, %v", leader, err)
				}
				time.AfterFunc(2*retry, func() { _ = stranger.Raw(func(any) error { return driver.ErrBadConn }) })
				term := b.campaign(one.Elector)
				leader, err := one.Leader(always)
				if b.wraps(err); leader.Scope != scope || leader.Lease != lease || term.ElectedAt().Sub(leader.ElectedAt).Abs() > time.Second {
					b.Errorf("elected at %v, and got %+v", term.ElectedAt(), leader)
				}
				b.wraps(term.Resign(always))
			})
		}
	}
}

func TestAnAttemptReadsTheLeaderOnlyForALeaderChangedHook(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		pool := b.Open()
		defer pool.Close()
		e, err := elector.New(pool, "orders", elector.WithHooks(hooks.Funcs{Elected: func(context.Context, hooks.Elected) {}}))
		b.wraps(err)
		asked := b.count()
		_, _, err = e.TryCampaign(always)
		b.wraps(err)
		for _, opts := range [][]elector.Option{{inside}, {inside, elector.WithTakeover(elector.Deputy)}, nil} {
			deaf, err := elector.New(pool, "orders", opts...)
			b.wraps(err)
			ctx, stop := context.WithTimeout(always, 5*time.Second)
			b.wraps(ways["Campaign"](ctx, deaf), context.DeadlineExceeded)
			stop()
		}
		if counts := asked(); counts["TryLock"] == 0 || counts["TryTransactionLock"] == 0 || counts["Holder"] > 0 {
			b.Errorf("sent %v", counts)
		}
		asked = b.count()
		ill, err := elector.New(pool, "orders", elector.WithHealth(func(context.Context) elector.HealthReport { return elector.HealthReport{Score: 0} }, elector.HealthPolicy{}))
		b.wraps(err)
		ctx, stop := context.WithTimeout(always, 5*time.Second)
		defer stop()
		b.wraps(ways["Campaign"](ctx, ill), context.DeadlineExceeded)
		if counts := asked(); counts["TryLock"]+counts["Holder"] > 0 {
			b.Errorf("sent %v", counts)
		}
	})
}

// It reports each leader, and that nobody leads, but nothing while it cannot ask.
func TestAnUnhealthyCandidateSeesWhoLeads(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		other := elector.WithHooks(hooks.Funcs{Elected: func(context.Context, hooks.Elected) {}}) // which need not know
		ill := b.run("ill", other, elector.WithHealth(func(context.Context) elector.HealthReport { return elector.HealthReport{Score: 0} }, elector.HealthPolicy{}))
		time.Sleep(3 * time.Second)
		ill.process.Cut(electortest.Both)
		time.Sleep(3 * lease)
		ill.process.Mend()
		time.Sleep(lease)
		leader.stop()
		time.Sleep(3 * time.Second)
		changes := ill.rec.LeaderChanges()
		if len(changes) != 2 || changes[0].Current != "leader" || changes[1].Previous != "leader" || changes[1].Current != "" {
			b.Errorf("saw %+v", changes)
		}
		if n := len(ill.rec.Campaigns()); n != 0 {
			b.Errorf("%d attempts", n)
		}
	})
}

func TestTheEndOfATermHidesNoLaterLeader(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		term := b.campaign(one.Elector)
		time.Sleep(heartbeat / 2)
		b.run("other", elector.WithTakeover(elector.Wait))
		time.Sleep(2 * heartbeat)
		b.Terminate(b.pid(one))
		synctest.Wait()
		_, err := one.Leader(always)
		b.wraps(err)
		seen := time.Now()
		<-term.Context().Done()
		_ = term.Resign(always)
		if id, at := one.LastLeader(); id != "other" || at.Before(seen) {
			b.Errorf("%q led last, at %v; want the other, at %v", id, at, seen)
		}
	})
}

func TestALeaderThatCannotBeAskedForIsNoAnswer(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		b.Stall()
		defer b.Resume()
		_, err := one.Leader(always)
		b.wraps(err, elector.ErrNoAnswer)
	})
}
