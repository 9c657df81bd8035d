package examples

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	"github.com/pgelector/pgelector/elector"
)

// GocronElector tells gocron whether to start a job, by gocron.WithDistributedElector.
// It costs no round trip.
type GocronElector struct{ Elector *elector.Elector }

var _ gocron.Elector = GocronElector{}

// IsLeader implements gocron.Elector: an error is a no.
func (g GocronElector) IsLeader(context.Context) error {
	if g.Elector.IsLeader() {
		return nil
	}
	return elector.ErrNotLeader
}

// WhileLeading is a task for gocron.NewTask. gocron asks who leads before a job
// begins, and not again; so here the job's context ends with the term too, and
// the lock is not released before the job has returned.
func WhileLeading(e *elector.Elector, job Task) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := e.RunIfLeader(ctx, job)
		return err
	}
}
