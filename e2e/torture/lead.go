//go:build linux

package main

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

// memory is what a leader knows of the register: nothing, if it has no name.
type memory struct{ name, value string }

// use reads the register if it is not known, and else writes to it. It returns
// what is known then.
func (s *stand) use(ctx context.Context, term *elector.Term, known memory) memory {
	op := history.Event{At: history.Now(), Token: term.Token(), Way: history.InTx}
	if known.name == "" {
		err := term.InTx(ctx, s.pool, nil, func(tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, "SELECT name, value FROM register").Scan(&known.name, &known.value)
		})
		if err != nil {
			return memory{}
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
		_, err := tx.ExecContext(ctx, "UPDATE register SET value = $1 WHERE name = $2", op.New, op.Register)
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
	return memory{op.Register, op.New}
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
