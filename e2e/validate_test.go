//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// Of two processes the leader loses its lock, and not its session. A third process looks.
func TestAProcessWhoseLockIsGoneStepsDownAndAnotherLeads(t *testing.T) {
	inSessionScope(t, "in a transaction each heartbeat proves that the lock is held")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		f := s.launch(t, d, 2, func(_ int, s *settings) { s.MayFree = true })
		leader := f.leader(t, 0)
		f.excused = append(f.excused, leader.ID) // until it looks, it believes what is not so
		f.command(t, leader.ID, commandFree)
		if lost := f.demotion(t, leader.Token); lost.Text != string(hooks.SessionLost) {
			t.Errorf("demoted: %+v", lost)
		}
		next := f.leader(t, leader.Token)
		look, err := elector.New(d.open(t, 0, s.DSN()), f.election)
		check(t, err)
		eventually(t, "a third process sees who leads", func() bool {
			seen, err := look.Leader(soon(t))
			return err == nil && seen.CandidateID == next.ID
		})
	})
}

// Other code, or the driver, frees the lock on the leader's own connection. Each heartbeat is answered.
func TestALockThatIsGoneEndsTheTermByTheValidation(t *testing.T) {
	inSessionScope(t, "in a transaction each heartbeat proves that the lock is held")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		const every = 300 * time.Millisecond
		s := onShared(t)
		free := func(c *counter, key int64) {
			c.before.Store(db.Ping, fmt.Sprintf("SELECT pg_advisory_unlock(%d)", key))
		}
		pool, counter := d.openCounted(t, 0, s.DSN())
		own := s.stand(t, pool, s.election(t), elector.WithValidateInterval(every)).run(t, nil)
		own.elected(t)
		if got := own.Settings().ValidateInterval; got < every || got > 10*heartbeat {
			t.Errorf("the interval in force is %v", got)
		}
		elections := s.elections(t, 3)
		sharedPool, sharedCounter := d.openCounted(t, 1, s.DSN())
		many := s.share(t, sharedPool, elector.WithValidateInterval(every)).join(t, elections).run(t, nil)
		eventually(t, "all are led", func() bool { return many.leading() == 3 })
		offPool, offCounter := d.openCounted(t, 0, s.DSN())
		off := s.stand(t, offPool, s.election(t), elector.WithValidateInterval(0)).run(t, nil)
		off.elected(t)
		free(counter, own.Key())
		free(sharedCounter, many.all[1].Key())
		free(offCounter, off.Key())
		beats := off.after()
		for name, lost := range map[string]hooks.Demoted{"its own": wait[hooks.Demoted](t, own, nil), "a shared": next[hooks.Demoted](t, many.rec.Cursor(), nil)} {
			wraps(t, lost.Err, elector.ErrSessionLost)
			if !strings.Contains(lost.Err.Error(), "does not hold the lock") {
				t.Errorf("on %s session: %v", name, lost.Err)
			}
		}
		for range 15 {
			next[hooks.Heartbeat](t, beats, nil)
		}
		if n := len(off.rec.Demoted()); n > 0 || off.Settings().ValidateInterval != 0 || offCounter.now()["HeldLocks"] > 0 {
			t.Errorf("validations are off: %d terms ended, %v", n, off.Settings())
		}
		counter.before.Clear()
		sharedCounter.before.Clear()
		offCounter.before.Clear()
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
