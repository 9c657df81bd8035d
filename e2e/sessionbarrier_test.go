//go:build unix

package e2e_test

import (
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestAFencedTransactionDelaysOnlyItsElection(t *testing.T) {
	inSessionScope(t, "a shared session needs it")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 10)
		f := s.inTransaction(t, d, elections[0])
		// With a shorter lease the transaction would be overdue on a busy machine, and be ended.
		g := s.share(t, d.open(t, 1, s.DSN()), elector.WithLease(time.Minute)).join(t, elections).run(t, nil)
		eventually(t, "the others are led", func() bool { return g.leading() == 9 })
		leader, err := g.all[0].Leader(soon(t))
		check(t, err)
		s.terminate(t, int(leader.PID))
		eventually(t, "the session holds the lock", func() bool {
			leader, err := g.all[0].Leader(soon(t))
			return err == nil && leader.CandidateID == g.CandidateID()
		})
		term, leading := g.all[1].Term()
		if !leading {
			t.Fatal("no longer leading")
		}
		expect(t, term.Resign(soon(t))) // other elections continue meanwhile
		eventually(t, "it is led again", func() bool { return g.leading() == 9 })
		time.Sleep(heartbeat)
		if g.all[0].IsLeader() {
			t.Error("elected while a transaction of the last term goes on")
		}
		began := time.Now()
		f.finish(t)
		eventually(t, "all are led", func() bool { return g.leading() == 10 })
		soonAfter(t, "the election after the transaction", began)
	})
}

// When a session that waits at a barrier is lost, its elections continue on a new one.
func TestALostSessionAtABarrierIsReplaced(t *testing.T) {
	inSessionScope(t, "a shared session needs it")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 3)
		f := s.inTransaction(t, d, elections[0])
		patient := elector.WithLease(time.Minute) // a transaction that is older is terminated
		g := s.share(t, d.open(t, 1, s.DSN()), patient).join(t, elections).run(t, nil)
		leader, err := g.all[0].Leader(soon(t))
		check(t, err)
		s.terminate(t, int(leader.PID))
		for range 2 {
			var pid int32
			eventually(t, "the session holds the lock", func() bool {
				leader, err := g.all[0].Leader(soon(t))
				pid = leader.PID
				return err == nil && leader.CandidateID == g.CandidateID() && g.leading() == 2
			})
			after := g.rec.Cursor()
			after.SkipSeen()
			s.terminate(t, int(pid))
			next[hooks.Demoted](t, after, nil)
			next[hooks.Demoted](t, after, nil)
		}
		f.finish(t)
		eventually(t, "all are led", func() bool { return g.leading() == 3 })
		for _, f := range g.rec.Failures() {
			if f.Permanent {
				t.Errorf("%s: %v", f.Op, f.Err)
			}
		}
	})
}
