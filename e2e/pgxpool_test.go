//go:build unix

package e2e_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/elector"
)

// Over a pgxpool, closing the driver's connection only returns it to that pool.
func TestASessionIsNotReturnedToAPgxpool(t *testing.T) {
	for name, opts := range map[string][]elector.Option{"released": nil, "held": {elector.WithGracefulRelease(false)}} {
		t.Run(name, func(t *testing.T) {
			s := onShared(t)
			below, err := pgxpool.New(t.Context(), s.DSN())
			check(t, err)
			t.Cleanup(below.Close)
			pool := stdlib.OpenDBFromPool(below)
			t.Cleanup(func() { expect(t, pool.Close()) })
			c := s.stand(t, pool, s.election(t), opts...).run(t, nil)
			c.elected(t)
			c.end(t)
			left := list[string](t, pool, "SELECT name || '=' || setting FROM pg_settings WHERE source = 'session'")
			if len(left) > 0 {
				t.Errorf("a connection of the pgxpool has settings of ours: %q", left)
			}
			// At once if it was released; if not, as soon as the server sees that the connection is closed.
			if pids := s.holders(t, c.Key()); len(pids) > 0 && name == "released" {
				t.Errorf("the lock is held after Run returned, by %v", pids)
			}
			eventually(t, "the lock is free", func() bool { return len(s.holders(t, c.Key())) == 0 })
		})
	}
}
