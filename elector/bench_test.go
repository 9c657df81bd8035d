package elector_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// lead returns a leader on a server in memory.
func lead(b *testing.B) *elector.Elector {
	b.Helper()
	server := electortest.NewServer()
	b.Cleanup(server.Close)
	pool := server.Open()
	b.Cleanup(func() { _ = pool.Close() })
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
