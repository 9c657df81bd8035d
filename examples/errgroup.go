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
		group, ctx := errgroup.WithContext(ctx)
		for _, task := range tasks {
			group.Go(func() error { return task(ctx) })
		}
		return group.Wait()
	}
}

// Serve runs everywhere in every process, and lead on the leader. It cancels both when
// one fails, and when ctx ends, which is not an error.
func Serve(ctx context.Context, e *elector.Elector, everywhere Task, lead func(context.Context, *elector.Term) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return everywhere(groupCtx) })
	group.Go(func() error { return e.Run(groupCtx, lead) })
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
