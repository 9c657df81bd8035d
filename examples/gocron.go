package examples

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	"github.com/pgelector/pgelector/elector"
)

// GocronElector is an argument of gocron.WithDistributedElector, which calls it before
// each job. It needs no round trip.
type GocronElector struct{ Elector *elector.Elector }

var _ gocron.Elector = GocronElector{}

// IsLeader implements gocron.Elector. It returns an error unless this process leads.
func (g GocronElector) IsLeader(context.Context) error {
	if g.Elector.IsLeader() {
		return nil
	}
	return elector.ErrNotLeader
}

// WhileLeading returns a task for gocron.NewTask. gocron calls its elector only before
// a job. This task also cancels the job's context when the term ends. The lock is
// released after the job has returned.
func WhileLeading(e *elector.Elector, job func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := e.RunIfLeader(ctx, job)
		return err
	}
}
