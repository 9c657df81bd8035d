//go:build unix

package examples_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/XSAM/otelsql"
	checks "github.com/alexliesenfeld/health"
	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/rivermigrate"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/examples"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks"
)

type report struct{}

func (report) Kind() string { return "report" }

func TestOnlyTheLeaderInsertsJobsOfRiverAndOncePerPeriod(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		driver := riverdatabasesql.New(pool)
		migrator, err := rivermigrate.New(driver, nil)
		check(t, err)
		_, err = migrator.Migrate(soon(t), rivermigrate.DirectionUp, nil)
		check(t, err)
		client, err := river.NewClient(driver, &river.Config{})
		check(t, err)
		count := func() (n int) {
			check(t, pool.QueryRowContext(soon(t), "SELECT count(*) FROM river_job").Scan(&n))
			return n
		}
		const period = time.Hour
		first, second := newCandidate(t, pool, "first"), newCandidate(t, pool, "second")
		stop := inBackground(t, func(ctx context.Context) error {
			return first.Run(ctx, examples.InsertJobs(pool, client, period, report{}))
		})
		eventually(t, "the leader inserts a job", func() bool { return count() > 0 })
		begun := time.Now()
		_ = stop()
		tried := make(chan struct{})
		_ = inBackground(t, func(ctx context.Context) error {
			return second.Run(ctx, func(ctx context.Context, term *elector.Term) error {
				ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				defer close(tried)
				return examples.InsertJobs(pool, client, period, report{})(ctx, term)
			})
		})
		receive(t, "the next leader has tried, too", tried)
		if n := count(); n != 1 && begun.Truncate(period) == time.Now().Truncate(period) {
			t.Errorf("%d jobs in one period", n)
		}
	})
}

func TestTheLeaderRunsTheSchedulerOfAsynq(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		redis := asynq.RedisClientOpt{Addr: miniredis.RunT(t).Addr()}
		inspector := asynq.NewInspector(redis)
		defer inspector.Close()
		c := newCandidate(t, pool, "this")
		stop := inBackground(t, func(ctx context.Context) error {
			return c.Run(ctx, examples.ScheduleTasks(redis, func(s *asynq.Scheduler) error {
				_, err := s.Register("@every 1s", asynq.NewTask("report", nil))
				return err
			}))
		})
		scheduled := func() int {
			entries, err := inspector.SchedulerEntries()
			check(t, err)
			return len(entries)
		}
		eventually(t, "the leader schedules the task", func() bool { return scheduled() > 0 })
		_ = stop()
		if n := scheduled(); n != 0 {
			t.Errorf("%d tasks are scheduled after the term", n)
		}
	})
}

func TestProbesAndChecksTellWhetherSomebodyLeads(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		monitor, err := health.New(pool)
		check(t, err)
		c := newCandidate(t, pool, "this")
		check(t, monitor.Add(c.Elector))
		app := examples.WithProbes(http.NotFoundHandler(), monitor)
		status := func(path string) int {
			answer := httptest.NewRecorder()
			app.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			return answer.Code
		}
		checker := checks.NewChecker(checks.WithCacheDuration(0), checks.WithCheck(checks.Check{Name: "elections", Check: examples.CheckElections(monitor)}))
		if got := checker.Check(soon(t)).Status; got != checks.StatusDown {
			t.Errorf("nobody leads, and the check says %s", got)
		}
		c.start(t)
		wait[hooks.Elected](t, c, nil)
		if got := checker.Check(soon(t)).Status; got != checks.StatusUp {
			t.Errorf("this process leads, and the check says %s", got)
		}
		for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusOK, "/orders": http.StatusNotFound} {
			if got := status(path); got != want {
				t.Errorf("%s: %d, want %d", path, got, want)
			}
		}
	})
}

func TestElectionsOverPgxpoolAndTraced(t *testing.T) {
	dsn := database(t)
	below, err := pgxpool.New(t.Context(), dsn)
	check(t, err)
	t.Cleanup(below.Close)
	over := examples.OverPgxpool(below)
	t.Cleanup(func() { check(t, over.Close()) })
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	traced, err := examples.Traced("pgx", dsn, otelsql.WithTracerProvider(provider))
	check(t, err)
	t.Cleanup(func() { check(t, traced.Close()) })
	first := lead(t, over, "first")
	second := newCandidate(t, traced, "second")
	second.start(t)
	awaitBusy(t, second)
	check(t, first.Stop(soon(t)))
	wait[hooks.Elected](t, second, nil)
	check(t, second.Stop(soon(t)))
	if len(spans.GetSpans()) == 0 {
		t.Error("no statement was traced")
	}
}
