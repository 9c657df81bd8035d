package examples

import (
	"context"
	"log/slog"

	"github.com/robfig/cron/v3"

	"github.com/pgelector/pgelector/elector"
)

// CronJob returns a job for cron.Cron that runs in every process and does its work
// only on the leader. The job's context ends with ctx and with the term. The lock is
// released after the job has returned.
func CronJob(ctx context.Context, e *elector.Elector, job func(context.Context) error) cron.Job {
	return cron.FuncJob(func() {
		if _, err := e.RunIfLeader(ctx, job); err != nil {
			slog.ErrorContext(ctx, "cron job failed", "election", e.Election(), "error", err)
		}
	})
}
