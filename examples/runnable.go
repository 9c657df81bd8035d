package examples

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/pgelector/pgelector/elector"
)

// Runnable is what the manager of sigs.k8s.io/controller-runtime runs: its own
// runnables fit as they are, without importing it.
type Runnable interface {
	// Start runs until ctx ends, or until it has failed.
	Start(ctx context.Context) error
}

// needsLeaderElection is implemented by runnables that choose. As in
// controller-runtime, those that do not are run by the leader only.
type needsLeaderElection interface{ NeedLeaderElection() bool }

// RunAll starts the runnables that need no leader at once, and the others in each
// term. It returns when ctx ends, or when one has failed, and all have returned.
// A runnable that needs a leader is started again in the next term, where
// controller-runtime would end the process.
func RunAll(ctx context.Context, e *elector.Elector, runnables ...Runnable) error {
	var led []Task
	group, groupCtx := errgroup.WithContext(ctx)
	for _, r := range runnables {
		if choice, chooses := r.(needsLeaderElection); chooses && !choice.NeedLeaderElection() {
			group.Go(func() error { return r.Start(groupCtx) })
		} else {
			led = append(led, r.Start)
		}
	}
	group.Go(func() error { return e.Run(groupCtx, LeadTasks(led...)) })
	return group.Wait()
}
