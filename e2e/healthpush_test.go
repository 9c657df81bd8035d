//go:build unix

package e2e_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// Each of two processes reports its own health. A third one looks.
func TestAProcessThatReportsItselfUnhealthyIsReplacedOnceAnotherIsWell(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		f := s.launch(t, d, 2)
		leader := f.leader(t, 0)
		follower := f.another(t, leader.ID)
		sick := func(id string) {
			f.command(t, id, commandReport+" 0.1 full 900")
			f.wait(t, id+" is unhealthy", func(e entry) bool {
				return e.ID == id && (e.Kind == demoted && e.Text == string(hooks.Unhealthy) || e.Kind == failed && strings.HasPrefix(e.Text, string(hooks.OpHealth)))
			})
		}
		sick(follower)
		sick(leader.ID)
		f.demotion(t, leader.Token)
		look, err := elector.New(d.open(t, 0, s.DSN()), f.election)
		check(t, err)
		eventually(t, "nobody leads", func() bool {
			_, err := look.Leader(soon(t))
			return errors.Is(err, elector.ErrNoLeader)
		})
		f.command(t, follower, commandReport+" 0.9 well 0")
		if next := f.leader(t, leader.Token); next.ID != follower {
			t.Errorf("the next leader is %s", next.ID)
		}
		seen, err := look.Leader(soon(t))
		if check(t, err); seen.CandidateID != follower {
			t.Errorf("seen is %s", seen.CandidateID)
		}
	})
}

// No check is called. The leader reports of itself, and steps down at once for a candidate that is well;
// one whose policy lets it stay leads on.
func TestALeaderThatReportsItselfUnhealthyStepsDownAtOnce(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		leader := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil)
		leader.elected(t)
		next := s.stand(t, d.open(t, 1, s.DSN()), election, elector.WithHealth(nil, elector.HealthPolicy{StayWhenUnhealthy: true}))
		next.ReportHealth(elector.HealthReport{Score: 0.2, Why: "cold cache"})
		next.run(t, nil)
		wait(t, next, func(f hooks.Failure) bool {
			return f.Op == hooks.OpHealth && strings.Contains(f.Err.Error(), "cold cache")
		})
		leader.ReportHealth(elector.HealthReport{Score: 0.9, Unhealthy: true, Why: "disk full", Metadata: map[string]string{"disk": "100%"}})
		if leader.IsLeader() { // ReportHealth has ended its belief
			t.Error("it leads on")
		}
		lost := wait[hooks.Demoted](t, leader, nil)
		wraps(t, lost.Err, elector.ErrUnhealthy)
		if lost.Reason != hooks.Unhealthy || !strings.Contains(lost.Err.Error(), "disk full") {
			t.Errorf("demoted: %s, %v", lost.Reason, lost.Err)
		}
		if n := len(next.rec.Elected()); n > 0 {
			t.Error("an unhealthy candidate was elected")
		}
		next.ReportHealth(elector.HealthReport{Score: 1})
		next.elected(t)
		if h := leader.Health(); h.Healthy || h.Why != "disk full" || h.Metadata["disk"] != "100%" || h.At.IsZero() {
			t.Errorf("its health is %+v", h)
		}
		reported := time.Now()
		next.ReportHealth(elector.HealthReport{Score: 0.1})
		wait(t, next, func(h hooks.Heartbeat) bool { return h.At.After(reported) })
		if !next.IsLeader() {
			t.Error("the policy lets it stay")
		}
	})
}
