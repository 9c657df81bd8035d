package systems

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverLeader is the leader election inside a river client: a lease in the table river_leader. River does not
// export it, so riverLog reads the elector's debug log. (HookPeriodicJobsStart, the first hook on a leader, runs
// later: river starts its maintenance services after a random delay of up to a second.) Each election has its own
// schema.
func riverLeader() System {
	return System{
		Name:     River,
		Settings: "a client with one idle queue; lease 15 s, renewed every 5 s, retried every 5-6 s: it has no settings",
		For:      "Its own job queue, whose maintenance may pause for seconds. It sends few statements, and NOTIFY wakes followers when a leader resigns.",
		Quick:    []Fault{Resign},
		Phase:    5 * time.Second,
		Replaced: 20 * time.Second,
		Cap:      60 * time.Second,
		Never:    map[Fault]string{Terminate: survives, Restart: survives},
		Prepare:  prepareRiver,
		Run:      runRiver,
	}
}

func runRiver(ctx context.Context, env Env, out *Reporter) error {
	pool, err := pgxpool.New(ctx, env.DSN)
	if err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &idleWorker{})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		ID:      env.ID,
		Schema:  env.Election,
		Logger:  slog.New(&riverLog{Handler: slog.DiscardHandler, out: out}),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
		Workers: workers,
	})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	out.Emit(Ready)
	<-env.Resign
	return client.Stop(ctx)
}

// riverLog derives leadership from the elector's log.
type riverLog struct {
	slog.Handler
	out     *Reporter
	leading atomic.Bool
}

func (*riverLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle is called on the elector's goroutine.
func (l *riverLog) Handle(_ context.Context, r slog.Record) error {
	switch _, message, _ := strings.Cut(r.Message, "Elector: "); message {
	case "Gained leadership":
		l.leading.Store(true)
		l.out.Leading(l.leading.Load)
	case "Attempting to resign leadership": // on Stop, and when the lease has expired
		l.leading.Store(false)
		l.out.Emit(Resigning)
	case "Attempting to gain leadership":
		l.leading.Store(false)
	}
	return nil
}

func (l *riverLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *riverLog) WithGroup(string) slog.Handler      { return l }

// idleJob is never inserted: a client must know one kind of job.
type idleJob struct{}

func (idleJob) Kind() string { return "idle" }

type idleWorker struct{ river.WorkerDefaults[idleJob] }

func (*idleWorker) Work(context.Context, *river.Job[idleJob]) error { return nil }

// prepareRiver creates river's tables in the election's schema, with river's own migrations.
func prepareRiver(ctx context.Context, dsn, election string) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+election); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: election, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}
