//go:build unix

package e2e_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// cramped starts a server with a small lock table.
func cramped(t *testing.T) *server {
	t.Helper()
	return on(t, own(t, pgcluster.WithSetting("max_locks_per_transaction", "10"), pgcluster.WithSetting("max_connections", "20"),
		pgcluster.WithSetting("max_wal_senders", "0"), pgcluster.WithSetting("autovacuum_max_workers", "1")))
}

// fill takes all free locks except spare ones, until empty is called or the test ends.
func (s *server) fill(t *testing.T, spare int) (empty func()) {
	t.Helper()
	conn, err := s.admin.Conn(soon(t))
	check(t, err)
	taken := 0
	for {
		if _, err = conn.ExecContext(soon(t), "SELECT pg_advisory_lock(42, $1)", taken); err != nil {
			break
		}
		taken++
	}
	for i := range spare {
		_, err := conn.ExecContext(soon(t), "SELECT pg_advisory_unlock(42, $1)", taken-1-i)
		check(t, err)
	}
	done := false
	empty = func() {
		if !done {
			_, err := conn.ExecContext(soon(t), "SELECT pg_advisory_unlock_all()")
			expect(t, err)
			expect(t, conn.Close())
		}
		done = true
	}
	t.Cleanup(empty)
	return empty
}

// patient is a lease that a slow answer of a busy machine does not exceed.
var patient = elector.WithLease(10 * lease)

func saysFull(t *testing.T, f hooks.Failure) {
	t.Helper()
	wraps(t, f.Err, elector.ErrLockTableFull)
	var state interface{ SQLState() string }
	if f.Permanent || !strings.Contains(f.Err.Error(), "max_locks_per_transaction") || !errors.As(f.Err, &state) || state.SQLState() != "53200" {
		t.Errorf("reported (permanent: %t): %v", f.Permanent, f.Err)
	}
}

func TestAFullLockTableIsReportedUntilThereIsRoom(t *testing.T) {
	inSessionScope(t, "the pooler needs locks to look up a role")
	t.Parallel()
	for name, opts := range map[string][]elector.Option{"polling": nil, "waiting": {elector.WithStandby(elector.Wait)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				s := cramped(t)
				election := s.election(t)
				empty := s.fill(t, 0)
				c := s.stand(t, d.open(t, 0, s.DSN()), election, append(opts, patient)...).run(t, nil)
				for i := range 3 {
					f := wait(t, c, func(f hooks.Failure) bool { return f.Attempt == i+1 })
					saysFull(t, f)
				}
				empty()
				c.elected(t)
			})
		})
	}
}

// With more elections than locks, as many as fit are led and stay led.
func TestAFullLockTableLimitsTheNumberOfLedElections(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := cramped(t)
		elections := s.elections(t, 300)
		empty := s.fill(t, 100)
		g := s.share(t, d.open(t, 0, s.DSN()), patient).join(t, elections[:20]).run(t, nil)
		eventually(t, "those that fit are led", func() bool { return g.leading() == 20 })
		var tokens []int64
		for _, e := range g.all {
			term := termOf(t, e)
			tokens = append(tokens, term.Token())
		}
		first := g.all
		g.all = nil
		g.join(t, elections[20:])
		stop := g.stop
		g.run(t, nil)
		defer stop()
		saysFull(t, next[hooks.Failure](t, g.rec.Cursor(), nil))
		eventually(t, "most of what fits is led", func() bool { return g.leading() >= 40 })
		for i, e := range first {
			if term, leading := e.Term(); !leading || term.Token() != tokens[i] {
				t.Errorf("election %d lost its term", i)
			}
		}
		for _, f := range g.rec.Failures() {
			saysFull(t, f)
		}
		if n := len(g.rec.Demoted()); n > 0 {
			t.Errorf("%d terms have ended, the first by %v", n, g.rec.Demoted()[0].Err)
		}
		empty()
		eventually(t, "what fits now is led", func() bool { return g.leading() >= 100 })
	})
}
