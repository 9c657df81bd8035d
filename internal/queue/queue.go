// Package queue is what a candidate does on a session that waits in the server's queue for a lock, or is to be fast when its turn
// comes.
package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/seat"
	"github.com/pgelector/pgelector/internal/transaction"
)

// LeastWait is the least time that a wait takes, unless the server permits no wait.
const LeastWait = 100 * time.Millisecond

// CloseDelay is how long a leader that has resigned keeps its connections, so that the server serves the next leader first.
// Measured: a hand-over takes some 2 ms, and 6 ms if the connections are closed at the same time.
const CloseDelay = 10 * time.Millisecond

// Prepare applies the session settings, and makes the session's tries wait.
func Prepare(ctx context.Context, s *election.Session, w seat.Wait) error {
	inside := transaction.IsOf(s)
	row, err := election.Ask(ctx, s, (*db.Queries).PrepareWait, db.PrepareWaitParams{Settings: election.Encode(w.Settings(s.Source().Settings())), Inside: inside})
	if err != nil {
		return fmt.Errorf("elector: set the session up: %w", pgerr.Explain(err))
	}
	answer := election.Answer{PID: row.Pid, InRecovery: row.InRecovery}
	if inside { // the transaction has a mark, by which its own statements are judged
		answer.PID = 0
	}
	if err = s.Judge(answer); err != nil {
		return err
	}
	waiter := s.Answerer().(seat.Waiter)
	waiter.Sets(row)
	waiter.Waits(true)
	return nil
}

// WarmUp prepares and makes the statements of a grant and a release, for a lock that the
// session does not hold. A backend is slow to answer a query for the first time (it loads,
// plans, and drivers prepare), and would be so just when the others wait for a leader:
// warmed up, a hand-over takes half as long. It also shows whether the server's locks are
// real. A transaction is not warmed up: it would keep the trial's lock.
func WarmUp(ctx context.Context, s *election.Session, statements ...string) error {
	if transaction.IsOf(s) {
		return nil
	}
	key := int64(rand.Uint64())
	high, low := lockkey.Halves(key)
	err := s.Prepare(ctx, statements...)
	if err == nil {
		var shown bool
		if shown, err = election.Ask(ctx, s, (*db.Queries).TrialLock, db.TrialLockParams{Key: key, High: high, Low: low}); err == nil && !shown {
			err = seat.NotShown(s.Answerer())
		}
	}
	if err != nil {
		return fmt.Errorf("elector: warm the session up: %w", pgerr.Explain(err))
	}
	row, err := election.Ask(ctx, s, (*db.Queries).Confirm, db.ConfirmParams{Pid: s.PID(), Key: key, GuardHigh: high, GuardLow: low})
	switch {
	case err != nil:
		return fmt.Errorf("elector: warm the session up: %w", pgerr.Explain(err))
	case row.InTransaction:
		return pgerr.ErrOpenTransaction
	}
	return s.Judge(election.Answer{PID: row.Pid})
}

// unhurried is how long a new leader has its session to itself.
const unhurried = 100 * time.Millisecond

// PrepareRelease prepares the release of a lock for which another session will wait in the server.
// Unprepared, it takes one round trip more. Measured: a hand-over then takes 1.9 ms, not 1.6.
func PrepareRelease(s *election.Session) {
	if !transaction.IsOf(s) && backoff.Sleep(s.Context(), unhurried) {
		_ = s.Prepare(s.Context(), db.Unlock) // if that fails, so does a heartbeat
	}
}
