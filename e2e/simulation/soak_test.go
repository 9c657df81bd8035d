package simulation

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// Three candidates hand an election on, about each minute, for six hours.
func TestHoursOfElectionsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		ctx, stop := context.WithCancel(t.Context())
		terms, done := make(chan int), make(chan error)
		for _, standby := range []elector.Standby{elector.Deputy, elector.Wait, elector.Poll} {
			pool := server.Open()
			defer pool.Close()
			e := must(elector.New(pool, "orders", elector.WithLease(30*time.Second), elector.WithRetryInterval(5*time.Second), elector.WithStandby(standby)))
			go func() {
				for ctx.Err() == nil {
					_ = e.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
						terms <- 1
						sleep(ctx, time.Minute)
						return nil
					})
					sleep(ctx, 20*time.Second)
				}
				done <- nil
			}()
		}
		n := 0
		elect := func(most int, d time.Duration) used {
			for end := time.Now().Add(d); n < most && time.Now().Before(end); n++ {
				<-terms
			}
			return usedNow(server)
		}
		early := elect(20, time.Hour)
		late := elect(1<<30, 6*time.Hour)
		if n < 250 {
			t.Errorf("%d terms in six hours", n)
		}
		if late.goroutines > early.goroutines+10 || late.connections > early.connections+3 || late.heap > 2*early.heap+1<<20 {
			t.Errorf("after %d terms: %+v, after the first: %+v", n, late, early)
		}
		t.Logf("%d terms; used %+v, at the beginning %+v", n, late, early)
		stop()
		for range 3 {
			<-done
		}
	})
}

// used is what is in use at a moment.
type used struct {
	goroutines, connections int
	heap                    uint64 // bytes
}

func usedNow(server *electortest.Server) used {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return used{goroutines: runtime.NumGoroutine(), connections: server.Connections(), heap: m.HeapAlloc}
}
