//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
)

// A fenced transaction compared with a plain one, and an election with a barrier compared
// with one without. docs/fencing.md says how many round trips each takes.
func BenchmarkFence(b *testing.B) {
	ctx := context.Background()
	for _, driver := range []string{"postgres", "pgx"} {
		pool, err := sql.Open(driver, shared.Get(b).DSN())
		check(b, err)
		defer pool.Close()
		e, err := elector.New(pool, unique("bench"))
		check(b, err)
		term, err := e.Campaign(ctx)
		check(b, err)
		defer term.Resign(ctx)
		bench := func(name string, fn func() error) {
			b.Run(driver+"/"+name, func(b *testing.B) {
				for b.Loop() {
					if err := fn(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		read := func(tx *sql.Tx) error { var n int; return tx.QueryRow("SELECT 1").Scan(&n) }
		bench("plain transaction", func() error {
			tx, err := pool.Begin()
			if err != nil {
				return err
			}
			if err := read(tx); err != nil {
				return err
			}
			return tx.Commit()
		})
		bench("InTx", func() error { return term.InTx(ctx, pool, nil, read) })
		conn, err := pool.Conn(ctx)
		check(b, err)
		defer conn.Close()
		key := elector.KeyFromName(unique("bench"))
		if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
			b.Fatal(err)
		}
		defer conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", key)
		var pid int32
		check(b, conn.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid))
		bench("Confirm, with the barrier", func() error {
			_, err := db.New(conn).Confirm(ctx, db.ConfirmParams{Pid: pid, Key: key, GuardHigh: int32(key >> 32), GuardLow: int32(key)})
			return err
		})
		bench("HoldsLock, without", func() error {
			_, err := db.New(conn).HoldsLock(ctx, db.HoldsLockParams{Pid: pid, Key: key})
			return err
		})
		bench("the guard lock alone", func() error {
			_, err := conn.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1, $2)", int32(key>>32), int32(key))
			return err
		})
		bench("SELECT alone", func() error { _, err := conn.ExecContext(ctx, "SELECT $1::int, $2::int", 1, 2); return err })
	}
}
