//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"os"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/elector"
)

// serverPool is a pool of the server that PGELECTOR_BENCH_DSN names, or of a
// throw-away one.
func serverPool(b *testing.B) *sql.DB {
	b.Helper()
	dsn := os.Getenv("PGELECTOR_BENCH_DSN")
	if dsn == "" {
		dsn = shared.Get(b).DSN()
	}
	pool, err := sql.Open("pgx", dsn)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = pool.Close() })
	return pool
}

func benchCandidate(b *testing.B) *elector.Elector {
	b.Helper()
	e, err := elector.New(serverPool(b), "bench")
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// A Verify is one statement on the session, as a heartbeat is, and reads
// pg_locks besides.
func BenchmarkVerify(b *testing.B) {
	term, err := benchCandidate(b).Campaign(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = term.Resign(context.Background()) }()
	for b.Loop() {
		if err := term.Verify(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// What a follower costs the server, once per retry interval.
func BenchmarkAttemptWhileAnotherLeads(b *testing.B) {
	term, err := benchCandidate(b).Campaign(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = term.Resign(context.Background()) }()
	follower := benchCandidate(b)
	for b.Loop() {
		if _, elected, err := follower.TryCampaign(b.Context()); elected || err != nil {
			b.Fatal(elected, err)
		}
	}
}

// A whole election and resignation, with the new connection that it takes.
func BenchmarkElectionAndResignation(b *testing.B) {
	e := benchCandidate(b)
	for b.Loop() {
		term, err := e.Campaign(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := term.Resign(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
