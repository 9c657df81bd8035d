//go:build unix

package examples_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/XSAM/otelsql"
	checks "github.com/alexliesenfeld/health"
	"github.com/alicebob/miniredis/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/examples"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/robfig/cron/v3"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// task reports its start and its end. It returns when its context has ended and letGo is closed.
type task struct {
	runs, ended chan struct{}
	letGo       chan struct{}
}

func newTask() task {
	t := task{runs: make(chan struct{}, 100), ended: make(chan struct{}, 100), letGo: make(chan struct{})}
	close(t.letGo)
	return t
}

func (t task) run(ctx context.Context) error {
	t.runs <- struct{}{}
	<-ctx.Done()
	<-t.letGo
	t.ended <- struct{}{}
	return ctx.Err()
}

func TestTheTasksOfATermEndTogetherAndThenTheNextLeads(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		one, two := newTask(), newTask()
		two.letGo = make(chan struct{}) // it does not return yet
		failure, fails := errors.New("a task failed"), make(chan struct{})
		failing := func(context.Context) error { <-fails; return failure }
		first, second := newCandidate(t, pool, "first"), newCandidate(t, pool, "second")
		returned := make(chan error, 1)
		go func() {
			returned <- first.Run(context.Background(), examples.LeadTasks(one.run, two.run, failing))
		}()
		receive(t, "the first task runs", one.runs)
		receive(t, "the second task runs", two.runs)
		second.start(t)
		awaitBusy(t, second)
		close(fails)
		receive(t, "the first task is cancelled", one.ended)
		if second.IsLeader() {
			t.Error("another leads while a task of the previous term runs")
		}
		close(two.letGo)
		if err := receive(t, "Run returns", returned); !errors.Is(err, failure) {
			t.Errorf("got %v, want the task's error", err)
		}
		wait[hooks.Elected](t, second, nil)
	})
}

func TestTheDeputysLoadingEndsWithItsSeat(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		lead(t, pool, "leader")
		loading, ended := make(chan struct{}), make(chan struct{})
		warm := &examples.Warm[string]{Load: func(ctx context.Context) (string, error) {
			close(loading)
			<-ctx.Done()
			close(ended)
			return "", ctx.Err()
		}}
		e, err := elector.New(pool, "example", elector.WithCandidateID("deputy"), elector.WithHooks(warm))
		check(t, err)
		stop := inBackground(t, func(ctx context.Context) error {
			return warm.Run(ctx, e, func(context.Context, *elector.Term, string) error { return nil })
		})
		receive(t, "the deputy loads", loading)
		_ = stop()
		receive(t, "the loading ends", ended)
	})
}

func TestServeRunsOnEveryProcessAndEndsWithoutAnError(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		serves, leads := newTask(), newTask()
		other := lead(t, pool, "other")
		c := newCandidate(t, pool, "this")
		stop := inBackground(t, func(ctx context.Context) error {
			return examples.Serve(ctx, c.Elector, serves.run, examples.LeadTasks(leads.run))
		})
		receive(t, "the service runs while another leads", serves.runs)
		awaitBusy(t, c)
		if len(leads.runs) > 0 {
			t.Error("the leader's task runs while another leads")
		}
		check(t, other.Stop(soon(t)))
		receive(t, "the leader's task runs", leads.runs)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A group of tasks returns its first error, and at a shutdown that is the end of the context.
func TestAFailureDuringTheShutdownIsReturned(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		failure := errors.New("not saved")
		serves, leads, ended := newTask(), newTask(), make(chan struct{})
		c := newCandidate(t, pool, "this")
		stop := inBackground(t, func(ctx context.Context) error {
			serve := func(ctx context.Context) error {
				defer close(ended)
				return serves.run(ctx)
			}
			save := func(ctx context.Context) error {
				<-ctx.Done()
				<-ended
				<-leads.ended
				time.Sleep(100 * time.Millisecond) // the others have returned
				return failure
			}
			return examples.Serve(ctx, c.Elector, serve, examples.LeadTasks(leads.run, save))
		})
		receive(t, "the leader's task runs", leads.runs)
		receive(t, "the service runs", serves.runs)
		if err := stop(); !errors.Is(err, failure) {
			t.Errorf("got %v", err)
		}
	})
}

func TestATaskThatEndsByAContextOfItsOwnHasFailed(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		failing := func(context.Context) error { return fmt.Errorf("a request of the service: %w", context.Canceled) }
		c := newCandidate(t, pool, "this")
		if err := examples.Serve(soon(t), c.Elector, failing, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestServeReturnsWhatFailed(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		failure := errors.New("the service failed")
		c := newCandidate(t, pool, "this")
		err := examples.Serve(soon(t), c.Elector, func(context.Context) error { return failure }, nil)
		if !errors.Is(err, failure) {
			t.Errorf("got %v", err)
		}
	})
}

func TestACrontabOfGocronIsAScheduleOfTicks(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		logged(t)
		if _, err := examples.GocronSchedule("no crontab", time.UTC); err == nil {
			t.Error("no error")
		}
		zone, err := time.LoadLocation("America/New_York")
		check(t, err)
		daily, err := examples.GocronSchedule("0 3 * * *", zone)
		check(t, err)
		if at := daily.Next(time.Now()).In(zone); at.Hour() != 3 {
			t.Errorf("the next tick is at %v", at)
		}
		local, err := examples.GocronSchedule("0 3 * * *", time.FixedZone("Local", -5*3600)) // as time.Local is named
		check(t, err)
		if at := local.Next(time.Now().UTC()).UTC(); at.Hour() != 8 {
			t.Errorf("in the zone of the process, the next tick is at %v", at)
		}
		schedule, err := examples.GocronSchedule("@every 1s", time.UTC)
		check(t, err)
		done := make(chan time.Time, 10)
		nightly, err := examples.Nightly(t.Context(), pool, "nightly", schedule, func(_ context.Context, _ *sql.Tx, at time.Time) error {
			done <- at
			return nil
		})
		check(t, err)
		c := newCandidate(t, pool, "this")
		inBackground(t, func(ctx context.Context) error { return c.Run(ctx, nightly.Lead) })
		first, second := receive(t, "a tick is done", done), receive(t, "the next tick is done", done)
		if second.Sub(first) != time.Second {
			t.Errorf("ticks at %v and %v", first, second)
		}
	})
}

func TestGocronRunsAJobOnTheLeaderOnlyAndCancelsItWithTheTerm(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		first, second := lead(t, pool, "first"), newCandidate(t, pool, "second")
		second.start(t)
		awaitBusy(t, second)
		if err := (examples.GocronElector{Elector: second.Elector}).IsLeader(t.Context()); !errors.Is(err, elector.ErrNotLeader) {
			t.Errorf("got %v, want ErrNotLeader", err)
		}
		jobs := map[string]task{"first": newTask(), "second": newTask()}
		for _, c := range []candidate{first, second} {
			scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(examples.GocronElector{Elector: c.Elector}))
			check(t, err)
			_, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(examples.WhileLeading(c.Elector, jobs[c.CandidateID()].run)),
				gocron.WithSingletonMode(gocron.LimitModeReschedule))
			check(t, err)
			scheduler.Start()
			t.Cleanup(func() { check(t, scheduler.Shutdown()) })
		}
		receive(t, "the leader's job runs", jobs["first"].runs)
		if len(jobs["second"].runs) > 0 {
			t.Error("a process that does not lead runs the job")
		}
		check(t, first.Stop(soon(t))) // Stop waits for the job
		receive(t, "the job is cancelled", jobs["first"].ended)
		receive(t, "the next leader's job runs", jobs["second"].runs)
		check(t, second.Stop(soon(t)))
	})
}

func TestCronRunsAJobOnTheLeaderOnlyAndCancelsItWithTheTerm(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		first, second := lead(t, pool, "first"), newCandidate(t, pool, "second")
		second.start(t)
		awaitBusy(t, second)
		job, never := newTask(), atomic.Bool{}
		scheduler := cron.New(cron.WithSeconds(), cron.WithChain(cron.SkipIfStillRunning(cron.DiscardLogger)))
		// One scheduler runs both jobs in the same second.
		_, err := scheduler.AddJob("* * * * * *", examples.CronJob(t.Context(), second.Elector, func(context.Context) error {
			never.Store(true)
			return nil
		}))
		check(t, err)
		_, err = scheduler.AddJob("* * * * * *", examples.CronJob(t.Context(), first.Elector, func(ctx context.Context) error {
			_ = job.run(ctx)
			return nil
		}))
		check(t, err)
		scheduler.Start()
		t.Cleanup(func() { <-scheduler.Stop().Done() })
		receive(t, "the leader's job runs", job.runs)
		if never.Load() {
			t.Error("a process that does not lead ran the job")
		}
		check(t, first.Stop(soon(t))) // Stop waits for the job
		receive(t, "the job is cancelled", job.ended)
	})
}

// runnable is a task with the methods of controller-runtime.
type runnable struct{ task }

func (r runnable) Start(ctx context.Context) error { return r.run(ctx) }

// everywhere is a runnable that needs no leader.
type everywhere struct{ runnable }

func (everywhere) NeedLeaderElection() bool { return false }

var _ manager.LeaderElectionRunnable = everywhere{}

// newManager returns a manager of controller-runtime without its own leader election and without an API server.
func newManager(t *testing.T, runnables ...manager.Runnable) manager.Manager {
	t.Helper()
	m, err := manager.New(&rest.Config{}, manager.Options{
		Metrics: server.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return meta.NewDefaultRESTMapper(nil), nil
		},
	})
	check(t, err)
	for _, r := range runnables {
		check(t, m.Add(r))
	}
	return m
}

func TestRunnablesThatNeedALeaderWaitForTheElectionAndTheOthersDoNot(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		other := lead(t, pool, "other")
		server, controller := everywhere{runnable{newTask()}}, runnable{newTask()}
		c := newCandidate(t, pool, "this")
		runAll := manager.RunnableFunc(func(ctx context.Context) error { return examples.RunAll(ctx, c.Elector, server, controller) })
		stop := inBackground(t, newManager(t, runAll).Start)
		receive(t, "the server runs", server.runs)
		awaitBusy(t, c)
		if len(controller.runs) > 0 {
			t.Error("the controller runs while another leads")
		}
		check(t, other.Stop(soon(t)))
		receive(t, "the controller runs", controller.runs)
		term, _ := c.Term()
		check(t, term.Resign(soon(t)))
		receive(t, "the controller ends with the term", controller.ended)
		receive(t, "the controller runs in the next term", controller.runs)
		check(t, stop())
		receive(t, "the server has ended", server.ended)
		receive(t, "the controller has ended", controller.ended)
	})
}

// failing is a runnable that needs no leader, and fails when the candidate's term has ended.
type failing struct {
	of  candidate
	err error
}

func (failing) NeedLeaderElection() bool { return false }

func (f failing) Start(ctx context.Context) error {
	<-ctx.Done()
	_, _ = hookstest.Wait[hooks.Demoted](context.WithoutCancel(ctx), f.of.rec, nil)
	time.Sleep(100 * time.Millisecond) // Run has returned
	return f.err
}

func TestARunnableThatFailsDuringTheShutdownIsReported(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		failure := errors.New("not saved")
		c := newCandidate(t, pool, "this")
		controller := runnable{newTask()}
		stop := inBackground(t, func(ctx context.Context) error {
			return examples.RunAll(ctx, c.Elector, failing{c, failure}, controller)
		})
		receive(t, "the controller runs", controller.runs)
		if err := stop(); !errors.Is(err, failure) {
			t.Errorf("got %v", err)
		}
	})
}

// work is a runnable that needs a leader.
type work func(ctx context.Context) error

func (w work) Start(ctx context.Context) error { return w(ctx) }

func TestAmongRunnablesThatEndWithTheContextTheOneThatFailsIsReported(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		failure := errors.New("not saved")
		c := newCandidate(t, pool, "this")
		controller := runnable{newTask()}
		ends := work(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		fails := work(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond) // the other has returned
			return failure
		})
		stop := inBackground(t, func(ctx context.Context) error {
			return examples.RunAll(ctx, c.Elector, ends, fails, controller)
		})
		receive(t, "the controller runs", controller.runs)
		if err := stop(); !errors.Is(err, failure) {
			t.Errorf("got %v", err)
		}
	})
}

type report struct {
	Of string `json:"of"`
}

func (report) Kind() string { return "report" }

// newRiver creates river's tables, and returns a client that works on no jobs.
func newRiver(t *testing.T, pool *sql.DB) *river.Client[*sql.Tx] {
	t.Helper()
	driver := riverdatabasesql.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	check(t, err)
	_, err = migrator.Migrate(soon(t), rivermigrate.DirectionUp, nil)
	check(t, err)
	client, err := river.NewClient(driver, &river.Config{})
	check(t, err)
	return client
}

func TestOnlyTheLeaderInsertsJobsOfRiverAndOncePerPeriod(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		client := newRiver(t, pool)
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

func TestEachJobOfRiverIsInsertedOncePerPeriodAlsoIfItFailsOrIsCancelled(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		client := newRiver(t, pool)
		c := newCandidate(t, pool, "this")
		inBackground(t, func(ctx context.Context) error {
			return c.Run(ctx, func(ctx context.Context, term *elector.Term) error {
				insert := func(of string) examples.Task {
					return func(ctx context.Context) error {
						return examples.InsertJobs(pool, client, time.Second, report{of})(ctx, term) // ten times a period
					}
				}
				return examples.LeadTasks(insert("orders"), insert("customers"))(ctx, term)
			})
		})
		eventually(t, "each job is inserted in three periods", func() bool {
			execute(t, pool, `UPDATE river_job SET finalized_at = now(), state = CASE id % 2 WHEN 0 THEN 'cancelled' ELSE 'discarded' END::river_job_state
				WHERE finalized_at IS NULL`)
			var twice int
			check(t, pool.QueryRow("SELECT count(*) - count(DISTINCT unique_key) FROM river_job").Scan(&twice))
			if twice > 0 {
				t.Fatalf("%d jobs were inserted again", twice)
			}
			var orders, customers int
			check(t, pool.QueryRow("SELECT count(*) FILTER (WHERE args->>'of' = 'orders'), count(*) FILTER (WHERE args->>'of' = 'customers') FROM river_job").
				Scan(&orders, &customers))
			return orders >= 3 && customers >= 3
		})
	})
}

func TestTheLeaderRunsTheSchedulerOfAsynq(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		t.Parallel()
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
	if !second.Settings().ListensForLoss {
		t.Error("below the tracing driver it does not listen for the loss of its session")
	}
	check(t, second.Stop(soon(t)))
	if len(spans.GetSpans()) == 0 {
		t.Error("no statement was traced")
	}
}
