package examples

import (
	"context"

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
	var led []Task
	group, groupCtx := errgroup.WithContext(ctx)
	for _, r := range runnables {
		if choice, chooses := r.(needsLeaderElection); chooses && !choice.NeedLeaderElection() {
			group.Go(func() error { return failure(ctx, r.Start(groupCtx)) })
		} else {
			led = append(led, r.Start)
		}
	}
	group.Go(func() error { return failure(ctx, e.Run(groupCtx, LeadTasks(led...))) })
	return group.Wait()
}
