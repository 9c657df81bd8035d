// Package ticks does each tick of a schedule in the process that leads: exactly once for what Do writes in
// its transaction, at least once for everything else.
//
//	nightly, err := ticks.New(pool, "nightly", schedule, func(ctx context.Context, tx *sql.Tx, at time.Time) error {
//		_, err := tx.ExecContext(ctx, "INSERT INTO reports (day) VALUES ($1)", at)
//		return err
//	})
//	err = nightly.Migrate(ctx) // once, or at each start
//	err = e.Run(ctx, nightly.Lead)
//
// # What is not promised
//
//   - What Do does outside its transaction, such as an e-mail, is done again if the transaction fails afterwards,
//     or the process dies. (schedule's name, at) is the key by which a receiver recognises a repetition.
//   - A tick may be late: after a crash, nobody leads for up to two leases.
//   - A tick that fails again and again is given up (WithGiveUp), and of the ticks that passed while nobody led
//     only those are done that the policy says (WithMissed: by default the last one). Both are told (Event).
//   - A schedule's first ticks are those after the first Lead ever; ticks before that were never missed.
//
// # A tick
//
// The leader locks the schedule's row and reads the server's clock in one statement: the processes' clocks
// never count. It adds a row for each tick that is due, and counts a try of the oldest one. That is the claim, a
// fenced transaction (elector.Term.InTx). Do runs in a second one, which also removes the tick's row, so
// what Do writes is committed together with the end of the tick, and only inside the term.
//
// If Do fails, it is tried again after a pause (WithPause). A try counts when the try begins. So a tick that
// kills its process is given up, too, and a try that a hand-over cuts off has counted.
//
// If the server's clock is set back, no tick is due until the clock has reached the last one again.
package ticks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// Do does the tick of a time, which is in the zone of WithLocation. What Do writes with tx is committed if Do returns
// nil. Do must neither commit nor roll back, and closes its rows. ctx ends with the term, with the context of Lead, and
// by WithTimeout: a Do that does not return then holds up the schedule. tx has one lease of the elector until the server
// ends it.
type Do func(ctx context.Context, tx *sql.Tx, at time.Time) error

// Ticks does the ticks of one schedule. Its methods may be called from any goroutine, but Lead by one at a
// time.
type Ticks struct {
	config
	pool       *sql.DB
	name       string
	schedule   Schedule
	do         Do
	migrations []string

	done, failed, givenUp, passedOver atomic.Int64
}

// An Event is something that happened to a tick.
type Event struct {
	Kind   Kind
	Name   string    // of the schedule
	At     time.Time // the tick's; of PassedOver the last one's; zero for Trouble
	Tries  int       // that have begun
	Passed int       // how many ticks are never done, of PassedOver
	Err    error     // why, of Failed and Trouble; of GivenUp the text of the last error, or nil if unknown
}

// Kind is what happened. GivenUp is told before the tick's row goes, at least once; the others are told afterwards, and
// not if the process dies in between.
type Kind string

// The kinds of events.
const (
	Done       Kind = "done"        // Do's transaction was committed
	Failed     Kind = "failed"      // a try failed, or nobody can say whether it was committed; another one follows, unless it was, or the tick is given up
	GivenUp    Kind = "given up"    // the tick is never done
	PassedOver Kind = "passed over" // ticks passed, and WithMissed says that they are not done
	Trouble    Kind = "trouble"     // no tick could be claimed; Lead tries again
)

// Kinds lists all kinds of events.
func Kinds() []Kind { return []Kind{Done, Failed, GivenUp, PassedOver, Trouble} }

// Stats counts what this process did since New, for metrics.
type Stats struct{ Done, Failed, GivenUp, PassedOver int64 }

// New returns the ticks of a schedule. name is 1 to 200 bytes of UTF-8 without NUL: the same in every
// process, and another one for each schedule in the schema. pool is any of the election's database; New does not connect. If an argument is
// invalid, the error wraps elector.ErrConfig; if the schedule has no next tick, ErrSchedule too.
func New(pool *sql.DB, name string, schedule Schedule, do Do, opts ...Option) (*Ticks, error) {
	if pool == nil || schedule == nil || do == nil {
		return nil, fmt.Errorf("%w: ticks: the pool, the schedule or the function is nil", elector.ErrConfig)
	}
	if name == "" || len(name) > 200 || !storable(name) {
		return nil, fmt.Errorf("%w: ticks: the name %q: want 1 to 200 bytes of UTF-8 without NUL", elector.ErrConfig, name)
	}
	c, err := configure(opts)
	if err != nil {
		return nil, err
	}
	now := time.Now().Truncate(time.Microsecond)
	next, err := after(schedule, c.zone, now)
	if err == nil && next.IsZero() {
		err = fmt.Errorf("%w: the schedule %q has none after %v", ErrSchedule, name, now.In(c.zone))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", elector.ErrConfig, err)
	}
	for _, kind := range Kinds() {
		c.count(name, string(kind), 0)
	}
	return &Ticks{config: c, pool: pool, name: name, schedule: schedule, do: do, migrations: migrations}, nil
}

// Stats returns the counts.
func (t *Ticks) Stats() Stats {
	return Stats{t.done.Load(), t.failed.Load(), t.givenUp.Load(), t.passedOver.Load()}
}

const (
	maxWait    = time.Minute // between two claims: the server's clock may be set forward
	minTrouble = 100 * time.Millisecond
	maxTrouble = 30 * time.Second
)

// Lead is a function for elector.Elector.Run. It does each tick when the tick is due, until the term or ctx ends:
// then it returns nil. It returns an error that wraps ErrSchedule if the schedule has no further tick and none is
// unfinished, and one that wraps elector.ErrConfig if the pool is of another database. Other errors are told as Trouble, and
// Lead tries again.
func (t *Ticks) Lead(ctx context.Context, term *elector.Term) error {
	trouble := int32(0)
	for {
		wait, err := t.once(ctx, term)
		switch {
		case ctx.Err() != nil || term.Context().Err() != nil:
			return nil
		case errors.Is(err, ErrSchedule), errors.Is(err, elector.ErrConfig):
			return err
		case err != nil:
			trouble++
			wait = pause(trouble, minTrouble, maxTrouble)
			t.tell(Event{Kind: Trouble, Err: err})
		default:
			trouble = 0
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-term.Context().Done():
		}
		timer.Stop()
	}
}

// once claims a tick and does it, and returns how long to wait for the next one.
func (t *Ticks) once(ctx context.Context, term *elector.Term) (time.Duration, error) {
	c, err := t.claim(ctx, term)
	if err != nil {
		return 0, err
	}
	if c.passed > 0 {
		t.tell(Event{Kind: PassedOver, At: c.last, Passed: c.passed})
	}
	switch {
	case len(c.over) > 0:
		return 0, t.giveUp(ctx, term, c.over)
	case c.try == nil:
		return c.wait, nil
	}
	return 0, t.try(ctx, term, *c.try)
}

func (t *Ticks) tell(e Event) {
	switch e.Kind {
	case Done:
		t.done.Add(1)
	case Failed:
		t.failed.Add(1)
	case GivenUp:
		t.givenUp.Add(1)
	case PassedOver:
		t.passedOver.Add(int64(e.Passed))
	case Trouble:
	}
	t.count(t.name, string(e.Kind), max(e.Passed, 1))
	e.Name = t.name
	if !e.At.IsZero() {
		e.At = e.At.In(t.zone)
	}
	t.onEvent(e)
}
