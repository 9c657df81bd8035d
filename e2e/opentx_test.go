//go:build unix

package e2e_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	kernel "github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/roster"
)

// leftOpen are transactions that other code left open on connections of the pool.
var leftOpen = map[string]string{
	"begun":               "BEGIN",
	"written":             "BEGIN; SELECT pg_current_xact_id()",
	"with old statistics": "BEGIN; SELECT * FROM pg_stat_activity",
	"with a snapshot":     "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM pg_stat_activity",
	"failed":              "BEGIN; SELECT 1/0",
}

// leave leaves transactions open on n idle connections of the pool.
func leave(t *testing.T, pool *sql.DB, statement string, n int) {
	t.Helper()
	pool.SetMaxIdleConns(n)
	var conns []*sql.Conn
	for range n {
		conn, err := pool.Conn(soon(t))
		check(t, err)
		for one := range strings.SplitSeq(statement, ";") {
			if _, err = conn.ExecContext(soon(t), one); err != nil && stateOf(err) != "22012" {
				t.Fatal(err)
			}
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		check(t, conn.Close())
	}
}

// openBehind opens a pool behind a wrapper that hides how pgx checks a connection before its reuse:
// connections come back as other code has left them.
func openBehind[W interface {
	~struct{ driver.Connector }
	driver.Connector
}](t *testing.T, d drivers, dsn string) *sql.DB {
	t.Helper()
	address := new(atomic.Pointer[string])
	address.Store(&dsn)
	pool := sql.OpenDB(W(struct{ driver.Connector }{moving{d.open(t, 0, dsn).Driver(), address}}))
	t.Cleanup(func() { expect(t, pool.Close()) })
	return pool
}

func TestNoSessionIsInsideATransactionThatOthersLeftOpen(t *testing.T) {
	inSessionScope(t, "its pools prepare statements")
	t.Parallel()
	modes := map[string][]elector.Option{"polling": nil, "waiting": {elector.WithTakeover(elector.Wait)},
		"in a transaction": {elector.WithScope(elector.TransactionScope)}}
	overEach(t, func(t *testing.T, d drivers) {
		s := quiet(t)
		for name, statement := range leftOpen {
			for mode, opts := range modes {
				for _, spoilt := range []int{1, 5} {
					t.Run(fmt.Sprint(name, " ", mode, " ", spoilt), func(t *testing.T) {
						pool := openBehind[bare](t, d, s.DSN())
						leave(t, pool, statement, spoilt)
						before, err := s.ServerLog()
						check(t, err)
						c := s.stand(t, pool, s.election(t), opts...)
						c.poolClosed = true // its pool is not usable
						term, err := c.Campaign(soon(t))
						check(t, err)
						inside := mode == "in a transaction"
						for _, f := range c.rec.Failures() {
							// lib/pq refuses to begin another, and says so by no SQLSTATE. On a busy machine a driver may take longer to close a connection.
							if f.Op != hooks.OpCall && (!inside || d.name(0) != "postgres") {
								t.Errorf("reported (%s): %v", f.Op, f.Err)
							}
						}
						if n := one[int](t, s.admin, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1
							AND (backend_xid IS NOT NULL OR state LIKE 'idle in%' AND NOT $2)`, c.CandidateID(), inside); n > 0 {
							t.Error("a session is inside a transaction of other code")
						}
						expect(t, term.Verify(soon(t)))
						expect(t, term.InTx(soon(t), s.admin, nil, func(*sql.Tx) error { return nil }))
						expect(t, term.Resign(soon(t)))
						after, err := s.ServerLog()
						check(t, err)
						if said := errorsIn(after[len(before):]); len(said) > 0 && spoilt == 1 && name != "failed" && !inside {
							t.Errorf("the server logged: %s", strings.Join(said, ""))
						}
					})
				}
			}
		}
	})
}

// A follower's attempts leave nothing in a transaction of other code that would keep its leader
// from offering the lock.
func TestALockIsTransferredToACandidateInATransactionThatOthersLeftOpen(t *testing.T) {
	inSessionScope(t, "its pools prepare statements")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		old := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil)
		old.elected(t)
		pool := openBehind[bare](t, d, s.DSN())
		successor := s.stand(t, pool, election, polling).run(t, nil)
		successor.poolClosed = true // its pool is not usable
		successor.follows(t)
		mark := unique("left-open")
		leave(t, pool, "BEGIN; SET LOCAL application_name = '"+mark+"'", 2)
		eventually(t, "an attempt begins in the transaction", func() bool {
			return one[bool](t, s.admin, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1 AND query LIKE '-- name: TryLock %')", mark)
		})
		next[hooks.Campaign](t, successor.after(), nil)
		expect(t, termOf(t, old).TransferTo(soon(t), successor.CandidateID()))
		successor.elected(t)
		for _, f := range successor.rec.Failures() {
			if errors.Is(f.Err, kernel.ErrAtBarrier) {
				t.Errorf("it was granted the lock in the transaction, and let it go: the leader could have been the next one (%s): %v", f.Op, f.Err)
			}
		}
	})
}

// Neither who looks nor who writes commits it, and an aborted one is in nobody's way.
func TestNobodyCommitsATransactionThatOthersLeftOpen(t *testing.T) {
	inSessionScope(t, "its pools prepare statements")
	t.Parallel()
	s := onShared(t)
	origin := hooks.Origin{Election: "orders", Key: 1, CandidateID: "web-1"}
	for name, act := range map[string]func(t *testing.T, pool *sql.DB, c *candidate, schema string) error{
		"looks": func(t *testing.T, pool *sql.DB, c *candidate, _ string) error {
			e, err := elector.New(pool, c.Election(), elector.WithLease(lease))
			check(t, err)
			_, err = e.Candidates(soon(t))
			return err
		},
		"asks": func(t *testing.T, pool *sql.DB, c *candidate, _ string) error {
			_, err := elector.RequestResign(soon(t), pool, c.Election())
			return err
		},
		"enters a term": func(t *testing.T, pool *sql.DB, c *candidate, _ string) (err error) {
			for range 3 { // each connection is of use once it was rolled back
				if err = termOf(t, c).InTx(soon(t), pool, nil, func(*sql.Tx) error { return nil }); err == nil {
					break
				}
			}
			return err
		},
		"looks into a roster": func(t *testing.T, pool *sql.DB, _ *candidate, schema string) error {
			r, err := roster.New(pool, roster.WithSchema(schema))
			check(t, err)
			_, err = r.Candidates(soon(t))
			return err
		},
		"writes a roster": func(t *testing.T, pool *sql.DB, _ *candidate, schema string) error {
			r, err := roster.New(pool, roster.WithSchema(schema))
			check(t, err)
			r.OnElected(t.Context(), hooks.Elected{Origin: origin, Token: 1, At: time.Now()})
			return r.Close(soon(t))
		},
		"makes a roster": func(t *testing.T, pool *sql.DB, _ *candidate, _ string) error {
			r, err := roster.New(pool, roster.WithSchema(s.schema(t)))
			check(t, err)
			return r.Migrate(soon(t))
		},
	} {
		for state, statement := range map[string]string{"going on": "SELECT 1", "failed": "SELECT 1/0"} {
			t.Run(name+" "+state, func(t *testing.T) {
				overEach(t, func(t *testing.T, d drivers) {
					ledger, schema := s.ledger(t), s.schema(t)
					rosterOn(t, s.admin, schema)
					c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t)).run(t, nil)
					c.elected(t)
					pool := openBehind[unreset](t, d, s.DSN())
					leave(t, pool, "BEGIN; INSERT INTO "+ledger+" VALUES ('left open'); "+statement, 2)
					if err := act(t, pool, c, schema); err != nil && d.name(0) != "postgres" { // lib/pq refuses to begin another
						t.Error(err)
					}
					s.notes(t, ledger)
				})
			})
		}
	}
}

// The test uses a shared session and a transaction of InTx.
func TestInTxUsesNoTransactionThatOthersLeftOpen(t *testing.T) {
	t.Parallel()
	s := quiet(t)
	for name, statement := range leftOpen {
		for _, spoilt := range []int{1, 5} {
			t.Run(fmt.Sprint(name, " ", spoilt), func(t *testing.T) {
				pool := pq.open(t, 0, s.DSN())
				leave(t, pool, statement, spoilt)
				g := s.share(t, pool).join(t, []string{s.election(t)})
				term, err := g.all[0].Campaign(soon(t))
				check(t, err)
				if in := list[string](t, s.admin, "SELECT state FROM pg_stat_activity WHERE application_name = $1 AND (backend_xid IS NOT NULL OR state LIKE 'idle in%')",
					g.CandidateID()); len(in) > 0 {
					t.Errorf("the session is %s", in)
				}
				leave(t, pool, statement, spoilt)
				ledger := s.ledger(t)
				for range spoilt + 1 {
					expect(t, term.InTx(soon(t), pool, nil, note(ledger, "in time")))
				}
				s.notes(t, ledger, slices.Repeat([]string{"in time"}, spoilt+1)...)
				expect(t, term.Resign(soon(t)))
				leave(t, pool, "SELECT 1", spoilt+2) // no other transaction is left open
			})
		}
	}
}
