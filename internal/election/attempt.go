package election

import (
	"context"
	"errors"
	"time"
)

// An Outcome is how an attempt ended.
type Outcome int

const (
	Failed  Outcome = iota // Err says why
	Refused                // as Failed, and no retry will help
	Busy                   // another session holds the lock
	Granted                // Lock is confirmed
)

// An Attempt is the result of one attempt.
type Attempt struct {
	Outcome Outcome
	Lock    *Lock
	Holder  Holder   // of a busy lock, if the election wants to know
	Seen    any      // what else the acquirer has seen of the holder
	Kept    *Session // busy, and the session is worth keeping: it belongs to the acquirer now
	Err     error

	Paced bool // the acquirer waits by itself, so the campaign does not
	Hurry bool // the acquirer asks for quick attempts while the server is away
	Named bool // the holder has offered the lock to this candidate

	BusyAt time.Time // the beginning of the last look that found the lock busy; zero if none did

	// The campaign fills these in.
	Next     time.Duration // how long the campaign waits; 0 if the campaign is over, or the acquirer waits
	Counts   bool          // a failure that is no quick attempt
	Failures int           // failures that count, in a row
	Over     bool          // the campaign is over: with the lock, or with Err
}

// Attempt makes one attempt, on a session of its own.
func (e *Election) Attempt(ctx context.Context) (a Attempt) { return e.AttemptOn(ctx, e.source.Lend) }

// AttemptOn makes one attempt, on the session that lend returns.
func (e *Election) AttemptOn(ctx context.Context, lend func(context.Context) (*Session, error)) (a Attempt) {
	if err := e.source.Retry(ctx, func() error {
		s, err := lend(ctx)
		if err == nil {
			a, err = e.tryOn(ctx, s)
		}
		return err
	}); err != nil {
		return e.source.Fail(err)
	}
	return a
}

// Again makes one attempt on a session that an acquirer keeps.
func (e *Election) Again(ctx context.Context, s *Session) Attempt {
	a, err := e.tryOn(ctx, s)
	if err != nil {
		return e.source.Lost(ctx, err)
	}
	return a
}

// MayKeep asks the parts whether a session that an acquirer keeps may still be used. If not, the session is discarded.
func (from *Source) MayKeep(ctx context.Context, s *Session) error {
	err := each(from.Parts, func(p Part) error { return p.Kept(ctx, s) })
	if err != nil {
		s.Fail(err)
	}
	return err
}

// tryOn tries the lock on a session that is this election's. If the lock is busy, the session goes back to the pool as it
// came, unless the session is worth keeping. After an error the session is discarded: the lock may have been granted.
func (e *Election) tryOn(ctx context.Context, s *Session) (Attempt, error) {
	began := time.Now()
	locks, tried, err := s.Try(ctx, e.Want())
	if err == nil {
		err = tried[0].Err
	}
	switch {
	case err != nil:
	case locks[0] != nil:
		for step := 0; step == 0 || step == 1 && err == nil && locks[0].IsWaiting(); step++ { // an answerer may take two calls
			var refused map[*Lock]error
			if refused, err = s.Confirm(ctx, locks[0]); err == nil {
				err = refused[locks[0]]
			}
		}
		if err == nil && locks[0].IsWaiting() {
			err = errCount
		}
		switch {
		case err == nil:
			return Attempt{Outcome: Granted, Lock: locks[0]}, nil
		case errors.Is(err, errNotGranted):
			return Attempt{Outcome: Busy, Kept: s, BusyAt: began}, nil
		}
	case tried[0].Keep:
		return Attempt{Outcome: Busy, Holder: tried[0].Holder, Kept: s, BusyAt: began}, nil
	default:
		s.GiveBack()
		return Attempt{Outcome: Busy, Holder: tried[0].Holder, BusyAt: began}, nil
	}
	s.Fail(err)
	return Attempt{}, err
}
