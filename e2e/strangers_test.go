//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
)

// Other clients of the pooler make it switch backends, though not always.
func TestABusyTransactionPoolerIsRefused(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	for _, size := range []int{2, 4} {
		b := bounced(t, s.Cluster, pgcluster.Transaction, pgcluster.WithPoolSize(size))
		ctx, cancel := context.WithCancel(t.Context())
		var strangers sync.WaitGroup
		for i := range 6 * size { // enough that some always wait for a backend, even if this process is not scheduled for a while
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
				e, err := elector.New(pool, s.election(t), elector.WithLease(lease), elector.WithScope(elector.SessionScope))
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

// interrupted is a connector that counts the statements of its connections. It calls before
// with the number of each statement, starting at 0.
type interrupted struct {
	driver.Connector
	asked  *atomic.Int32
	before func(n int)
}

func (i interrupted) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := wrapped{i.Connector}.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return interruptedConn{conn.(capable), i}, nil
}

type interruptedConn struct {
	capable
	by interrupted
}

func (c interruptedConn) ask() { c.by.before(int(c.by.asked.Add(1)) - 1) }

func (c interruptedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.ask()
	return c.capable.QueryContext(ctx, query, args)
}

func (c interruptedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.ask()
	return c.capable.ExecContext(ctx, query, args)
}

func (c interruptedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.ask()
	return c.capable.PrepareContext(ctx, query)
}

func (c interruptedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.ask()
	return c.capable.BeginTx(ctx, opts)
}

// openInterrupted opens the i-th candidate's pool, which calls before for each statement.
func (d drivers) openInterrupted(t *testing.T, i int, dsn string, before func(n int)) *sql.DB {
	t.Helper()
	var address atomic.Pointer[string]
	address.Store(&dsn)
	pool := sql.OpenDB(interrupted{moving{d.open(t, i, dsn).Driver(), &address}, new(atomic.Int32), before})
	t.Cleanup(func() { expect(t, pool.Close()) })
	return pool
}

// A stranger can make a pooler of two backends look like the server itself: it keeps one while
// one connection of the check asks, and gives it back for the other. The check sees its use.
func TestAStrangerThatSortsTheBackendsHidesNoTransactionPooler(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		b := bounced(t, s.Cluster, pgcluster.Transaction)
		stranger := pq.open(t, 0, b.DSN())
		var kept *sql.Tx
		keep := func(keeps bool) {
			var err error
			switch {
			case keeps && kept == nil:
				kept, err = stranger.BeginTx(soon(t), nil)
			case !keeps && kept != nil:
				err, kept = kept.Rollback(), nil
			}
			expect(t, err)
		}
		for during := range 16 { // a bit for each of the first statements
			pool := d.openInterrupted(t, 0, b.DSN(waysToAsk["pgx exec"]...), func(n int) { keep(during>>n&1 == 1) })
			e, err := elector.New(pool, s.election(t), elector.WithLease(lease), elector.WithScope(elector.SessionScope))
			check(t, err)
			_, elected, err := e.TryCampaign(soon(t))
			keep(false)
			if elected || !errors.Is(err, elector.ErrSessionPooled) {
				t.Errorf("with a stranger during %04b: elected %v, %v", during, elected, err)
			}
		}
	})
}

// PgBouncer reports a cut server connection with the same error as a transaction that its
// mode does not allow: FATAL, 08P01.
func TestACutConnectionBehindASessionPoolerIsATemporaryFailure(t *testing.T) {
	t.Parallel()
	modes := map[string][]elector.Option{"polling": nil, "waiting": {elector.WithStandby(elector.Wait)}}
	waits := map[string]time.Duration{"before it is noticed": 0, "when it was noticed": 30 * time.Millisecond}
	overEach(t, func(t *testing.T, d drivers) {
		for mode, opts := range modes {
			for when, wait := range waits {
				t.Run(mode+" "+when, func(t *testing.T) {
					t.Parallel()
					cutAtEachStatement(t, d, wait, append(opts, elector.WithBackoff(10*time.Millisecond, 50*time.Millisecond)))
				})
			}
		}
	})
}

// cutAtEachStatement campaigns through a pooler whose connections to the server are cut
// before one statement and before the next.
func cutAtEachStatement(t *testing.T, d drivers, wait time.Duration, opts []elector.Option) {
	l := behindARoute(t)
	b, err := pgcluster.NewBouncer(t.Context(), l.proxy.Addr(), pgcluster.Session, pgcluster.WithPoolSize(40))
	if errors.Is(err, pgcluster.ErrNoBouncer) {
		t.Skip(err)
	}
	check(t, err)
	t.Cleanup(func() { expect(t, b.Stop()) })
	for n := range 13 { // the statements of a check and an election
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var over atomic.Bool
			pool := d.openInterrupted(t, 0, b.DSN(), func(asked int) {
				if !over.Load() && (asked == n || asked == n+1) { // the second cut hits the new connections
					l.proxy.Reset()
					time.Sleep(wait)
				}
			})
			c := l.server.stand(t, pool, l.election(t), opts...)
			c.shared = true
			term, err := c.Campaign(soon(t))
			over.Store(true)
			check(t, err)
			_ = term.Resign(soon(t)) // its connection may also have been cut
		})
	}
}
