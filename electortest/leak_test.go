package electortest_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// A process may follow for years, and lead ten thousand times: nothing that ends
// leaves anything behind with what goes on.
func TestNothingOfAnAttemptOrATermIsKept(t *testing.T) {
	fit := elector.WithHealth(func(context.Context) float64 { return 1 }, elector.HealthPolicy{Interval: time.Hour})
	for name, once := range map[string]func(b *bench, pool *sql.DB, e *elector.Elector){
		"attempts": func(b *bench, pool *sql.DB, e *elector.Elector) { time.Sleep(10 * time.Millisecond) },
		"transactions that fail": func(b *bench, pool *sql.DB, e *elector.Elector) {
			term, leading := e.Term()
			if !leading {
				b.Error("leads no more")
				return
			}
			failed := errors.New("failed")
			b.wraps(term.InTx(context.Background(), pool, nil, func(*sql.Tx) error { return failed }), failed)
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			b.wraps(term.InTx(ended, pool, nil, func(*sql.Tx) error { return nil }), context.Canceled)
		},
		"terms": func(b *bench, pool *sql.DB, e *elector.Elector) {
			for !e.IsLeader() {
				time.Sleep(time.Millisecond)
			}
			term, _ := e.Term()
			_ = term.Resign(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				pool := b.Open()
				defer pool.Close()
				if name == "attempts" {
					other := b.run("other")
					b.leads(other)
				}
				e, err := elector.New(pool, "orders", fit, elector.WithRetryInterval(10*time.Millisecond))
				b.wraps(err)
				b.wraps(e.Start(context.Background()))
				time.Sleep(time.Second)
				grown := func(n int) int64 {
					before := heap()
					for range n {
						once(b, pool, e)
					}
					time.Sleep(time.Second) // for what is under way
					return heap() - before
				}
				grown(300)
				const n, noise = 2000, 300_000
				if grew := grown(n); grew > noise {
					b.Errorf("%d %s have left %d bytes", n, name, grew)
				}
				b.wraps(e.Stop(context.Background()))
			})
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
