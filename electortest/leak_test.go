package electortest_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// A process may follow for years, and lead ten thousand times.
func TestAttemptsAndTermsLeaveNothingBehind(t *testing.T) {
	failed := errors.New("failed")
	resigns := func(b *bench, p process) { b.wraps(p.leads(b).Resign(context.Background())) }
	for name, once := range map[string]func(b *bench, p process){
		"attempts":                  func(b *bench, p process) { time.Sleep(10 * time.Millisecond) },
		"terms":                     resigns,
		"terms of a shared session": resigns,
		"functions": func(b *bench, p process) {
			if ran, err := p.RunIfLeader(p.ctx, func(context.Context) error { return nil }); !ran || err != nil {
				b.Errorf("ran %v, %v", ran, err)
			}
		},
		"transactions": func(b *bench, p process) {
			b.wraps(p.leads(b).InTx(p.ctx, p.pool, nil, func(*sql.Tx) error { return nil }))
		},
		"transactions that fail": func(b *bench, p process) {
			b.wraps(p.leads(b).InTx(p.ctx, p.pool, nil, func(*sql.Tx) error { return failed }), failed)
		},
		"transactions that are refused": func(b *bench, p process) {
			b.wraps(p.leads(b).InTx(p.ctx, p.elsewhere, nil, func(*sql.Tx) error { return nil }), elector.ErrRolledBack)
		},
		"transactions that do not begin": func(b *bench, p process) {
			ended, cancel := context.WithCancel(p.ctx)
			cancel()
			b.wraps(p.leads(b).InTx(ended, p.pool, nil, func(*sql.Tx) error { return nil }), context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				pool := b.Open()
				defer pool.Close()
				other := electortest.NewServer()
				defer other.Close()
				elsewhere := other.Open()
				defer elsewhere.Close()
				ctx, stop := context.WithCancel(context.Background()) // as long as the process lives
				defer stop()
				if name == "attempts" {
					other := b.run("other")
					b.leads(other)
				}
				session, err := elector.NewSession(pool, elector.WithRetryInterval(10*time.Millisecond))
				b.wraps(err)
				fit := elector.WithHealth(func(context.Context) float64 { return 1 }, elector.HealthPolicy{Interval: time.Hour})
				e, err := elector.New(pool, "orders", fit, elector.WithRetryInterval(10*time.Millisecond))
				if name == "terms of a shared session" {
					e, err = session.Elector("orders", fit)
				}
				b.wraps(err)
				b.wraps(e.Start(ctx))
				time.Sleep(time.Second)
				grown := func(n int) int64 {
					before := heap()
					for range n {
						once(b, process{e, pool, elsewhere, ctx})
						synctest.Wait() // a slow machine must not run more and more goroutines
					}
					time.Sleep(time.Second) // until everything under way has ended
					return heap() - before
				}
				grown(300)
				const n, noise = 2000, 50_000
				if grew := grown(n); grew > noise {
					b.Errorf("%d %s have left %d bytes", n, name, grew)
				}
				b.wraps(e.Stop(context.Background()))
				b.wraps(session.Close(context.Background()))
			})
		})
	}
}

type process struct {
	*elector.Elector
	pool, elsewhere *sql.DB // on the election's server and on another
	ctx             context.Context
}

// leads waits for its term.
func (p process) leads(b *bench) *elector.Term {
	for !p.IsLeader() {
		time.Sleep(time.Millisecond)
	}
	term, _ := p.Term()
	return term
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
