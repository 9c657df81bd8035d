//go:build unix

package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// The connection that a session pins goes on after pool.Close, on both drivers.
func TestNobodyStandsOnAPoolThatIsClosed(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		stand := func() *candidate {
			c := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil)
			c.poolClosed = true
			return c
		}
		leader := stand()
		leader.elected(t)
		deputy := stand()
		deputy.follows(t)
		follower := stand()
		follower.follows(t)
		for _, c := range []*candidate{follower, deputy, leader} {
			next := s.stand(t, d.open(t, 0, s.DSN()), election)
			check(t, c.pool.Close())
			wraps(t, c.returned(t), elector.ErrPoolClosed)
			s.gone(t, c) // no seat, no lock
			if f := c.rec.Failures(); !f[len(f)-1].Permanent {
				t.Errorf("reported at last: %+v", f[len(f)-1])
			}
			_, err := c.Campaign(context.Background())
			wraps(t, err, elector.ErrPoolClosed)
			if c == leader {
				next.run(t, nil).elected(t)
			}
		}
		if d := wait[hooks.Demoted](t, leader, nil); d.Reason != hooks.Shutdown {
			t.Errorf("the term ended by %s", d.Reason)
		} else {
			wraps(t, d.Err, elector.ErrPoolClosed)
		}
		_, err := elector.New(leader.pool, election)
		wraps(t, err, elector.ErrPoolClosed)
	})
}

func TestASharedSessionOnAPoolThatIsClosedLeadsNothing(t *testing.T) {
	inSessionScope(t, "a shared session is in session scope")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		session, err := elector.NewSession(pool, elector.WithLease(lease), elector.WithHeartbeatInterval(heartbeat), elector.WithRetryInterval(retry))
		check(t, err)
		t.Cleanup(func() { expect(t, session.Close(soon(t))) })
		e, err := session.Elector(s.election(t))
		check(t, err)
		check(t, e.Start(soon(t)))
		term := termOf(t, e)
		check(t, pool.Close())
		closed(t, "the run ends", e.Done())
		wraps(t, e.Err(), elector.ErrPoolClosed)
		wraps(t, context.Cause(term.Context()), elector.ErrPoolClosed)
		_, err = elector.NewSession(pool)
		wraps(t, err, elector.ErrPoolClosed)
	})
}

// A pgxpool that is closed below the *sql.DB waits for the connection of the leader, and the leader does not know:
// Close hangs until the term has ended. A follower is refused connections until then.
func TestAPgxpoolThatIsClosedFirstWaitsForTheEndOfTheTerm(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	below, err := pgxpool.New(t.Context(), s.DSN())
	check(t, err)
	pool := stdlib.OpenDBFromPool(below)
	t.Cleanup(func() { expect(t, pool.Close()) })
	election := s.election(t)
	const length = 10 * time.Second
	leader := s.stand(t, pool, election, elector.WithLease(length)).run(t, nil)
	leader.elected(t)
	follower := s.stand(t, pool, election, polling)
	leader.poolClosed, follower.poolClosed = true, true
	follower.run(t, nil).follows(t)
	closing := make(chan struct{})
	go func() {
		defer close(closing)
		below.Close()
	}()
	began := time.Now()
	failed := wait(t, follower, func(f hooks.Failure) bool { return f.Op == hooks.OpCampaign })
	if !strings.Contains(failed.Err.Error(), "closed pool") {
		t.Errorf("the follower reports %v", failed.Err)
	}
	wait(t, leader, func(h hooks.Heartbeat) bool { return h.At.Sub(began) > length }) // it leads on
	select {
	case <-closing:
		t.Error("Close has returned while the leader has its connection")
	default:
	}
	follower.end(t)
	leader.end(t)
	closed(t, "pgxpool's Close returns", closing)
}
