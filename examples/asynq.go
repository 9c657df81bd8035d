package examples

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/pgelector/pgelector/elector"
)

// ScheduleTasks runs a scheduler of asynq on the leader, a new one in each term. register
// registers its periodic tasks.
func ScheduleTasks(redis asynq.RedisConnOpt, register func(*asynq.Scheduler) error) func(context.Context, *elector.Term) error {
	return func(ctx context.Context, _ *elector.Term) error {
		scheduler := asynq.NewScheduler(redis, nil)
		if err := register(scheduler); err != nil {
			return err
		}
		if err := scheduler.Start(); err != nil {
			return err
		}
		defer scheduler.Shutdown()
		<-ctx.Done()
		return nil
	}
}
