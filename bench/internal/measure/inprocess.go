package measure

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/servers"
	"github.com/pgelector/pgelector/elector"
)

const inProcessSeconds = 12

// inProcess measures calls in this process with testing.Benchmark.
func (r *run) inProcess(ctx context.Context) error {
	for _, driver := range []struct{ name, label string }{{"pgx", "pgx"}, {"postgres", "lib/pq"}} {
		pool, err := sql.Open(driver.name, r.servers.DSN(r.servers.PG, servers.Leader, "inprocess"))
		if err != nil {
			return err
		}
		err = r.calls(ctx, pool, driver.label)
		if err := pool.Close(); err != nil {
			return err
		}
		if err != nil {
			return err
		}
		r.progress.done(inProcessSeconds/2, "in process, "+driver.label)
	}
	return nil
}

func (r *run) calls(ctx context.Context, pool *sql.DB, label string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	e, err := elector.New(pool, r.servers.Name("inprocess"))
	if err != nil {
		return err
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		return err
	}
	r.bench("time.Now, which IsLeader calls", false, func() error { _ = time.Now(); return nil })
	r.bench(results.IsLeader, false, func() error { e.IsLeader(); return nil })
	r.bench("Term.Valid", false, func() error { term.Valid(); return nil })
	r.bench("a heartbeat (Term.Verify: one round trip), "+label, true, func() error { return term.Verify(ctx) })
	r.bench(results.RoundTrip+label, true, func() error { _, err := pool.ExecContext(ctx, "SELECT 1"); return err })
	flush := func() error {
		_, err := pool.ExecContext(ctx, "SELECT pg_catalog.pg_logical_emit_message(true, 'bench', '')")
		return err
	}
	r.bench(results.Flush+label, true, flush)
	r.benchIdle(results.IdleFlush+label, flush)
	if err := term.Resign(ctx); err != nil {
		return err
	}
	r.bench("IsLeader, following", false, func() error { e.IsLeader(); return nil })
	r.bench("a successful campaign and its resignation (on a new connection), "+label, true, func() error {
		term, elected, err := e.TryCampaign(ctx)
		if err != nil || !elected {
			return fmt.Errorf("campaign: elected %v, %w", elected, err)
		}
		return term.Resign(ctx)
	})
	return ctx.Err()
}

// bench adds the result of a benchmark, unless it has one of that name.
func (r *run) bench(name string, server bool, call func() error) {
	for _, done := range r.all.InProcess {
		if done.Name == name {
			return
		}
	}
	var failed error
	b := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if failed = call(); failed != nil {
				b.FailNow()
			}
		}
	})
	if failed != nil {
		r.progress.skipped(fmt.Errorf("%s: %w", name, failed))
		return
	}
	r.add(func(all *results.Results) {
		all.InProcess = append(all.InProcess, results.InProcess{Name: name, NsOp: float64(b.T.Nanoseconds()) / float64(b.N),
			AllocsOp: b.AllocsPerOp(), BytesOp: b.AllocedBytesPerOp(), Repetitions: b.N, Server: server})
	})
}

// benchIdle adds the median of calls with pauses between them. Without pauses a call takes a fourth: the processors
// sleep, and their caches have been used by others.
func (r *run) benchIdle(name string, call func() error) {
	const samples, pause = 31, 100 * time.Millisecond
	times := make([]float64, samples)
	for i := range times {
		time.Sleep(pause)
		began := time.Now()
		if err := call(); err != nil {
			r.progress.skipped(fmt.Errorf("%s: %w", name, err))
			return
		}
		times[i] = float64(time.Since(began))
	}
	slices.Sort(times)
	r.add(func(all *results.Results) {
		all.InProcess = append(all.InProcess, results.InProcess{Name: name, NsOp: times[samples/2], AllocsOp: -1, BytesOp: -1, Repetitions: samples, Server: true})
	})
}
