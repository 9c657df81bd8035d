package examples

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/pgelector/pgelector/elector"
)

// A Task runs until its context ends, or until it has failed.
type Task = func(context.Context) error

// LeadTasks runs the tasks together for each term. When one fails, or the term
// ends, all end, and the lock is released only after the last has returned.
func LeadTasks(tasks ...Task) func(context.Context, *elector.Term) error {
	return func(ctx context.Context, _ *elector.Term) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, task := range tasks {
			group.Go(func() error { return task(ctx) })
		}
		return group.Wait()
	}
}

// Serve runs what every process does beside what only the leader does. It ends
// all of it when ctx ends, which is no error, or when something fails.
func Serve(ctx context.Context, e *elector.Elector, everywhere Task, lead func(context.Context, *elector.Term) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return everywhere(groupCtx) })
	group.Go(func() error { return e.Run(groupCtx, lead) })
	err := group.Wait()
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}
