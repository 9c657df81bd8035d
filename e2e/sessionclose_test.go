//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestCloseEndsAllTermsAndFreesAllLocks(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 100)
		causes := make(chan error, len(elections))
		var leads atomic.Int32
		g := s.share(t, d.open(t, 0, s.DSN())).join(t, elections).run(t, func(ctx context.Context, _ *elector.Term) error {
			leads.Add(1)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		})
		eventually(t, "all are led", func() bool { // a term that ends before its lead begins does not call it
			return g.leading() == len(elections) && int(leads.Load()) == len(elections)
		})
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

// Close during elections leaves no term and releases no lock before its work has returned.
func TestCloseDuringElectionsWaitsForEveryLead(t *testing.T) {
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

func TestCloseReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 3)
		holder := s.stand(t, d.open(t, 1, s.DSN()), elections[2]).run(t, nil)
		holder.elected(t)
		begun, mayReturn := make(chan struct{}), make(chan struct{})
		g := s.share(t, d.open(t, 0, s.DSN())).join(t, elections)
		slow := make(chan error, 1)
		go func() {
			slow <- g.all[0].Run(context.Background(), func(context.Context, *elector.Term) error {
				close(begun)
				<-mayReturn
				return nil
			})
		}()
		quick, follows := make(chan error, 1), make(chan error, 1)
		go func() { quick <- g.all[1].Run(context.Background(), nil) }()
		go func() { follows <- g.all[2].Run(context.Background(), nil) }()
		eventually(t, "two are led", func() bool { return g.leading() == 2 })
		closed(t, "the slow lead begins", begun)
		ctx, cancel := context.WithTimeout(context.Background(), 2*retry)
		defer cancel()
		wraps(t, g.Close(ctx), context.DeadlineExceeded)
		// The slow election does not delay the others.
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

func TestAClosedSessionRefusesCampaigns(t *testing.T) {
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
				wait() // the first one to come; in the end both
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
			soonAfter(t, "a term next to blocked ones", began)
		}
		time.Sleep(lease)
		if g.leading() != 2 {
			t.Error("a slow lead or hook ended a term")
		}
		close(block)
	})
}

func TestACancelledCampaignOnASessionKeepsNoLock(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 100)
		g := s.share(t, d.open(t, 0, s.DSN())).join(t, elections)
		_, err := g.all[0].Campaign(soon(t)) // the server is checked now, so the others are fast
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
		for _, e := range g.all[1:] { // each lock can be taken again
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
