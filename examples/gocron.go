package examples

import (
	"context"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/ticks"
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

// GocronSchedule is a crontab as gocron reads it, for package ticks, which needs no scheduler of gocron: each tick is
// done, also if the leader dies at that moment. See Nightly. The hours are those of the zone.
func GocronSchedule(crontab string, zone *time.Location) (ticks.Schedule, error) {
	schedule := gocron.NewDefaultCron(false)
	return inZone{schedule, zone}, schedule.IsValid(crontab, zone, time.Now())
}

// inZone is a schedule in a zone: gocron takes time.Local for the zone of the time that its crontab is given.
type inZone struct {
	ticks.Schedule
	zone *time.Location
}

func (s inZone) Next(t time.Time) time.Time { return s.Schedule.Next(t.In(s.zone)) }
