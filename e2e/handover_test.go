//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

func TestTheLockIsFreeBeforeRunReturns(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *candidate, resign chan<- struct{}){
		"lead returns": func(_ *candidate, resign chan<- struct{}) { close(resign) },
		"ctx ends":     func(c *candidate, _ chan<- struct{}) { c.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			overEach(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				resign := make(chan struct{})
				c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t)).run(t, func(ctx context.Context, _ *elector.Term) error {
					select {
					case <-resign:
					case <-ctx.Done():
					}
					return nil
				})
				c.elected(t)
				end(c, resign)
				closed(t, "Run returns", c.done)
				if pids := s.holders(t, c.Key()); len(pids) > 0 {
					t.Errorf("backends %v hold or await the lock after Run returned", pids)
				}
			})
		})
	}
}

// A polling follower is elected at its next attempt, at most a retry interval later.
func TestAFollowerIsElectedAtItsFirstAttemptAfterAResignation(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		first := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil)
		old := first.elected(t)
		second := s.stand(t, d.open(t, 1, s.DSN()), election, polling).run(t, nil)
		second.follows(t)

		first.end(t)
		released := time.Now()
		fresh := second.elected(t)
		if fresh.Token <= old.Token {
			t.Errorf("token %d does not rise above %d", fresh.Token, old.Token)
		}
		second.foundFreeAt(t, released)
		for _, attempt := range second.rec.Campaigns() {
			if attempt.Next > retry {
				t.Errorf("a follower waited %v, longer than its retry interval", attempt.Next)
			}
		}
	})
}

func TestTheLockIsHeldUntilLeadReturns(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		cancelled, mayReturn := make(chan struct{}), make(chan struct{})
		first := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, func(ctx context.Context, _ *elector.Term) error {
			<-ctx.Done()
			close(cancelled)
			<-mayReturn
			return nil
		})
		first.elected(t)
		second := s.stand(t, d.open(t, 1, s.DSN()), election).run(t, nil)
		second.follows(t)
		first.stop()
		closed(t, "the term's context is done", cancelled)
		after := second.after()
		for range 5 {
			if attempt := next[hooks.Campaign](t, after, nil); attempt.Outcome != hooks.Busy {
				t.Errorf("attempt %s while lead had not returned", attempt.Outcome)
			}
		}
		close(mayReturn)
		closed(t, "Run returns", first.done)
		second.elected(t)
	})
}

func TestAFailedLeadHandsOver(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		oops := errors.New("oops")
		following := make(chan struct{})
		first := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, func(context.Context, *elector.Term) error {
			<-following
			return oops
		})
		first.elected(t)
		second := s.stand(t, d.open(t, 1, s.DSN()), election).run(t, nil)
		second.follows(t)
		close(following)
		wraps(t, first.returned(t), oops)
		second.elected(t)
		if d := wait[hooks.Demoted](t, first, nil); d.Reason != hooks.LeadFailed {
			t.Errorf("demoted because %s", d.Reason)
		}
	})
}

// Followers of every kind, an unhealthy candidate and a former leader all report the new leader.
func TestEachChangeOfLeaderIsToldEverywhere(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		first := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil)
		first.elected(t)
		second := s.stand(t, d.open(t, 1, s.DSN()), election).run(t, nil)
		second.follows(t)
		all := map[string]*candidate{"the first leader": first, "the second leader": second}
		var ill atomic.Bool
		ill.Store(true)
		all["an unhealthy candidate"] = s.stand(t, d.open(t, 0, s.DSN()), election, gate(&ill)).run(t, nil)
		for kind, stand := range kinds {
			all["a candidate: "+kind] = stand(t, s, d, 0, election).run(t, nil)
		}
		allReport := func(leader *candidate) {
			t.Helper()
			for who, c := range all {
				if _, err := hookstest.Wait(soon(t), c.rec, func(e hooks.LeaderChanged) bool {
					return e.Current == leader.CandidateID() && e.PID != 0
				}); err != nil {
					t.Errorf("%s: %v", who, err)
				}
			}
		}
		allReport(first)
		term := termOf(t, first)
		check(t, term.TransferTo(soon(t), second.CandidateID()))
		allReport(second)
		nobody := func(e hooks.LeaderChanged) bool { return e.Current == "" && e.PID == 0 }
		if e := wait(t, first, nobody); e.Previous != first.CandidateID() {
			t.Errorf("the former leader got the event %+v", e)
		}
	})
}

func TestAnUnhealthyCandidateReportsThatNobodyLeads(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		var ill atomic.Bool
		ill.Store(true)
		c := s.stand(t, d.open(t, 1, s.DSN()), election, gate(&ill)).run(t, nil)
		leader := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil)
		wait(t, c, func(e hooks.LeaderChanged) bool { return e.Current == leader.CandidateID() })
		leader.end(t)
		wait(t, c, func(e hooks.LeaderChanged) bool { return e.Previous == leader.CandidateID() && e.Current == "" })
	})
}
