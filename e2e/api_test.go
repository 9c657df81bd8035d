//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestStartAndStopCanBeRepeated(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t))
		for i := range 3 {
			check(t, c.Start(t.Context()))
			wraps(t, c.Start(t.Context()), elector.ErrAlreadyRunning)
			eventually(t, "the candidate leads", c.IsLeader)
			expect(t, c.Stop(soon(t)))
			expect(t, c.Stop(soon(t)))
			if c.IsLeader() || len(s.holders(t, c.Key())) > 0 {
				t.Error("Stop has returned, and the lock is held")
			}
			if n := len(c.rec.Demoted()); n != i+1 {
				t.Errorf("%d terms have ended, want %d", n, i+1)
			}
		}
	})
}

func TestRunIfLeaderKeepsTheLockUntilItsFunctionReturns(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t))
		nothing := func(context.Context) error { t.Error("called without a term"); return nil }
		if ran, err := c.RunIfLeader(t.Context(), nothing); ran || err != nil {
			t.Errorf("before the term: %t, %v", ran, err)
		}
		c.run(t, nil)
		c.elected(t)
		oops := errors.New("oops")
		ran, err := c.RunIfLeader(t.Context(), func(ctx context.Context) error {
			c.stop()
			<-ctx.Done() // as the term ends
			if len(s.holders(t, c.Key())) != 1 {
				t.Error("the lock is free while the function runs")
			}
			return oops
		})
		if !ran || !errors.Is(err, oops) {
			t.Errorf("got %t, %v", ran, err)
		}
		c.end(t)
		if ran, err := c.RunIfLeader(t.Context(), nothing); ran || err != nil {
			t.Errorf("after the term: %t, %v", ran, err)
		}
	})
}

func TestTryCampaignMakesOneAttempt(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		first, second := s.stand(t, d.open(t, 0, s.DSN()), election), s.stand(t, d.open(t, 1, s.DSN()), election)
		term, elected, err := first.TryCampaign(soon(t))
		if err != nil || !elected {
			t.Fatalf("got %t, %v", elected, err)
		}
		if _, elected, err := second.TryCampaign(soon(t)); elected || err != nil {
			t.Errorf("while another leads: %t, %v", elected, err)
		}
		if _, _, err := first.TryCampaign(soon(t)); !errors.Is(err, elector.ErrAlreadyRunning) {
			t.Errorf("a leader tries again: %v", err)
		}
		expect(t, term.Resign(soon(t)))
		next, elected, err := second.TryCampaign(soon(t))
		if err != nil || !elected || next.Token() <= term.Token() {
			t.Fatalf("after the resignation: %t, %v", elected, err)
		}
		expect(t, next.Resign(soon(t)))
		expect(t, next.Resign(soon(t)))
	})
}

func TestCampaignReturnsOnceTheLeaderHasResigned(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		first, second := s.stand(t, d.open(t, 0, s.DSN()), election), s.stand(t, d.open(t, 1, s.DSN()), election)
		term, err := first.Campaign(soon(t))
		check(t, err)
		campaigned := make(chan *elector.Term, 1)
		go func() {
			term, err := second.Campaign(context.Background())
			expect(t, err)
			campaigned <- term
		}()
		second.follows(t)
		var candidates []elector.Candidate
		eventually(t, "both are shown", func() bool { // inside a transaction a deputy leaves its seat each heartbeat interval
			candidates, err = second.Candidates(soon(t))
			return err != nil || len(candidates) == 2
		})
		if err != nil || !candidates[0].Leading || candidates[0].CandidateID != first.CandidateID() ||
			candidates[1].Leading || !candidates[1].Deputy || candidates[1].CandidateID != second.CandidateID() {
			t.Errorf("the candidates are %+v, %v", candidates, err)
		}
		expect(t, term.Resign(soon(t)))
		next := <-campaigned
		if next.Token() <= term.Token() {
			t.Errorf("token %d does not rise above %d", next.Token(), term.Token())
		}
		expect(t, next.Resign(soon(t)))
	})
}

func TestVerifyReportsTheServersState(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		// With rare heartbeats none comes before Verify.
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t), elector.WithLease(time.Minute), elector.WithHeartbeatInterval(20*time.Second))
		term, err := c.Campaign(soon(t))
		check(t, err)
		before := term.RenewedAt()
		expect(t, term.Verify(soon(t)))
		if !term.RenewedAt().After(before) {
			t.Error("Verify has not renewed the term")
		}
		dead, cancel := context.WithCancel(soon(t))
		cancel()
		for range 20 {
			brief, cancel := context.WithTimeout(context.Background(), 20*time.Microsecond)
			for _, ctx := range []context.Context{dead, brief} { // Verify may still succeed
				if err := term.Verify(ctx); err != nil && !errors.Is(err, context.Cause(ctx)) {
					t.Errorf("with a context that ends: %v", err)
				}
			}
			cancel()
		}
		expect(t, term.Verify(soon(t))) // the term goes on
		s.terminate(t, s.holders(t, c.Key())[0])
		eventually(t, "the lock is free", func() bool { return len(s.holders(t, c.Key())) == 0 })
		err = term.Verify(soon(t))
		wraps(t, err, elector.ErrNotLeader)
		wraps(t, err, elector.ErrSessionLost)
		if c.IsLeader() || term.Context().Err() == nil {
			t.Error("the term goes on")
		}
		wraps(t, term.Resign(soon(t)), elector.ErrNotLeader)
		if e := wait[hooks.Demoted](t, c, nil); e.Reason != hooks.SessionLost {
			t.Errorf("demoted because %s", e.Reason)
		}
	})
}

func TestObserveYieldsEachLeader(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		watcher := s.stand(t, d.open(t, 1, s.DSN()), election)
		c := s.stand(t, d.open(t, 0, s.DSN()), election)
		var term *elector.Term
		var seen []string
		for leader, err := range watcher.Observe(soon(t)) {
			seen = append(seen, leader.CandidateID)
			switch len(seen) {
			case 1, 3:
				wraps(t, err, elector.ErrNoLeader)
				term, err = c.Campaign(soon(t))
				check(t, err)
				continue
			case 2:
				expect(t, term.Resign(soon(t)))
				continue
			}
			break
		}
		if len(seen) != 4 || seen[0]+seen[2] != "" || seen[1] != c.CandidateID() || seen[3] != c.CandidateID() {
			t.Errorf("saw %q", seen)
		}
		expect(t, term.Resign(soon(t)))
	})
}
