package session

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pin"
)

// A watched session holds one more advisory lock, of a random key, and a second connection
// waits for that lock in the server. It is granted the moment the session's backend ends, so
// the loss is known before the next heartbeat, on any driver. No list of elections shows it,
// because the key is in the space of two integers. The session itself stays idle: its backend
// reads from its client, and frees the locks at once when that dies.
//
// (A sleep on the session's own connection would end as soon. But a backend that sleeps does
// not notice the death of its client, a resignation has to cancel the sleep, and the lease
// begins only after it.)

// watch waits for the end of the session's backend, until the session ends. If the watching
// connection breaks, both may have gone: a heartbeat is sent. A term that cannot be watched
// goes on, and that is reported.
func (v *Server) watch(s *Session) {
	ctx, stop := lingering(s.ctx, func() time.Duration { return pin.CloseGrace })
	defer stop()
	key, held, failures := int64(rand.Uint64()), false, 0
	again := backoff.Backoff{Min: s.lease.Heartbeat / 10, Max: s.lease.Heartbeat}
	for {
		var err error
		if !held {
			err = s.holdPair(key, ErrNoAdvisoryLocks)
			held = err == nil
		}
		if held {
			err = v.awaitEnd(ctx, s, key, func() { failures = 0 })
		}
		if s.ctx.Err() != nil {
			return
		}
		s.raiseSuspicion()
		if failures++; failures == 2 { // one may be the end of both
			v.Report(s.ctx, Watching, fmt.Errorf("elector: cannot watch the leader's backend; the next heartbeat will detect its end: %w", Explain(err)))
		}
		backoff.Sleep(s.ctx, backoff.Jitter(again.After(failures)))
	}
}

// awaitEnd waits on a second connection until the session has ended, or an error. It calls
// waited after each wait.
func (v *Server) awaitEnd(ctx context.Context, s *Session, key int64, waited func()) error {
	w, err := v.OpenChecked(ctx, key)
	if err != nil {
		return err
	}
	defer w.Discard()
	for fresh := true; ; {
		if fresh {
			if err := w.findHeld(ctx, key, s); err != nil {
				return err
			}
		}
		began := time.Now()
		if err := w.Wait(ctx); err != nil {
			return err
		}
		ended, err := w.has(ctx, key)
		switch {
		case err != nil:
			return err
		case ended && s.ending.Load(): // with its transaction, not with its backend
			<-s.ctx.Done()
			return nil
		case ended:
			s.pin.SetBroken() // there is nothing to keep
			s.cancel(fmt.Errorf("%w: its backend (%d) has ended", ErrSessionLost, s.pid))
			return nil
		}
		waited()
		if fresh = w.InTransaction(); fresh { // CREATE INDEX CONCURRENTLY waits for the end of one in which a wait was seen
			if err = w.Anew(ctx); err == nil {
				err = v.PrepareWait(ctx, w, Watcher, key, v.Lease.Heartbeat)
			}
			if err != nil {
				return err
			}
		}
		if time.Since(began) < LeastWait { // the server permits no wait, or somebody has cancelled it
			backoff.Sleep(ctx, LeastWait)
		}
	}
}

// findHeld returns an error if the lock of the watched session is free before a wait. The backend
// may have ended, or the pool leads to another server by now, which the watched session compares
// with its own.
func (s *Session) findHeld(ctx context.Context, key int64, watched *Session) error {
	free, err := tryPair(ctx, s, key, false, Do)
	if err != nil || !free {
		return err
	}
	if reached, err := s.identify(ctx); err == nil {
		watched.met.Store(&reached)
	}
	return errWatchedElsewhere
}

// HoldLife takes the session's life lock. Its key can be guessed, so a stranger may hold it.
func (s *Session) HoldLife(candidateID string) error {
	return s.holdPair(LifeKey(candidateID, s.pid), errLifeTaken)
}

// Name is the key of a lock of two integers by which fenced transactions know the session. The first
// call takes it. In transaction scope the transaction has a name.
func (s *Session) Name(ctx context.Context) (int64, error) {
	if s.inside || s.named.Load() {
		return s.name, nil
	}
	granted, err := tryPair(ctx, s, s.name, false, Do)
	if err == nil && !granted {
		return 0, errLifeTaken
	}
	if err == nil {
		s.named.Store(true)
	}
	return s.name, err
}

// holdPair takes a lock of two integers of this session's own. It returns taken if another has it.
func (s *Session) holdPair(key int64, taken error) error {
	granted, err := s.TryPair(key)
	if err == nil && !granted {
		err = taken
	}
	return err
}

// TryPair tries the lock of two integers, the halves of key. An error does not end the
// session's transaction.
func (s *Session) TryPair(key int64) (granted bool, err error) {
	return tryPair(s.ctx, s, key, false, behindSavepoint)
}

func tryPair(ctx context.Context, s *Session, key int64, forNow bool, do asker[bool]) (granted bool, err error) {
	high, low := Halves(key)
	return do(ctx, s, func(ctx context.Context, q *db.Queries) (granted bool, err error) {
		if !s.forNow {
			granted, err = q.TryPair(ctx, db.TryPairParams{Inside: s.inside, High: high, Low: low})
			s.forNow = granted && forNow
		}
		return granted, err
	})
}

// TryForNow tries the lock of two integers, the halves of key, which LetGo releases. Inside a
// transaction only ROLLBACK TO can release a lock, with all that were taken after it. So there can
// be one such lock at a time, and while there is, none of two integers is granted. drop is called
// if ctx ends first and the lock is granted later.
func (s *Session) TryForNow(ctx context.Context, key int64, drop func()) (granted bool, err error) {
	return tryPair(ctx, s, key, s.inside, func(ctx context.Context, s *Session, try func(context.Context, *db.Queries) (bool, error)) (bool, error) {
		return tryOr(ctx, s, try, func(late bool) {
			if late {
				drop()
			}
		})
	})
}

// LetGo releases the lock of TryForNow. It is called within Do, and reports whether the session
// had the lock until then.
func (s *Session) LetGo(ctx context.Context, q *db.Queries, key int64) (held bool, err error) {
	if !s.inside {
		high, low := Halves(key)
		return q.UnlockPair(ctx, db.UnlockPairParams{High: high, Low: low})
	}
	if !s.pin.InTx() { // with which it has ended
		return true, nil
	}
	if err = s.pin.Exec(ctx, db.RollBackToIt); err == nil {
		err = s.pin.Exec(ctx, db.ReleaseIt)
	}
	s.forNow = false
	return true, err
}

// PairIsFree reports whether nobody holds the lock of two integers, the halves of key, exclusively.
func (s *Session) PairIsFree(ctx context.Context, key int64) (bool, error) {
	high, low := Halves(key)
	row, err := Do(ctx, s, func(ctx context.Context, q *db.Queries) (db.PairIsFreeRow, error) {
		return q.PairIsFree(ctx, db.PairIsFreeParams{High: high, Low: low})
	})
	return row.Free, err
}

// has asks pg_locks whether the session holds the lock. A transaction, which would keep the
// lock of pg_locks, takes it again.
func (s *Session) has(ctx context.Context, key int64) (bool, error) {
	if s.inside {
		return tryPair(ctx, s, key, false, Do)
	}
	row, err := Do(ctx, s, func(ctx context.Context, q *db.Queries) (db.HoldsPairRow, error) { return q.HoldsPair(ctx, key) })
	if err == nil {
		err = s.CheckPID(row.Pid)
	}
	return err == nil && row.Held, err
}

// LeastWait is what Wait waits at least, unless the server permits no wait.
const LeastWait = 100 * time.Millisecond

// Wait waits for the lock that PrepareWait has named, for a bounded time. pg_locks shows
// whether it was granted.
func (s *Session) Wait(ctx context.Context) error {
	_, err := Do(ctx, s, func(ctx context.Context, q *db.Queries) (any, error) { return nil, q.WaitLock(ctx) })
	if err != nil {
		return fmt.Errorf("elector: wait for the lock: %w", Explain(err))
	}
	return nil
}
