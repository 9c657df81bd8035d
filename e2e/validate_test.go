//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/drivertest"
)

// Of two processes the leader loses its lock, and not its session. A third process looks.
func TestAProcessWhoseLockIsGoneStepsDownAndAnotherLeads(t *testing.T) {
	inSessionScope(t, "in a transaction each heartbeat proves that the lock is held")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		f := s.launch(t, d, 2, func(_ int, s *settings) { s.MayFree = true })
		leader := f.leader(t, 0)
		f.untold = append(f.untold, leader.ID)
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

// A round trip of 20 ms is no work of the server's. The best of several intervals counts, on a machine that others
// use. Before, they were 20 s apart, with ten heartbeats.
func TestASlowLinkPutsOffNoValidation(t *testing.T) {
	inSessionScope(t, "in a transaction each heartbeat proves that the lock is held")
	t.Parallel()
	const chosen = time.Second
	overEach(t, func(t *testing.T, d drivers) {
		l := behindAProxy(t)
		l.proxy.Slow(10*time.Millisecond, 0)
		other, err := d.open(t, 0, l.DSN()).Conn(soon(t))
		check(t, err)
		t.Cleanup(func() { expect(t, other.Close()) })
		_, err = other.ExecContext(soon(t), "SELECT pg_advisory_lock(n) FROM generate_series(1, 99) AS n")
		check(t, err)
		var mu sync.Mutex
		var asked []time.Time
		pool := drivertest.Watched(d.open(t, 0, l.cut()), func(_ context.Context, what string) {
			if strings.HasSuffix(what, "ValidateLocks") {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, time.Now())
			}
		})
		t.Cleanup(func() { expect(t, pool.Close()) })
		c := l.server.stand(t, pool, l.election(t), elector.WithLease(time.Minute), elector.WithHeartbeatInterval(10*time.Second), elector.WithValidateInterval(chosen)).run(t, nil)
		c.elected(t)
		eventually(t, "validations are as far apart as was chosen", func() bool {
			mu.Lock()
			defer mu.Unlock()
			best := time.Hour
			for i := 1; i < len(asked); i++ {
				best = min(best, asked[i].Sub(asked[i-1]))
			}
			return best <= chosen*11/10 && c.Settings().ValidateInterval <= chosen*11/10
		})
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
