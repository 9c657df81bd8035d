//go:build unix

package elector_test

import (
	"context"
	"database/sql"
	"os"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/pgcluster"
)

// lead makes a leader on a mock.
func lead(b *testing.B) *elector.Elector {
	b.Helper()
	pool, mock, err := sqlmock.New()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = pool.Close() })
	expectTerm(mock, 1)
	// An hour is more than a benchmark takes, so no heartbeat falls into it.
	e, err := elector.New(pool, "orders", elector.WithLease(24*time.Hour), elector.WithHeartbeatInterval(time.Hour))
	if err != nil {
		b.Fatal(err)
	}
	term, err := e.Campaign(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = term.Resign(context.Background()) })
	return e
}

// The goal is less than 100 ns and no allocation. All but some 40 ns of it is one
// time.Now, which takes 50 to 100 ns on a virtual machine.
func BenchmarkIsLeader(b *testing.B) {
	e := lead(b)
	b.ReportAllocs()
	for b.Loop() {
		if !e.IsLeader() {
			b.Fatal("not leading")
		}
	}
}

func BenchmarkIsLeaderInParallel(b *testing.B) {
	e := lead(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !e.IsLeader() {
				b.Error("not leading")
			}
		}
	})
}

func TestIsLeaderDoesNotAllocate(t *testing.T) {
	var allocs float64
	testing.Benchmark(func(b *testing.B) {
		if b.N == 1 {
			e := lead(b)
			allocs = testing.AllocsPerRun(1000, func() { _ = e.IsLeader() })
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

var shared = pgcluster.NewShared()

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

func candidate(b *testing.B) *elector.Elector {
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
	term, err := candidate(b).Campaign(b.Context())
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
	term, err := candidate(b).Campaign(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = term.Resign(context.Background()) }()
	follower := candidate(b)
	for b.Loop() {
		if _, elected, err := follower.TryCampaign(b.Context()); elected || err != nil {
			b.Fatal(elected, err)
		}
	}
}

// A whole election and resignation, with the new connection that it takes.
func BenchmarkElectionAndResignation(b *testing.B) {
	e := candidate(b)
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
