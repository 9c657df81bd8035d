//go:build unix

package e2e_test

import (
	"strings"
	"testing"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// Whoever leads after a kill, the highest priority leads in the end. Each candidate has another driver than the next. A kill may
// come before there is a deputy: then the candidate that was killed may lead again by itself.
func TestLeadershipReturnsToTheHighestPriorityAfterEachKill(t *testing.T) {
	t.Parallel()
	for _, scope := range []elector.Scope{elector.Auto, elector.TransactionScope} {
		t.Run(scope.String(), func(t *testing.T) {
			t.Parallel()
			overDrivers(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				election := s.election(t)
				var all []*candidate
				for i, priority := range []int32{-2147483648, 0, 2147483647} {
					c := s.stand(t, d.open(t, i, s.DSN()), election, elector.WithScope(scope), elector.WithPriority(priority), elector.WithPreemptDelay(retry))
					if all = append(all, c.run(t, nil)); i == 0 {
						c.elected(t)
					}
				}
				high := all[2]
				high.elected(t)
				for range 2 {
					leader, err := high.Leader(soon(t))
					check(t, err)
					if leader.Priority != 2147483647 {
						t.Errorf("%s leads, with priority %d", leader.CandidateID, leader.Priority)
					}
					again := high.after()
					s.terminate(t, int(leader.PID))
					nextElected(t, again)
				}
				for _, c := range all {
					for _, e := range c.rec.Demoted() {
						if e.Reason == hooks.Preempted && !strings.Contains(e.Err.Error(), "has priority") {
							t.Errorf("demoted because of %v", e.Err)
						}
					}
				}
				if n := len(high.rec.Demoted()); n != 2 {
					t.Errorf("the highest priority was demoted %d times, want twice: by the kills", n)
				}
				first := wait[hooks.Demoted](t, all[0], nil)
				if first.Reason != hooks.Preempted {
					t.Errorf("demoted because %s", first.Reason)
				}
			})
		})
	}
}
