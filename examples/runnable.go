package examples

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/pgelector/pgelector/elector"
)

// Runnable is the interface of what the manager of sigs.k8s.io/controller-runtime runs.
// Existing runnables implement it.
type Runnable interface {
	// Start runs until ctx ends or it fails.
	Start(ctx context.Context) error
}

// needsLeaderElection is optional for a Runnable. Without it only the leader runs the
// Runnable, as in controller-runtime.
type needsLeaderElection interface{ NeedLeaderElection() bool }

// RunAll starts the runnables that need no leader immediately, and the others in each
// term. When ctx ends or a runnable fails, it cancels all of them, and returns after the
// last has returned. It starts a runnable that needs a leader again in the next term;
// controller-runtime ends the process instead. A manager whose LeaderElection is off can run
// it, as a manager.RunnableFunc.
func RunAll(ctx context.Context, e *elector.Elector, runnables ...Runnable) error {
	var led []Runnable
	group, groupCtx := errgroup.WithContext(ctx)
	for _, r := range runnables {
		if choice, chooses := r.(needsLeaderElection); chooses && !choice.NeedLeaderElection() {
			group.Go(func() error { return unlessEnded(ctx, r.Start(groupCtx)) })
		} else {
			led = append(led, r)
		}
	}
	group.Go(func() error {
		return unlessEnded(ctx, e.Run(groupCtx, func(ctx context.Context, _ *elector.Term) error {
			term, termCtx := errgroup.WithContext(ctx)
			for _, r := range led {
				term.Go(func() error { return unlessEnded(ctx, r.Start(termCtx)) })
			}
			return term.Wait()
		}))
	})
	return group.Wait()
}

// unlessEnded returns err, or nil if it only says that ctx has ended. A group returns its first
// error, and so that one would hide a failure that comes later.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
