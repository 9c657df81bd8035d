//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// The network has forgotten the pool's idle connections: no packet comes back. New ones work. The context has
// no deadline, as the one that lead gets; the test's own only ends a test that fails.
func TestInTxGivesUpAConnectionThatIsSilent(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]time.Duration{"just used": 0, "idle for a while": 1500 * time.Millisecond} { // then pgx asks first
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				l := direct(t).behindAProxy(t)
				ledger := l.ledger(t)
				c, term := l.server.lead(t, d.open(t, 0, l.DSN()), l.election(t), elector.WithLease(20*lease))
				var address atomic.Pointer[string]
				lost, here := l.cut(), l.DSN()
				address.Store(&lost)
				pool := d.openMoving(t, 0, &address)
				t.Cleanup(l.proxy.Heal)
				leave(t, pool, "SELECT 1", 1)
				l.proxy.BlackHole()
				address.Store(&here)
				time.Sleep(idle)
				after := c.after()
				ctx, cancel := context.WithCancel(term.Context())
				defer cancel()
				defer time.AfterFunc(time.Minute, cancel).Stop()
				expect(t, term.InTx(ctx, pool, nil, note(ledger, "done")))
				l.notes(t, ledger, "done")
				failure := next(t, after, func(f hooks.Failure) bool { return f.Op == hooks.OpCall })
				wraps(t, failure.Err, elector.ErrNoAnswer)
				if !term.Valid() {
					t.Errorf("the term has ended: %v", context.Cause(term.Context()))
				}
			})
		})
	}
}

func TestInTxFindsThePrimaryOnAPoolThatAlsoLeadsToItsStandby(t *testing.T) {
	t.Parallel()
	primary, err := pgcluster.Start(t.Context())
	check(t, err)
	t.Cleanup(func() { expect(t, primary.Stop()) })
	standby, err := primary.AddStandby(t.Context())
	check(t, err)
	overEach(t, func(t *testing.T, d drivers) {
		s := withoutPooler(t, primary)
		ledger := s.ledger(t)
		_, term := s.lead(t, d.open(t, 0, s.DSN()), s.election(t), elector.WithLease(20*lease))
		for first, route := range map[string][]*pgcluster.Cluster{"the primary": {primary, standby}, "the standby": {standby, primary}} {
			l := s.behindAProxy(t)
			l.proxy.LeadTo(route...)
			pool := d.open(t, 0, l.cut())
			for i := range 5 {
				if err := term.InTx(soon(t), pool, nil, note(ledger, first)); err != nil {
					t.Errorf("first %s, InTx %d: %v", first, i, err)
				}
			}
			leave(t, pool, "SELECT 1", 4) // to both
			expect(t, term.InTx(soon(t), pool, nil, note(ledger, first)))
			if n := one[int](t, s.admin, "SELECT count(*)::int FROM "+ledger+" WHERE note = $1", first); n != 6 {
				t.Errorf("first %s: %d notes", first, n)
			}
		}
		elsewhere := d.open(t, 0, standby.DSN())
		err := term.InTx(soon(t), elsewhere, nil, func(*sql.Tx) error { t.Error("called"); return nil })
		wraps(t, err, elector.ErrRolledBack)
		wraps(t, err, elector.ErrServerReadOnly)
		if !term.Valid() {
			t.Errorf("the term has ended: %v", context.Cause(term.Context()))
		}
	})
}
