//go:build unix

package e2e_test

import (
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/e2e/sandbox"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks"
)

// The server ends no session whose backend is stopped, so nobody can lead. The leader itself stops believing.
func TestALeaderWhoseBackendHangsIsSeenByWhoeverLooks(t *testing.T) {
	inSessionScope(t, "the backend of a pooler would be another's, too")
	t.Parallel()
	s := withoutPooler(t, own(t))
	election := s.election(t)
	leader := s.stand(t, pgx.open(t, 0, s.DSN()), election, briefly).run(t, nil)
	leader.elected(t)
	pid := s.holders(t, leader.Key())[0]
	deputy, monitor := s.standWatched(t, pgx, 1, election)
	deputy.run(t, nil).follows(t)
	page, err := dashboard.New(s.admin, dashboard.WithElections(election))
	check(t, err)
	becomes(t, monitor, health.Healthy)

	check(t, sandbox.Stop(pid))
	thaw := func() { check(t, syscall.Kill(pid, syscall.SIGCONT)) }
	defer syscall.Kill(pid, syscall.SIGCONT)
	reported := wait(t, deputy, func(f hooks.Failure) bool { return f.Op == hooks.OpLeader })
	if text := reported.Err.Error(); !errors.Is(reported.Err, elector.ErrLeaderSilent) || !strings.Contains(text, leader.CandidateID()) || !strings.Contains(text, "runbook.md#") {
		t.Errorf("the deputy reports %v", reported.Err)
	}
	becomes(t, monitor, health.Unhealthy)
	if r := probe(t, monitor.Readiness()); r.Status != health.Degraded || !strings.Contains(r.Elections[0].Why, "has not ended its session") {
		t.Errorf("the follower's readiness: %+v", r)
	}
	eventually(t, "the page says that nobody leads", func() bool {
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
		return strings.Contains(answer.Body.String(), "nobody leads: the lease of "+leader.CandidateID()+" ran out")
	})
	if leader.IsLeader() {
		t.Error("the leader believes that it leads")
	}
	thaw()
	eventually(t, "somebody leads", func() bool { return deputy.IsLeader() || leader.IsLeader() })
	becomes(t, monitor, health.Healthy)
	reports := slices.DeleteFunc(deputy.rec.Failures(), func(f hooks.Failure) bool { return f.Op != hooks.OpLeader })
	if len(reports) != 1 {
		t.Errorf("the deputy has reported it %d times", len(reports))
	}
}
