package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// barrier is one election's guard lock, for the Tokens query.
type barrier struct {
	Key  int64 `json:"key"`
	High int32 `json:"high"`
	Low  int32 `json:"low"`
}

// confirm verifies what was granted, passes the barrier and reads the token:
// nothing else may see the term before all of it is done.
func (v *Server) confirm(ctx context.Context, s *Session, key int64) (token int64, held bool, err error) {
	high, low := guard(key)
	row, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (db.ConfirmRow, error) {
		return q.Confirm(ctx, db.ConfirmParams{Key: key, GuardHigh: high, GuardLow: low})
	})
	switch {
	case err != nil:
		err = fmt.Errorf("elector: verify the lock, and wait for the fenced transactions of the last term: %w", explain(err))
		if errors.Is(err, s.late) || pgerr.State(err) == "57014" {
			v.barred = &key // perhaps: it has taken too long
		}
		return 0, false, err
	case row.InTransaction:
		return 0, false, s.outside(true)
	case row.Pid != s.pid:
		return 0, false, fmt.Errorf("%w: backend %d was asked for the lock, then %d answered", ErrSessionPooled, s.pid, row.Pid)
	case s.left() <= 0:
		return 0, false, s.tooLate()
	case !row.Held:
		return 0, false, nil
	}
	token, err = addEpoch(row.Token, v.config.TokenEpoch, row.Epoch)
	return token, err == nil, err
}

// confirmGranted is confirm of a lock that the server says it has just granted.
func (v *Server) confirmGranted(ctx context.Context, s *Session, key int64) (token int64, err error) {
	token, held, err := v.confirm(ctx, s, key)
	if err == nil && !held {
		err = ErrNoAdvisoryLocks
	}
	return token, err
}

// terminateOverdue has overdue transactions ended at whose barrier the last attempt waited in
// vain. If they cannot be, that is reported, and the next attempt waits again.
func (v *Server) terminateOverdue(ctx context.Context) {
	if v.barred == nil {
		return
	}
	key := *v.barred
	v.barred = nil
	if err := v.with(ctx, func(s *Session) error { return s.EndOverdue(ctx, key) }); err != nil {
		v.config.Report(ctx, hooks.Failure{Op: hooks.OpCampaign, Err: err})
	}
}

// EndOverdue has the server end fenced transactions that have had their lease.
// The timeouts that InTx sets do so by themselves, but none runs while the server
// waits for a frozen client in the middle of a result or of a COPY.
func (s *Session) EndOverdue(ctx context.Context, key int64) error {
	_, err := do(ctx, s, func(ctx context.Context, q *db.Queries) ([]db.EndOverdueRow, error) {
		return q.EndOverdue(ctx, db.EndOverdueParams{Key: key, LeaseMillis: s.lease.Length.Milliseconds()})
	})
	if err != nil {
		return fmt.Errorf("elector: end the overdue transactions of the last term, whose role this one may not be allowed to signal: %w", err)
	}
	return nil
}

// Fence makes the transaction, on any connection of the same database, one that
// the next holder of the lock waits for; and bounds how long that can be. It
// returns an error, and the transaction must be rolled back, if the session does not
// hold the lock any more, or the next is already waiting (both ErrNotLeader, and the
// session has ended), or if the role may not see the session (ErrSessionHidden).
func (tx *Tx) Fence(ctx context.Context, key int64) error {
	s := tx.session
	began, err := s.backendStart(ctx)
	switch {
	case err != nil && ctx.Err() != nil: // and nothing is known
		return err
	case err != nil:
		return fmt.Errorf("%w: ask the session when it began: %w", ErrNotLeader, s.lose(err))
	}
	high, low := guard(key)
	term := db.EnterTermParams{
		GuardHigh: high, GuardLow: low, Key: key, Pid: s.pid, Started: began, Settings: encode(fenceSettings(s.lease)),
	}
	outcome, err := backoff.Await(ctx, func(ctx context.Context) (string, error) { return db.New(tx.Tx).EnterTerm(ctx, term) })
	if err != nil {
		tx.Suspect(ctx, err)
		return fmt.Errorf("elector: enter the term: %w", err)
	}
	switch outcome {
	case "entered":
		return nil
	case "hidden":
		return ErrSessionHidden
	}
	return tx.refused(ctx, key, outcome)
}

// refused is why the transaction could not enter its term. It rolls back before it asks
// the session, which may take its time: the next leader waits for the transaction.
func (tx *Tx) refused(ctx context.Context, key int64, outcome string) error {
	s := tx.session
	var reached db.IdentifyRow
	unknown := errors.New("the next leader has the lock")
	if outcome != "superseded" {
		reached, unknown = backoff.Await(ctx, db.New(tx.Tx).Identify)
	}
	tx.Rollback()
	switch err := s.Verify(ctx, key); {
	case errors.Is(err, ErrSessionLost):
		return pgerr.Wrap(ErrNotLeader, err)
	case err != nil:
		return err
	case outcome == "superseded":
		return fmt.Errorf("%w: a next leader waits for the last transactions of this term", ErrNotLeader)
	case unknown == nil:
		return s.elsewhere(ctx, identity{reached})
	}
	return fmt.Errorf("%w: the session of the term (backend %d) holds its lock, but not on the server and database of this pool", ErrNotLeader, s.pid)
}

// backendStart is when the session's backend began, by the server's word: asked
// once.
func (s *Session) backendStart(ctx context.Context) (int64, error) {
	if began := s.began.Load(); began != 0 {
		return began, nil
	}
	began, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (int64, error) { return q.BackendStart(ctx) })
	s.began.Store(began) // 0 if there was no answer
	return began, err
}

// fenceSettings bound a fenced transaction.
func fenceSettings(l Lease) []setting {
	bound := fmt.Sprintf("%dms", l.Length.Milliseconds())
	return []setting{
		{"statement_timeout", bound},
		{"idle_in_transaction_session_timeout", bound},
		{"transaction_timeout", bound},
	}
}
