//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// Each check of the server takes two connections; the pool has fewer than two per elector.
func TestManyElectorsCheckTheServerThroughASmallPool(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		pool.SetMaxOpenConns(4)
		pool.SetMaxIdleConns(4)
		election := s.election(t)
		s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil).elected(t)
		var all []*candidate
		for range 40 {
			all = append(all, s.stand(t, pool, election)) // only a deadlock takes longer
		}
		for _, c := range all {
			c.run(t, nil)
		}
		for _, c := range all {
			c.follows(t)
			if n := len(c.rec.Failures()); n > 0 {
				t.Fatalf("%d failures, the first: %v", n, c.rec.Failures()[0].Err)
			}
		}
	})
}

// wrapped is a connector as in tracing and metrics libraries: its connections have only the
// methods that database/sql uses.
type wrapped struct{ driver.Connector }

func (w wrapped) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := w.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	able, ok := conn.(capable)
	if !ok {
		return nil, fmt.Errorf("%T lacks methods that database/sql uses", conn)
	}
	return struct{ capable }{able}, nil
}

// bare is an older such connector: its connections have only the required methods.
type bare struct{ driver.Connector }

func (b bare) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := b.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return struct{ driver.Conn }{conn}, nil
}

// unreset is a connector whose connections have all but ResetSession.
type unreset struct{ driver.Connector }

func (u unreset) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := wrapped(u).Connect(ctx)
	if err != nil {
		return nil, err
	}
	able := conn.(capable)
	return struct {
		driver.Conn
		driver.ConnBeginTx
		driver.ExecerContext
		driver.NamedValueChecker
		driver.QueryerContext
	}{able, able, able, able, able}, nil
}

// overWrappers runs a test with pools over a pgxpool, plain and wrapped.
func overWrappers(t *testing.T, test func(t *testing.T, open func(*pgxpool.Pool) *sql.DB)) {
	t.Helper()
	for name, wrap := range map[string]func(driver.Connector) driver.Connector{
		"as it is": func(c driver.Connector) driver.Connector { return c },
		"wrapped":  func(c driver.Connector) driver.Connector { return wrapped{c} },
		"bare":     func(c driver.Connector) driver.Connector { return bare{c} },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "bare" {
				inSessionScope(t, "it prepares statements")
			}
			test(t, func(below *pgxpool.Pool) *sql.DB {
				pool := sql.OpenDB(wrap(stdlib.GetPoolConnector(below)))
				pool.SetMaxIdleConns(0)
				t.Cleanup(func() { expect(t, pool.Close()) })
				return pool
			})
		})
	}
}

// pgxPool opens a pgxpool on the server.
func (s *server) pgxPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	below, err := pgxpool.New(t.Context(), s.DSN())
	check(t, err)
	t.Cleanup(below.Close)
	return below
}

// unspoilt fails the test if an idle connection of a pgxpool has changed settings, locks or an
// open transaction.
func unspoilt(t *testing.T, below *pgxpool.Pool) {
	t.Helper()
	for _, conn := range below.AcquireAllIdle(soon(t)) {
		var left []string
		check(t, conn.QueryRow(soon(t), `SELECT array(SELECT name || '=' || setting FROM pg_settings WHERE source = 'session' AND NOT $1)
			|| array(SELECT objid::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())`, throughPooler).Scan(&left)) // settings are what the pooler keeps for its clients
		if len(left) > 0 || conn.Conn().PgConn().TxStatus() != 'I' {
			t.Errorf("a connection of the pgxpool has changed settings or locks (transaction %c): %q", conn.Conn().PgConn().TxStatus(), left)
		}
		conn.Release()
	}
}

// Over a pgxpool, closing the driver's connection would only return it to that pool.
func TestASessionIsNotReturnedToAPgxpool(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]elector.Option{
		"released": nil,
		"held":     {elector.WithGracefulRelease(false)},
		"waiting":  inServer, // the server may log a wait that is cancelled just as it ends
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := quiet(t)
			overWrappers(t, func(t *testing.T, open func(*pgxpool.Pool) *sql.DB) {
				before, err := s.ServerLog()
				check(t, err)
				below := s.pgxPool(t)
				election := s.election(t)
				c := s.stand(t, open(below), election, opts...).run(t, nil)
				c.elected(t)
				follower := s.stand(t, open(below), election, opts...).run(t, nil)
				follower.follows(t)
				if name == "waiting" { // the server would log a wait that is cancelled as it begins
					s.waits(t, follower)
				}
				follower.end(t)
				c.end(t)
				unspoilt(t, below)
				// At once if it was released, otherwise when the server notices the closed connection.
				if pids := s.holders(t, c.Key()); len(pids) > 0 && name == "released" {
					t.Errorf("the lock is held after Run returned, by %v", pids)
				}
				eventually(t, "the lock is free", func() bool { return len(s.holders(t, c.Key())) == 0 })
				for _, f := range append(c.rec.Failures(), follower.rec.Failures()...) {
					t.Errorf("reported (%s): %v", f.Op, f.Err)
				}
				after, err := s.ServerLog()
				check(t, err)
				if said := errorsIn(after[len(before):]); len(said) > 0 && !(name == "waiting" && isLateCancel(said)) {
					t.Errorf("the server logged: %s", strings.Join(said, ""))
				}
			})
		})
	}
}

// A statement fails after the lock was granted; the connection still works.
func TestASessionThatMayHoldTheLockIsNotReturnedToAPgxpool(t *testing.T) {
	t.Parallel()
	overWrappers(t, func(t *testing.T, open func(*pgxpool.Pool) *sql.DB) {
		s := onShared(t)
		below := s.pgxPool(t)
		c := s.stand(t, open(below), s.election(t))
		release := keeps(t, s.admin, "SELECT pg_advisory_lock_shared($1, $2)", int32(c.Key()>>32), int32(c.Key()))
		c.run(t, nil)
		s.atTheBarrier(t, c.Key())
		_, err := s.admin.Exec("SELECT pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $1::bigint::oid", int64(uint32(c.Key())))
		check(t, err)
		wait(t, c, func(f hooks.Failure) bool { return f.Op == hooks.OpCampaign })
		release()
		c.elected(t)
		c.end(t)
		unspoilt(t, below)
	})
}
