//go:build unix

package e2e_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// A power is a server whose host may die: the connections of the leader stay silent then.
type power struct {
	*server
	way *pgcluster.Proxy // of the leader

	up   func(t *testing.T) // has a server take its place, and sets next
	next *server
}

// powers are a server that comes back at the same address, and one whose standby is promoted.
func powers(t *testing.T) map[string]*power {
	t.Helper()
	all := map[string]*power{}
	for _, name := range []string{"the same server", "a promoted standby"} {
		s := on(t, own(t))
		way, err := s.Proxy(t.Context())
		check(t, err)
		p := &power{server: s, way: way, next: s}
		if name == "the same server" {
			p.up = func(t *testing.T) { check(t, s.Resume(t.Context())) }
		} else {
			standby, err := s.AddStandby(t.Context())
			check(t, err)
			p.next = on(t, standby)
			p.up = func(t *testing.T) { check(t, standby.Promote(soon(t))) }
		}
		all[name] = p
	}
	return all
}

// dies ends the host: nothing is heard from it any more.
func (p *power) dies(t *testing.T) {
	t.Helper()
	p.way.Forget()
	check(t, p.Kill())
	t.Cleanup(func() { p.way.Reset() })
}

// Without an option a leader on a host that has died leads beside the next leader, as long as its lease
// says. (The lease is long enough for a busy machine.)
func TestALeaderOnAHostThatHasDiedLeadsBesideTheNext(t *testing.T) {
	inSessionScope(t, "the proxy is in front of the server")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		for name, p := range powers(t) {
			t.Run(name, func(t *testing.T) {
				election, long := unique(t.Name()), elector.WithLease(time.Minute)
				old := p.stand(t, d.open(t, 0, p.way.DSN()), election, long).run(t, nil)
				old.elected(t)
				p.dies(t)
				p.up(t)
				next := p.next.stand(t, d.open(t, 1, p.next.DSN()), election, long).run(t, nil)
				won := next.elected(t)
				if !old.IsLeader() || !next.IsLeader() {
					t.Error("there are not two leaders: the host has not died silently")
				}
				if lost := old.rec.Demoted(); len(lost) > 0 {
					t.Errorf("the old leader was told: %+v", lost)
				}
				if before := old.rec.Elected()[0]; won.Token <= before.Token {
					t.Errorf("the token did not rise: %d after %d", won.Token, before.Token)
				}
				p.way.Reset()
			})
		}
	})
}

func TestWithLockDelayALeaderOnAHostThatHasDiedHasStoppedBeforeTheNextIsElected(t *testing.T) {
	inSessionScope(t, "the proxy is in front of the server")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		for name, p := range powers(t) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				const length = 10 * time.Second // it runs out
				election, lease, delay := unique(t.Name()), elector.WithLease(length), elector.WithLockDelay(length)
				old := p.stand(t, d.open(t, 0, p.way.DSN()), election, lease, delay).run(t, nil)
				old.elected(t)
				p.dies(t)
				died := time.Now()
				p.up(t)
				next := p.next.stand(t, d.open(t, 1, p.next.DSN()), election, lease, delay).run(t, nil)
				both := overlap(old, next)
				lost, won := wait[hooks.Demoted](t, old, nil), next.elected(t)
				if both() {
					t.Error("two led at the same time")
				}
				if lost.Reason != hooks.LeaseExpired || !lost.At.Before(won.At) || won.At.Sub(died) < length {
					t.Errorf("the old leader was demoted (%s) %v after the host had died, the next was elected after %v", lost.Reason, lost.At.Sub(died), won.At.Sub(died))
				}
				wait(t, next, func(c hooks.Campaign) bool { return c.Outcome == hooks.TooEarly && c.Next > 0 })
				p.way.Reset()
			})
		}
	})
}

// A process that has just started asks the server for how long it has been there. Any role may.
func TestAServerProvesToAFreshProcessForHowLongItHasBeenAPrimary(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := on(t, own(t))
		election, delay := unique(t.Name()), elector.WithLockDelay(short)
		dsn := s.DSN(pgcluster.ForRole(s.role(t, nil)))
		try := func(pool *sql.DB) error { // each pool is as if of a process of its own
			_, elected, err := s.stand(t, pool, election, delay, briefly).TryCampaign(soon(t))
			if elected {
				t.Error("elected too early")
			}
			return err
		}
		fresh := func() *sql.DB { return d.open(t, 0, dsn) }
		elsewhere := func() *sql.DB { // which keeps no connection
			pool := fresh()
			pool.SetMaxIdleConns(0)
			return pool
		}
		elects := func(pool *sql.DB) bool {
			c := s.stand(t, pool, election, delay, briefly)
			term, elected, err := c.TryCampaign(soon(t))
			if errors.Is(err, elector.ErrTooEarly) {
				return false
			}
			check(t, err)
			if elected {
				check(t, term.Resign(soon(t)))
			}
			return elected
		}
		_, err := s.admin.Exec("CHECKPOINT")
		check(t, err)
		wraps(t, try(fresh()), elector.ErrTooEarly)
		eventually(t, "a fresh process is elected", func() bool { return elects(elsewhere()) })
		if _, err := s.admin.Exec("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_control_checkpoint() FROM PUBLIC"); err != nil {
			t.Fatal(err)
		}
		known := fresh()
		wraps(t, try(known), elector.ErrTooEarly)
		eventually(t, "a process that knows the server is elected", func() bool { return elects(known) })
	})
}
