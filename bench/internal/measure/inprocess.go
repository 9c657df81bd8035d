package measure

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
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
	for _, by := range []struct{ name, label string }{{"pgx", "pgx"}, {"postgres", "lib/pq"}} {
		pool, err := sql.Open(by.name, r.servers.DSN(r.servers.PG, servers.Leader, "inprocess"))
		if err != nil {
			return err
		}
		err = r.calls(ctx, pool, by.label)
		if err == nil && by.name == "pgx" {
			err = errors.Join(r.statement(ctx, results.EndedWait, pool), r.statement(ctx, results.NoWait, sql.OpenDB(deaf{pool.Driver(), r.servers.DSN(r.servers.PG, servers.Leader, "inprocess")})))
		}
		if err := pool.Close(); err != nil {
			return err
		}
		if err != nil {
			return err
		}
		r.progress.done(inProcessSeconds/2, "in process, "+by.label)
	}
	return nil
}

// statement measures a statement of a leader that was idle before.
func (r *run) statement(ctx context.Context, name string, pool *sql.DB) error {
	defer pool.Close()
	e, err := elector.New(pool, r.servers.Name("statement"))
	if err != nil {
		return err
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		return err
	}
	r.benchIdle(name, func() error { return term.Verify(ctx) })
	return term.Resign(ctx)
}

// deaf makes connections that cannot be waited on: the elector does not know their type.
type deaf struct {
	driver driver.Driver
	dsn    string
}

type full interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
}

func (d deaf) Driver() driver.Driver { return d.driver }

func (d deaf) Connect(context.Context) (driver.Conn, error) {
	conn, err := d.driver.Open(d.dsn)
	if err != nil {
		return nil, err
	}
	return struct{ full }{conn.(full)}, nil
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
