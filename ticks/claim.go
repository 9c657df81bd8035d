package ticks

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/ticks/internal/db"
)

// maxUnfinished is how many ticks are claimed and not done yet.
const maxUnfinished = maxCatchUp

// A claimed says what a claim found.
type claimed struct {
	try    *db.UnfinishedRow  // to be done now, or nil
	over   []db.UnfinishedRow // to be given up first; then nothing else is claimed
	wait   time.Duration      // until a claim may find one
	passed int
	last   time.Time // of those that passed
}

// claim decides in a fenced transaction which ticks are due, and begins a try of one.
func (t *Ticks) claim(ctx context.Context, term *elector.Term) (c claimed, err error) {
	err = term.InTx(ctx, t.pool, nil, func(tx *sql.Tx) (err error) {
		q := t.queries(tx)
		at, err := t.look(ctx, q)
		if err != nil {
			return err
		}
		c = claimed{}
		var rows []db.UnfinishedRow
		if rows, c.over, err = t.unfinished(ctx, q, at.NowMicros); err != nil || len(c.over) > 0 {
			return err
		}
		next := int64(0)
		if len(rows) == 0 || !t.holdUp && len(rows) < maxUnfinished {
			p, err := t.advance(ctx, q, at)
			if err != nil {
				return err
			}
			for _, due := range p.due {
				rows = append(rows, db.UnfinishedRow{AtMicros: due.UnixMicro(), TryMicros: at.NowMicros})
			}
			if p.next.IsZero() && len(rows) == 0 {
				return fmt.Errorf("%w: the schedule %q has none after %v", ErrSchedule, t.name, p.last.In(t.zone))
			}
			if !p.next.IsZero() {
				next = p.next.UnixMicro()
			}
			c.passed, c.last = p.passed, p.last
		}
		c.try, c.wait = choose(rows, at.NowMicros, next, t.holdUp)
		if c.try == nil {
			return nil
		}
		c.try.Tries++
		return q.Begin(ctx, db.BeginParams{Name: t.name, AtMicros: c.try.AtMicros, PauseMicros: t.pause(c.try.Tries)})
	})
	return c, explain("claim a tick", err)
}

// choose returns the tick to do now: the first one, or if none holds up the others, the first one that does not
// pause. If there is none, it returns the wait for one, or for the next tick (0: unknown), at most maxWait.
func choose(rows []db.UnfinishedRow, now, next int64, holdUp bool) (*db.UnfinishedRow, time.Duration) {
	for i, row := range rows {
		if row.TryMicros <= now {
			return &rows[i], 0
		}
		if next == 0 || row.TryMicros < next {
			next = row.TryMicros
		}
		if holdUp {
			break
		}
	}
	return nil, time.Duration(min(max(next-now, 0), maxWait.Microseconds())) * time.Microsecond
}

// look locks the schedule's row and reads the server's time.
func (t *Ticks) look(ctx context.Context, q *db.Queries) (db.LookRow, error) {
	at, err := q.Look(ctx, t.name)
	if !errors.Is(err, sql.ErrNoRows) {
		return at, err
	}
	if err := q.Note(ctx, t.name); err != nil {
		return at, err
	}
	return q.Look(ctx, t.name)
}

// unfinished returns the ticks that are not done yet, and those of them that had their tries or are too old.
func (t *Ticks) unfinished(ctx context.Context, q *db.Queries, now int64) (left, over []db.UnfinishedRow, err error) {
	for looks := 0; ; looks++ {
		all, err := q.Unfinished(ctx, db.UnfinishedParams{Name: t.name, AtMost: 2 * maxUnfinished})
		if err != nil {
			return nil, nil, err
		}
		left, over = nil, nil
		for _, row := range all {
			if row.Tries < t.tries && now-row.ClaimedMicros < t.age.Microseconds() {
				left = append(left, row)
			} else {
				over = append(over, row)
			}
		}
		if looks > 0 || len(over) == 0 {
			return left, over, nil
		}
		for _, row := range over { // this waits for a try that the server is still at: after it the row may be gone
			if err := q.Fail(ctx, db.FailParams{Name: t.name, AtMicros: row.AtMicros, Tries: row.Tries, Error: row.Error}); err != nil {
				return nil, nil, err
			}
		}
	}
}

// giveUp tells that ticks are never done, and then removes their rows. No transaction is open while it tells: the
// server would end one that waits for a slow hook.
func (t *Ticks) giveUp(ctx context.Context, term *elector.Term, over []db.UnfinishedRow) error {
	for _, row := range over {
		e := Event{Kind: GivenUp, At: time.UnixMicro(row.AtMicros), Tries: int(row.Tries)}
		if row.Error != "" {
			e.Err = errors.New(row.Error)
		}
		t.tell(e)
	}
	err := term.InTx(ctx, t.pool, nil, func(tx *sql.Tx) error {
		for _, row := range over {
			if _, err := t.queries(tx).Finish(ctx, db.FinishParams{Name: t.name, Tries: row.Tries, AtMicros: row.AtMicros}); err != nil {
				return err
			}
		}
		return nil
	})
	return explain("give up a tick", err)
}

// advance adds the ticks that are due.
func (t *Ticks) advance(ctx context.Context, q *db.Queries, at db.LookRow) (plan, error) {
	p, err := decide(t.schedule, t.zone, t.missed, time.UnixMicro(at.LastMicros), time.UnixMicro(at.NowMicros))
	if err != nil || p.last.UnixMicro() == at.LastMicros {
		return p, err
	}
	micros := make([]int64, len(p.due))
	for i, due := range p.due {
		micros[i] = due.UnixMicro()
	}
	text, err := json.Marshal(micros)
	if err != nil {
		return p, err
	}
	if err := q.Add(ctx, db.AddParams{Name: t.name, Micros: string(text)}); err != nil {
		return p, err
	}
	return p, q.Advance(ctx, db.AdvanceParams{Name: t.name, LastMicros: p.last.UnixMicro()})
}

// errTaken is returned when another claim began a try of the same tick, or finished it.
var errTaken = errors.New("ticks: another process has the tick: does another election use the same name?")

// try runs Do in a fenced transaction that removes the tick's row. If Do or the commit failed, try tells and
// records the failure.
func (t *Ticks) try(ctx context.Context, term *elector.Term, row db.UnfinishedRow) error {
	at := time.UnixMicro(row.AtMicros).In(t.zone)
	err := t.attempt(ctx, term, row, at)
	switch {
	case err == nil:
		t.tell(Event{Kind: Done, At: at, Tries: int(row.Tries)})
		return nil
	case ctx.Err() != nil, term.Context().Err() != nil, errors.Is(err, errTaken): // ErrNotLeader may be Do's, of another election
		return err
	}
	t.tell(Event{Kind: Failed, At: at, Tries: int(row.Tries), Err: err})
	failure := db.FailParams{Name: t.name, AtMicros: row.AtMicros, Tries: row.Tries, PauseMicros: t.pause(row.Tries), Error: printable(err)}
	err = term.InTx(ctx, t.pool, nil, func(tx *sql.Tx) error { return t.queries(tx).Fail(ctx, failure) })
	return explain("record the failure", err)
}

func (t *Ticks) attempt(ctx context.Context, term *elector.Term, row db.UnfinishedRow, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return term.InTx(ctx, t.pool, nil, func(tx *sql.Tx) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(term.Context(), func() { cancel(context.Cause(term.Context())) })()
		removed, err := t.queries(tx).Finish(ctx, db.FinishParams{Name: t.name, Tries: row.Tries, AtMicros: row.AtMicros})
		if err != nil {
			return err
		}
		if removed == 0 {
			return errTaken
		}
		return t.do(ctx, tx, at)
	})
}

func (t *Ticks) pause(tries int32) int64 { return pause(tries, t.least, t.most).Microseconds() }

// printable makes a text of an error that every encoding has.
func printable(err error) string {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, err.Error())
	return text[:min(len(text), 1000)]
}
