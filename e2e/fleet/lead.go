//go:build linux

package fleet

import (
	"context"
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
