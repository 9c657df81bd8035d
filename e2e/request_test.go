//go:build unix

package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// A leader finishes its work and resigns when a role without any privilege asks; nothing is
// asked of a leader where that role may not lock.
func TestAnyRoleThatMayLockCanAskTheLeaderToGo(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		w := invaded(t, onShared(t))
		leader := w.candidate(t, d)
		leader.elected(t)
		other := w.stand(t, d.open(t, 1, w.dsn(w.elections)), "town").run(t, nil)
		other.follows(t)
		stranger := d.open(t, 1, w.dsn(w.stranger))
		next, err := elector.RequestResign(soon(t), stranger, "town")
		check(t, err)
		if next.CandidateID != other.CandidateID() {
			t.Errorf("%+v leads next", next)
		}
		d1 := leader.rec.Demoted()
		if len(d1) != 1 || d1[0].Reason != hooks.Requested || !strings.Contains(d1[0].Err.Error(), w.stranger) {
			t.Errorf("demoted %+v", d1)
		}
		next, err = elector.RequestTransfer(soon(t), stranger, "town", leader.CandidateID())
		if check(t, err); next.CandidateID != leader.CandidateID() {
			t.Errorf("%+v leads next, and not the one that was asked for", next)
		}
		w.defend(t, "locks")
		if _, err := elector.RequestResign(soon(t), stranger, "town"); stateOf(err) != "42501" || !leader.IsLeader() {
			t.Errorf("got %v", err)
		}
	})
}

// A leader whose work hangs is named with its backend, and its term has ended. The request
// is over then: no later term answers it.
func TestALeaderWhoseWorkHangsDoesNotAnswerARequest(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		free := make(chan struct{})
		leader := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, func(context.Context, *elector.Term) error {
			<-free
			return nil
		})
		leader.elected(t)
		pool := d.open(t, 1, s.DSN())
		ctx, cancel := context.WithTimeout(t.Context(), 2*heartbeat+2*time.Second)
		defer cancel()
		got, err := elector.RequestResign(ctx, pool, election)
		wraps(t, err, elector.ErrUnanswered)
		wraps(t, err, context.DeadlineExceeded)
		if got.CandidateID != leader.CandidateID() || got.PID == 0 {
			t.Errorf("got %+v", got)
		}
		if leader.IsLeader() {
			t.Error("its term goes on")
		}
		close(free)
		_, err = elector.RequestResign(soon(t), pool, s.election(t))
		wraps(t, err, elector.ErrNoLeader)
	})
}
