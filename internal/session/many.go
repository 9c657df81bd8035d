package session

import (
	"context"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// Many locks on one session. None of these statements is cancelled, which would
// cost the session: each is waited for as long as the session is valid.

// Open opens a session that holds no lock yet, and keeps it alive until it ends
// or is closed.
func (v *Server) Open(ctx context.Context) (s *Session, err error) {
	err = v.withRetry(ctx, func() error {
		if s, err = v.openOutside(ctx, 0); err == nil {
			v.start(s)
		}
		return err
	})
	return s, err
}

// TryLocks asks for the locks of ask, which the session must not hold already,
// because the server would count them twice, and verifies in pg_locks what was
// granted, and have, which it holds. held are the keys of both that it does hold,
// even if err is not nil (as ErrLockTableFull, of a batch that failed half-way);
// nil if the session was lost by it. called are those of ask whose holder calls this
// candidate to be its heir.
func (s *Session) TryLocks(ask, have []int64) (held, called map[int64]bool, err error) {
	granted, called, err := s.tryLocks(ask)
	if err != nil && (pgerr.State(err) == "" || pgerr.Broken(err)) {
		return nil, nil, s.lose(err) // in doubt, with all that it holds
	}
	for _, key := range have {
		granted[key] = true
	}
	if len(granted) == 0 && err == nil {
		return granted, called, nil
	}
	all, lost := s.heldLocks()
	if lost != nil {
		return nil, nil, s.lose(lost)
	}
	for key := range granted {
		if !all[key] {
			return nil, nil, s.lose(ErrNoAdvisoryLocks)
		}
	}
	for _, key := range ask {
		if all[key] {
			granted[key] = true
		}
	}
	return granted, called, err
}

func (s *Session) tryLocks(keys []int64) (granted, called map[int64]bool, err error) {
	granted, called = map[int64]bool{}, map[int64]bool{}
	if len(keys) == 0 {
		return granted, called, nil
	}
	rows, err := do(context.Background(), s, func(ctx context.Context, q *db.Queries) ([]db.TryLocksOrHearRow, error) {
		return q.TryLocksOrHear(ctx, db.Keys(keys...))
	})
	if err != nil {
		return granted, called, fmt.Errorf("elector: try %d locks: %w", len(keys), explain(err))
	}
	for _, row := range rows {
		switch row.Outcome {
		case outcomeGranted:
			granted[row.Key] = true
		case outcomeCalled:
			called[row.Key] = true
		}
	}
	return granted, called, nil
}

func (s *Session) heldLocks() (map[int64]bool, error) {
	keys, err := do(context.Background(), s, func(ctx context.Context, q *db.Queries) ([]int64, error) { return q.HeldLocks(ctx) })
	if err != nil {
		return nil, fmt.Errorf("elector: verify the locks: %w", err)
	}
	held := map[int64]bool{}
	for _, key := range keys {
		held[key] = true
	}
	return held, nil
}

// Tokens are those of the locks whose barrier is passed. The others still have a
// fenced transaction in flight, and are to be asked for again. epoch is that of
// WithTokenEpoch. ErrLockTableFull is returned if there is no room to pass so many at
// once, ErrTokenEpoch if there is no token to be had; by any other error the session
// was lost.
func (s *Session) Tokens(keys []int64, epoch int64) (map[int64]int64, error) {
	guards := make([]barrier, 0, len(keys))
	for _, key := range keys {
		high, low := guard(key)
		guards = append(guards, barrier{Key: key, High: high, Low: low})
	}
	rows, err := do(context.Background(), s, func(ctx context.Context, q *db.Queries) ([]db.TokensRow, error) { return q.Tokens(ctx, encode(guards)) })
	if err != nil {
		err = fmt.Errorf("elector: pass the barriers and read the tokens: %w", explain(err))
		if pgerr.State(err) == "53200" {
			return nil, err
		}
		return nil, s.lose(err)
	}
	if s.left() <= 0 {
		return nil, s.lose(s.tooLate())
	}
	tokens := map[int64]int64{}
	for _, row := range rows {
		token, err := addEpoch(row.Token, epoch, row.Epoch)
		if err != nil {
			return nil, err
		}
		if row.Passed {
			tokens[row.Key] = token
		}
	}
	return tokens, nil
}

// Leaders are the holders of those of the locks that are held. It has none if the
// server cannot be asked, which the next statement on the session tells.
func (s *Session) Leaders(keys []int64) map[int64]Holder {
	if len(keys) == 0 {
		return nil
	}
	rows, _ := do(context.Background(), s, func(ctx context.Context, q *db.Queries) ([]db.LeadersRow, error) {
		return q.Leaders(ctx, db.Keys(keys...))
	})
	leaders := map[int64]Holder{}
	for _, row := range rows {
		leaders[row.Key] = Holder{PID: row.Pid, CandidateID: row.ApplicationName}
	}
	return leaders
}
