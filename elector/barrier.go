package elector

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/hooks"
)

// barrier is one election's guard lock, for the Tokens query.
type barrier struct {
	Key  int64 `json:"key"`
	High int32 `json:"high"`
	Low  int32 `json:"low"`
}

// confirm verifies what was granted, passes the barrier and reads the token:
// nothing else may see the term before all of it is done.
func (v *server) confirm(ctx context.Context, s *session, key int64) (token int64, held bool, err error) {
	high, low := guard(key)
	row, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (db.ConfirmRow, error) {
		return q.Confirm(ctx, db.ConfirmParams{Key: key, GuardHigh: high, GuardLow: low})
	})
	switch {
	case err != nil:
		err = fmt.Errorf("elector: verify the lock, and wait for the fenced transactions of the last term: %w", explain(err))
		if errors.Is(err, s.late) || sqlState(err) == "57014" {
			v.barred = &key // perhaps: it has taken too long
		}
		return 0, false, err
	case row.Pid != s.pid:
		return 0, false, fmt.Errorf("%w: backend %d was asked for the lock, then %d answered", ErrSessionPooled, s.pid, row.Pid)
	case s.left() <= 0:
		return 0, false, s.tooLate()
	}
	return row.Token, row.Held, nil
}

// unbar has overdue transactions ended at whose barrier the last attempt waited in
// vain. If they cannot be, that is reported, and the next attempt waits again.
func (v *server) unbar(ctx context.Context) {
	if v.barred == nil {
		return
	}
	key := *v.barred
	v.barred = nil
	if err := v.with(ctx, func(s *session) error { return endOverdue(ctx, s, key) }); err != nil {
		v.report(ctx, hooks.Failure{Op: hooks.OpCampaign, Err: err})
	}
}

// endOverdue has the server end fenced transactions that have had their lease.
// The timeouts that InTx sets do so by themselves, but none runs while the server
// waits for a frozen client in the middle of a result or of a COPY.
func endOverdue(ctx context.Context, s *session, key int64) error {
	_, err := do(ctx, s, func(ctx context.Context, q *db.Queries) ([]db.EndOverdueRow, error) {
		return q.EndOverdue(ctx, db.EndOverdueParams{Key: key, LeaseMillis: s.lease.length.Milliseconds()})
	})
	if err != nil {
		return fmt.Errorf("elector: end the overdue transactions of the last term, whose role this one may not be allowed to signal: %w", err)
	}
	return nil
}
