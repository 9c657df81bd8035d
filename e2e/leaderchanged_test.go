//go:build unix

package e2e_test

import (
	"sync/atomic"
	"testing"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// Whatever a candidate does, it is told who leads: one that follows in any way, one
// that is too unhealthy to campaign, and one that led.
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
			all["one that is "+kind] = stand(t, s, d, 0, election).run(t, nil)
		}
		told := func(leader *candidate) {
			t.Helper()
			for who, c := range all {
				if _, err := hookstest.Wait(soon(t), c.rec, func(e hooks.LeaderChanged) bool {
					return e.Current == leader.CandidateID() && e.PID != 0
				}); err != nil {
					t.Errorf("%s: %v", who, err)
				}
			}
		}
		told(first)
		term := termOf(t, first)
		check(t, term.TransferTo(soon(t), second.CandidateID()))
		told(second)
		nobody := func(e hooks.LeaderChanged) bool { return e.Current == "" && e.PID == 0 }
		if e := wait(t, first, nobody); e.Previous != first.CandidateID() {
			t.Errorf("a leader that has resigned was told of %+v", e)
		}
	})
}

func TestAnUnhealthyCandidateIsToldThatNobodyLeads(t *testing.T) {
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
