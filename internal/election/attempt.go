package election

import (
	"context"
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
	Kept    *Session // busy, and the session is worth keeping: it belongs to the acquirer now
	Err     error

	Paced bool // the acquirer waits by itself, so the campaign does not
	Hurry bool // the acquirer asks for quick attempts while the server is away

	Next   time.Duration // how long the campaign waits; 0 if the campaign is over, or the acquirer waits
	Counts bool          // a failure that is no quick attempt
}

// Attempt makes one attempt, on a session of its own.
func (e *Election) Attempt(ctx context.Context) (a Attempt) {
	if err := e.source.Retry(ctx, func() error {
		s, err := e.source.Lend(ctx)
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
	err := each(e.source.Parts, func(p Part) error { return p.Kept(ctx, s) })
	if err != nil {
		s.Fail(err)
	} else {
		var a Attempt
		if a, err = e.tryOn(ctx, s); err == nil {
			return a
		}
	}
	e.source.checked = false
	return e.source.Fail(err)
}

// tryOn tries the lock on a session that is this election's. If the lock is busy, the session goes back to the pool as it
// came, unless the session is worth keeping. After an error the session is discarded: the lock may have been granted.
func (e *Election) tryOn(ctx context.Context, s *Session) (Attempt, error) {
	locks, tried, err := s.Try(ctx, e.Want)
	if err == nil {
		err = tried[0].Err
	}
	switch {
	case err != nil:
	case locks[0] != nil:
		var refused map[*Lock]error
		if refused, err = s.Confirm(ctx, locks[0]); err == nil {
			err = refused[locks[0]]
		}
		if err == nil {
			return Attempt{Outcome: Granted, Lock: locks[0]}, nil
		}
	case tried[0].Keep:
		return Attempt{Outcome: Busy, Holder: tried[0].Holder, Kept: s}, nil
	default:
		s.giveBack()
		return Attempt{Outcome: Busy, Holder: tried[0].Holder}, nil
	}
	s.Fail(err)
	return Attempt{}, err
}
