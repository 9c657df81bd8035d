package examples

import (
	"context"
	"database/sql"
	"log/slog"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/pgelector/pgelector/elector"
)

// TickTable creates the table of the ticks that are done.
const TickTable = `CREATE TABLE IF NOT EXISTS ticks (job text, at timestamptz, PRIMARY KEY (job, at))`

// Ticks does a job once for each tick of a schedule. The leader does those that are due, in
// order, also those that passed while nobody led, or in a hand-over.
//
// What Do writes with tx is written exactly once. What it sends elsewhere is sent again if the
// commit fails: send the job and the tick too, so that the receiver can ignore repetitions.
type Ticks struct {
	Pool     *sql.DB
	Job      string
	Schedule cron.Schedule // such as of cron.ParseStandard
	Do       func(ctx context.Context, tx *sql.Tx, at time.Time) error
}

// Lead is a function for elector.Elector.Run. It does each tick when it is due.
func (t Ticks) Lead(ctx context.Context, term *elector.Term) error {
	for ctx.Err() == nil {
		next, err := t.CatchUp(ctx, term)
		if err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "tick not done, will try again", "job", t.Job, "error", err)
			next = time.Now().Add(100 * time.Millisecond)
		}
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
		}
	}
	return nil
}

// IfLeader is a job for robfig/cron and, with gocron.NewTask, for gocron, in every process. It
// does what is due if this process leads.
func (t Ticks) IfLeader(e *elector.Elector) func() {
	return func() {
		term, leading := e.Term()
		if !leading {
			return
		}
		_, err := e.RunIfLeader(term.Context(), func(ctx context.Context) error {
			_, err := t.CatchUp(ctx, term)
			return err
		})
		if err != nil && term.Context().Err() == nil {
			slog.Warn("tick not done, will try again", "job", t.Job, "error", err)
		}
	}
}

// CatchUp does the ticks that are due, and returns the next one. The first call ever only
// notes the time, from which the ticks count.
func (t Ticks) CatchUp(ctx context.Context, term *elector.Term) (next time.Time, err error) {
	for {
		err = term.InTx(ctx, t.Pool, nil, func(tx *sql.Tx) error {
			var last sql.NullTime
			if err := tx.QueryRowContext(ctx, "SELECT max(at) FROM ticks WHERE job = $1", t.Job).Scan(&last); err != nil {
				return err
			}
			now := time.Now()
			next = now
			if last.Valid {
				if next = t.Schedule.Next(last.Time); next.After(now) {
					return nil
				}
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO ticks (job, at) VALUES ($1, $2)", t.Job, next); err != nil || !last.Valid {
				return err
			}
			return t.Do(ctx, tx, next)
		})
		if err != nil || next.After(time.Now()) {
			return next, err
		}
	}
}
