//go:build linux

package fleet

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// entry is one election of a candidate.
type entry struct {
	*candidate
	election string // "" for the first
	elector  *elector.Elector
	writes   int
}

func (e *entry) record(event history.Event) {
	event.Election = e.election
	e.out.Record(event)
}

func (e *entry) hook() hooks.Funcs {
	return hooks.Funcs{
		Elected: func(_ context.Context, ev hooks.Elected) {
			e.record(history.Event{Kind: history.Elected, Token: ev.Token})
		},
		Demoted: func(_ context.Context, ev hooks.Demoted) {
			e.record(history.Event{Kind: history.Demoted, Token: ev.Token, Text: string(ev.Reason)})
		},
		Campaign: func(_ context.Context, ev hooks.Campaign) {
			began := time.Since(ev.At) + ev.Took
			e.record(history.Event{Kind: history.Attempt, At: history.Now().Add(-began), Took: ev.Took, Text: string(ev.Outcome)})
		},
		Error: func(_ context.Context, ev hooks.Failure) {
			e.record(history.Event{Kind: history.Failed, Text: fmt.Sprintf("%s: %v", ev.Op, ev.Err)})
		},
	}
}

// lead is the leader's work: small steps, each in a valid term. In the first election it
// also writes to the register, and remembers the value that it wrote.
func (e *entry) lead(ctx context.Context, term *elector.Term) error {
	if at := history.Now(); term.Valid() {
		e.record(history.Event{Kind: history.Began, At: at, Token: term.Token()})
	}
	register := memory{}
	for ctx.Err() == nil {
		if at := history.Now(); term.Valid() {
			e.record(history.Event{Kind: history.Worked, At: at, Token: term.Token()})
		}
		if e.election == "" {
			register = e.use(ctx, term, register)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(writing)):
		}
	}
	at := history.Now()
	overdue := time.Now().After(term.Deadline().Add(drain))
	e.record(history.Event{Kind: history.Ended, At: at, Token: term.Token(), Overdue: overdue})
	return nil
}

func (e *entry) resign(ctx context.Context) {
	resigned := history.Event{Kind: history.Resigned}
	if term, leading := e.elector.Term(); !leading {
		resigned.Text = elector.ErrNotLeader.Error()
	} else if err := term.Resign(ctx); err != nil {
		resigned.Token, resigned.Text = term.Token(), err.Error()
	}
	e.record(resigned)
}

// How often an unchanged sample is recorded. After a kill, at most this much of the
// leader's belief is missing from the history.
const (
	recordLeading   = 50 * time.Millisecond
	recordFollowing = time.Second
	notRunning      = 100 * time.Millisecond // a longer time between two calls means that the process was not running
)

// sample calls IsLeader again and again and records each change: the last result before
// it and the first result after it.
func (e *entry) sample(ctx context.Context) {
	var last, recorded history.Event
	record := func(s history.Event) {
		if s.At != 0 && s.At != recorded.At {
			recorded = s
			e.record(s)
		}
	}
	for ctx.Err() == nil {
		s := e.ask()
		interval := recordFollowing
		if s.Leading {
			interval = recordLeading
		}
		switch {
		case s.Leading != last.Leading, s.Token != last.Token, s.At.Sub(last.At) > notRunning:
			record(last)
			record(s)
		case s.At.Sub(recorded.At) > interval:
			record(s)
		}
		last = s
		select {
		case <-time.After(sampling):
		case <-ctx.Done():
		}
	}
	record(last)
}

// ask reads the term before it calls IsLeader, so that a true result never belongs to an
// earlier term than the one read.
func (e *entry) ask() history.Event {
	s := history.Event{Kind: history.Sample, At: history.Now()}
	term, _ := e.elector.Term()
	s.Leading = e.elector.IsLeader()
	s.Took = history.Now().Sub(s.At)
	if term != nil {
		s.Token = term.Token()
	}
	return s
}

// Role is the candidates' role. It may only connect and write to the tables of Schema.
const Role = "candidate"

// Schema creates the tables that leaders write to. Each timeline of the database has its
// own register, so a replaced primary and its successor have different ones. The first
// write names the register, since a timeline number may be used again after a failover
// manager discards a timeline. The ledger keeps every write and so shows which
// acknowledged writes a failover lost.
const Schema = `
	CREATE TABLE register (timeline text PRIMARY KEY, name text NOT NULL, value text NOT NULL);
	CREATE TABLE ledger (value text PRIMARY KEY, register text NOT NULL, token bigint NOT NULL);
	GRANT SELECT, INSERT, UPDATE ON register TO ` + Role + `;
	GRANT INSERT ON ledger TO ` + Role

const timelineNow = `pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)`

const (
	readRegister = `SELECT coalesce(r.name, ''), coalesce(r.value, '')
		FROM (SELECT ` + timelineNow + ` AS timeline) now LEFT JOIN register r ON r.timeline = now.timeline`
	writeRegister = `INSERT INTO register SELECT now, now || ' ' || gen_random_uuid(), $1 FROM (SELECT ` + timelineNow + ` AS now) t
		ON CONFLICT (timeline) DO UPDATE SET value = excluded.value RETURNING name`
	writeLedger = `INSERT INTO ledger VALUES ($1, $2, $3)`
)

// memory is what a leader knows about the register. Its name is empty before the first
// write.
type memory struct {
	known       bool
	name, value string
}

// use reads the register if it is not known, and otherwise writes to it. It returns the
// new knowledge.
func (e *entry) use(ctx context.Context, term *elector.Term, known memory) memory {
	op := history.Event{At: history.Now(), Token: term.Token(), Way: history.InTx}
	if !known.known {
		err := term.InTx(ctx, e.pool, nil, func(tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, readRegister).Scan(&known.name, &known.value)
		})
		if err != nil {
			return memory{}
		}
		known.known = true
		if known.name == "" {
			return known
		}
		op.Kind, op.Register, op.New = history.Read, known.name, known.value
		op.Took = history.Now().Sub(op.At)
		e.record(op)
		return known
	}
	e.writes++
	op.Register, op.Old, op.New = known.name, known.value, fmt.Sprint(e.Name, "-", e.writes)
	op.Kind = history.Writes
	e.record(op) // before the write, since this process may be killed
	op.At = history.Now()
	err := term.InTx(ctx, e.pool, nil, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, writeRegister, op.New).Scan(&op.Register); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, writeLedger, op.New, op.Register, op.Token)
		return err
	})
	op.Took = history.Now().Sub(op.At)
	op.Kind = history.Wrote
	switch {
	case errors.Is(err, elector.ErrOutcomeUnknown):
		op.Kind, op.Text = history.Unsure, err.Error()
	case err != nil:
		op.Kind, op.Text = history.Refused, err.Error()
	}
	e.record(op)
	if err != nil {
		return memory{} // read the register again
	}
	return memory{true, op.Register, op.New}
}
