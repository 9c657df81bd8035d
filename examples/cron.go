package examples

import (
	"context"
	"log/slog"

	"github.com/robfig/cron/v3"

	"github.com/pgelector/pgelector/elector"
)

// CronJob is a job for cron.Cron, which runs on every process and does its work
// on the leader only. The job's context ends with ctx and with the term, and the
// lock is not released before the job has returned.
func CronJob(ctx context.Context, e *elector.Elector, job Task) cron.Job {
	return cron.FuncJob(func() {
		if _, err := e.RunIfLeader(ctx, job); err != nil {
			slog.ErrorContext(ctx, "cron job failed", "election", e.Election(), "error", err)
		}
	})
}
