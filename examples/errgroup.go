package examples

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/pgelector/pgelector/elector"
)

// A Task runs until its context ends or it fails.
type Task = func(context.Context) error

// LeadTasks runs the tasks in each term. When one fails or the term ends, it cancels all
// of them. The lock is released after the last has returned.
func LeadTasks(tasks ...Task) func(context.Context, *elector.Term) error {
	return func(ctx context.Context, _ *elector.Term) error {
		group, groupCtx := errgroup.WithContext(ctx)
		for _, task := range tasks {
			group.Go(func() error { return failure(ctx, task(groupCtx)) })
		}
		return group.Wait()
	}
}

// Serve runs everywhere in every process, and lead on the leader. It cancels both when
// one fails, and when ctx ends, which is not an error.
func Serve(ctx context.Context, e *elector.Elector, everywhere Task, lead func(context.Context, *elector.Term) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return failure(ctx, everywhere(groupCtx)) })
	group.Go(func() error { return failure(ctx, e.Run(groupCtx, lead)) })
	return group.Wait()
}

// failure returns err, or nil if it only says that ctx has ended. A group returns its first
// error, and so that one would hide a failure that comes later.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
