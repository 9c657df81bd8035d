package electortest_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// A process may follow for years, and lead ten thousand times: nothing that ends
// leaves anything behind with what goes on.
func TestNothingOfAnAttemptOrATermIsKept(t *testing.T) {
	fit := elector.WithHealth(func(context.Context) float64 { return 1 }, elector.HealthPolicy{Interval: time.Hour})
	for name, once := range map[string]func(b *bench, e *elector.Elector){
		"attempts": func(b *bench, e *elector.Elector) { time.Sleep(10 * time.Millisecond) },
		"terms": func(b *bench, e *elector.Elector) {
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
						once(b, e)
					}
					return heap() - before
				}
				grown(300)
				const n = 1000
				if grew := grown(n); grew > 100*n {
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
