package examples

import (
	"context"
	"database/sql"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/pgelector/pgelector/elector"
)

// InsertJobs inserts a job into river's queue once per period, in a fenced transaction: a
// leader that was replaced inserts none, and a period that two leaders share has one job. So
// has one whose job failed for good or was cancelled. Jobs with other arguments are other
// jobs. river must keep jobs for at least the period: see CompletedJobRetentionPeriod,
// CancelledJobRetentionPeriod and DiscardedJobRetentionPeriod of its Config.
func InsertJobs(pool *sql.DB, client *river.Client[*sql.Tx], period time.Duration, job river.JobArgs) func(context.Context, *elector.Term) error {
	once := &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true, ByPeriod: period, ByState: rivertype.JobStates()}}
	return func(ctx context.Context, term *elector.Term) error {
		for ctx.Err() == nil {
			err := term.InTx(ctx, pool, nil, func(tx *sql.Tx) error {
				_, err := client.InsertTx(ctx, tx, job, once)
				return err
			})
			if err != nil && ctx.Err() == nil {
				slog.WarnContext(ctx, "job not inserted, will try again", "error", err)
			}
			select {
			case <-time.After(period / 10):
			case <-ctx.Done():
			}
		}
		return nil
	}
}
