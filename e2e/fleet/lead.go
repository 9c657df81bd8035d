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

// stand is a candidate's part in one election.
type stand struct {
	*cast
	election string // "" for the first
	elector  *elector.Elector
	writes   int
}

func (s *stand) record(e history.Event) {
	e.Election = s.election
	s.out.Record(e)
}

func (s *stand) hook() hooks.Funcs {
	return hooks.Funcs{
		Elected: func(_ context.Context, e hooks.Elected) {
			s.record(history.Event{Kind: history.Elected, Token: e.Token})
		},
		Demoted: func(_ context.Context, e hooks.Demoted) {
			s.record(history.Event{Kind: history.Demoted, Token: e.Token, Text: string(e.Reason)})
		},
		Campaign: func(_ context.Context, e hooks.Campaign) {
			began := time.Since(e.At) + e.Took
			s.record(history.Event{Kind: history.Attempt, At: history.Now().Add(-began), Took: e.Took, Text: string(e.Outcome)})
		},
		Error: func(_ context.Context, e hooks.Failure) {
			s.record(history.Event{Kind: history.Failed, Text: fmt.Sprintf("%s: %v", e.Op, e.Err)})
		},
	}
}

// lead is the leader's work: small steps, each under a valid term, and in the
// first election writes to the register, by one who remembers what it says.
func (s *stand) lead(ctx context.Context, term *elector.Term) error {
	if at := history.Now(); term.Valid() {
		s.record(history.Event{Kind: history.Began, At: at, Token: term.Token()})
	}
	register := memory{}
	for ctx.Err() == nil {
		if at := history.Now(); term.Valid() {
			s.record(history.Event{Kind: history.Worked, At: at, Token: term.Token()})
		}
		if s.election == "" {
			register = s.use(ctx, term, register)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(writing)):
		}
	}
	at := history.Now()
	overdue := time.Now().After(term.Deadline().Add(drain))
	s.record(history.Event{Kind: history.Ended, At: at, Token: term.Token(), Overdue: overdue})
	return nil
}

func (s *stand) resign(ctx context.Context) {
	e := history.Event{Kind: history.Resigned}
	if term, leading := s.elector.Term(); !leading {
		e.Text = elector.ErrNotLeader.Error()
	} else if err := term.Resign(ctx); err != nil {
		e.Token, e.Text = term.Token(), err.Error()
	}
	s.record(e)
}

// How often a sample is recorded that says what the last one said. A kill may
// cost so much of a belief.
const (
	tellLeading   = 50 * time.Millisecond
	tellFollowing = time.Second
	blink         = 100 * time.Millisecond // longer between two questions, the process was not running
)

// sample asks, over and over, what this process believes, and records each
// change: the last answer before it, and the first one after.
func (s *stand) sample(ctx context.Context) {
	var last, told history.Event
	tell := func(e history.Event) {
		if e.At != 0 && e.At != told.At {
			told = e
			s.record(e)
		}
	}
	for ctx.Err() == nil {
		e := s.ask()
		often := tellFollowing
		if e.Leading {
			often = tellLeading
		}
		switch {
		case e.Leading != last.Leading, e.Token != last.Token, e.At.Sub(last.At) > blink:
			tell(last)
			tell(e)
		case e.At.Sub(told.At) > often:
			tell(e)
		}
		last = e
		select {
		case <-time.After(sampling):
		case <-ctx.Done():
		}
	}
	tell(last)
}

// ask asks both, the term first: a term that has ended is not taken for the next.
func (s *stand) ask() history.Event {
	e := history.Event{Kind: history.Sample, At: history.Now()}
	term, _ := s.elector.Term()
	e.Leading = s.elector.IsLeader()
	e.Took = history.Now().Sub(e.At)
	if term != nil {
		e.Token = term.Token()
	}
	return e
}

// Role is the candidates', which may do nothing but connect and write to the
// tables of Schema.
const Role = "candidate"

// Schema makes the tables that leaders write to. Each timeline of the database has
// a register: that of a primary which another has replaced is not the same as that
// of its successor. Its first write gives it a name, since a number of a timeline may
// be used again, when a failover manager has discarded the first. The ledger keeps
// every write, and so tells which of those that were acknowledged a failover has lost.
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

// memory is what a leader knows of the register. One that was never written to has
// no name.
type memory struct {
	known       bool
	name, value string
}

// use reads the register if it is not known, and else writes to it. It returns
// what is known then.
func (s *stand) use(ctx context.Context, term *elector.Term, known memory) memory {
	op := history.Event{At: history.Now(), Token: term.Token(), Way: history.InTx}
	if !known.known {
		err := term.InTx(ctx, s.pool, nil, func(tx *sql.Tx) error {
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
		s.record(op)
		return known
	}
	s.writes++
	op.Register, op.Old, op.New = known.name, known.value, fmt.Sprint(s.Name, "-", s.writes)
	op.Kind = history.Writes
	s.record(op) // before it may go through, since this process may be killed
	op.At = history.Now()
	err := term.InTx(ctx, s.pool, nil, func(tx *sql.Tx) error {
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
	s.record(op)
	if err != nil {
		return memory{} // what it says now must be read
	}
	return memory{true, op.Register, op.New}
}
