package examples

import (
	"context"
	"database/sql"
	"log/slog"

	"github.com/robfig/cron/v3"

	"github.com/pgelector/pgelector/ticks"
)

// Nightly is a schedule of robfig/cron, each tick of which is done once:
//
//	schedule, err := cron.ParseStandard("0 3 * * *")
//	nightly, err := examples.Nightly(ctx, pool, "nightly", schedule, do)
//	err = e.Run(ctx, nightly.Lead) // in every process; the leader does the ticks
//
// The hours are those of UTC; ticks.WithLocation gives another zone. A schedule with a CRON_TZ has its own.
// cron.WithLocation is of robfig's runner, and does not count here. Of the ticks that pass while nobody leads the last 1000 are done;
// without that option, the last one.
func Nightly(ctx context.Context, pool *sql.DB, name string, schedule cron.Schedule, do ticks.Do, opts ...ticks.Option) (*ticks.Ticks, error) {
	logs := ticks.WithOnEvent(func(e ticks.Event) {
		level := slog.LevelDebug
		switch e.Kind {
		case ticks.GivenUp, ticks.PassedOver:
			level = slog.LevelError
		case ticks.Failed, ticks.Trouble:
			level = slog.LevelWarn
		}
		slog.Log(ctx, level, "tick "+string(e.Kind), "schedule", e.Name, "at", e.At, "tries", e.Tries, "passed", e.Passed, "error", e.Err)
	})
	t, err := ticks.New(pool, name, schedule, do, append([]ticks.Option{ticks.WithMissed(ticks.CatchUp(1000)), logs}, opts...)...)
	if err != nil {
		return nil, err
	}
	return t, t.Migrate(ctx)
}
