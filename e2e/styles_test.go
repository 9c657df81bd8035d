//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestStartLeadsInTheBackgroundUntilStop(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t))
		check(t, c.Start(t.Context()))
		wraps(t, c.Start(t.Context()), elector.ErrAlreadyRunning)
		termOf(t, c)
		if pids := s.holders(t, c.Key()); len(pids) != 1 {
			t.Errorf("backends %v have the lock, want one", pids)
		}
		check(t, c.Stop(soon(t)))
		closed(t, "Done", c.Done())
		if err := c.Err(); err != nil || c.IsLeader() {
			t.Errorf("after Stop: %v, leading %v", err, c.IsLeader())
		}
		s.frees(t, c.Key())

		check(t, c.Start(t.Context())) // once more
		termOf(t, c)
		check(t, c.Stop(soon(t)))
	})
}

// The second host's clock is late: it tries when the work of the first is done.
func TestAHoldKeepsATickFromAHostWhoseClockIsLate(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		late := s.stand(t, d.open(t, 1, s.DSN()), election)
		nothing := func(context.Context, *elector.Term) error { return nil }
		for _, held := range []bool{false, true} {
			var opts []elector.Option
			if held {
				opts = append(opts, elector.WithHold(time.Hour)) // which ctx ends
			}
			one := s.stand(t, d.open(t, 0, s.DSN()), election, opts...)
			ctx, stop := context.WithCancel(soon(t))
			worked, ended := make(chan *elector.Term, 1), make(chan error, 1)
			go func() {
				_, err := one.TryRun(ctx, func(_ context.Context, term *elector.Term) error { worked <- term; return nil })
				ended <- err
			}()
			term := <-worked
			if !held {
				check(t, <-ended)
			}
			if elected, err := late.TryRun(soon(t), nothing); err != nil || elected == held {
				t.Errorf("with a hold %v the late host was elected: %v, %v", held, elected, err)
			}
			if held {
				check(t, term.Verify(soon(t)))
				stop()
				check(t, <-ended)
			}
			stop()
			s.frees(t, one.Key())
		}
	})
}

func TestOfTwoHostsThatTryToRunOneRuns(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		one := s.stand(t, d.open(t, 0, s.DSN()), election)
		two := s.stand(t, d.open(t, 1, s.DSN()), election)
		nothing := func(context.Context, *elector.Term) error { return nil }
		elected, err := one.TryRun(soon(t), func(ctx context.Context, _ *elector.Term) error {
			elected, err := two.TryRun(ctx, func(context.Context, *elector.Term) error { return errors.New("both run") })
			if elected {
				t.Error("both hosts run")
			}
			return err
		})
		if !elected || err != nil {
			t.Errorf("elected: %v, error: %v", elected, err)
		}
		if elected, err = two.TryRun(soon(t), nothing); !elected || err != nil {
			t.Errorf("the other host, afterwards: elected: %v, error: %v", elected, err)
		}
		boom := errors.New("boom")
		_, err = one.TryRun(soon(t), func(context.Context, *elector.Term) error { return boom })
		wraps(t, err, boom)
	})
}

func TestWhatRunsIfItLeadsEndsWithTheTerm(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t))
		never := func(context.Context) error { return errors.New("it does not lead") }
		if ran, err := c.RunIfLeader(t.Context(), never); ran || err != nil {
			t.Errorf("a candidate that does not lead: ran %v, error %v", ran, err)
		}
		check(t, c.Start(t.Context()))
		termOf(t, c)
		var cause error
		ran, err := c.RunIfLeader(soon(t), func(ctx context.Context) error {
			s.terminate(t, s.leaderPID(t, c.Key()))
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil
		})
		if !ran || err != nil {
			t.Errorf("ran %v, error %v", ran, err)
		}
		wraps(t, cause, elector.ErrSessionLost)
		check(t, c.Stop(soon(t)))
	})
}

func TestAnObserverSeesEachChangeOfTheLeader(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		observer := s.stand(t, d.open(t, 0, s.DSN()), election)
		ctx, cancel := context.WithCancel(soon(t))
		defer cancel()
		seen := make(chan string)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for leader, err := range observer.Observe(ctx) {
				id := leader.CandidateID
				if errors.Is(err, elector.ErrNoLeader) {
					id = "nobody"
				} else if err != nil {
					id = err.Error()
				}
				select {
				case seen <- id:
				case <-ctx.Done():
					return
				}
			}
		}()
		sees := func(want string) {
			t.Helper()
			select {
			case id := <-seen:
				if id != want {
					t.Errorf("the observer sees %q, want %q", id, want)
				}
			case <-ctx.Done():
				t.Fatalf("the observer does not see %q", want)
			}
		}
		sees("nobody")
		for i := range 2 {
			c := s.stand(t, d.open(t, i+1, s.DSN()), election)
			term, err := c.Campaign(soon(t))
			check(t, err)
			sees(c.CandidateID())
			check(t, term.Resign(soon(t)))
			sees("nobody")
		}
		cancel()
		closed(t, "Observe ends with its context", ended)
	})
}

func TestTheLastLeaderIsKnownWithoutAQuestion(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		leader, follower := s.stand(t, d.open(t, 0, s.DSN()), election), s.stand(t, d.open(t, 1, s.DSN()), election)
		if id, at := follower.LastLeader(); id != "" || !at.IsZero() {
			t.Errorf("before it knows of a leader: %q, %v", id, at)
		}
		term, err := leader.Campaign(soon(t))
		check(t, err)
		before := time.Now()
		_, err = follower.Leader(soon(t))
		check(t, err)
		check(t, term.Resign(soon(t)))
		check(t, follower.pool.Close())
		follower.poolClosed = true
		if id, at := follower.LastLeader(); id != leader.CandidateID() || at.Before(before) || at.After(time.Now()) {
			t.Errorf("the last leader is %q at %v, want %q after %v", id, at, leader.CandidateID(), before)
		}
	})
}

func TestACampaignGivesUpAfterItsLastAttempt(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		c := s.stand(t, d.open(t, 0, s.DSN(pgcluster.ForDatabase(unique("missing")))), s.election(t), elector.WithMaxAttempts(3), elector.WithBackoff(10*time.Millisecond, 10*time.Millisecond))
		c.poolClosed = true // no connection was ever made
		_, err := c.Campaign(soon(t))
		wraps(t, err, elector.ErrGaveUp)
		failed := slices.DeleteFunc(c.rec.Campaigns(), func(e hooks.Campaign) bool { return e.Outcome != hooks.Failed })
		if len(failed) != 3 {
			t.Errorf("%d failed attempts, want 3: %+v", len(failed), failed)
		}
	})
}
