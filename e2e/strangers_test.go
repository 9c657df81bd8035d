//go:build unix

package e2e_test

import (
	"context"
	"sync"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
)

// Strangers who share the pooler move its clients about, or happen not to.
func TestABusyPoolerThatSharesBackendsIsRefused(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	for _, size := range []int{2, 4} {
		b := bounced(t, s.Cluster, pgcluster.Transaction, pgcluster.WithPoolSize(size))
		ctx, cancel := context.WithCancel(t.Context())
		var strangers sync.WaitGroup
		for i := range 6 * size { // so many that some always wait for a backend, even if we get no processor for a while
			pool := pq.open(t, i, b.DSN())
			strangers.Go(func() {
				for ctx.Err() == nil {
					_, _ = pool.ExecContext(ctx, "SELECT pg_sleep(0.004)")
				}
			})
		}
		for range 20 {
			for _, opts := range [][]pgcluster.DSNOption{waysToAsk["pgx simple"], waysToAsk["pgx exec"]} {
				pool := pgx.open(t, 0, b.DSN(opts...))
				e, err := elector.New(pool, s.election(t), elector.WithLease(lease))
				check(t, err)
				term, err := e.Campaign(soon(t))
				if err == nil {
					t.Errorf("elected through a pooler of %d backends", size)
					expect(t, term.Resign(soon(t)))
					continue
				}
				wraps(t, err, elector.ErrSessionPooled)
			}
		}
		cancel()
		strangers.Wait()
	}
}
