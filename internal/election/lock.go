package election

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// The states of a Lock. Each transition is made once.
//
//	granted ──Session.Confirm──▶ confirmed ──a term begins──▶ led ──stepDown──▶ leaving ──▶ released
//	   └───────────GiveUp────────────┴──────────────────────────────────────────▶
const (
	none      = int32(iota) // of a Lock that the kernel has not made
	granted                 // the server says so
	confirmed               // pg_locks shows the lock, no fenced transaction of an earlier term goes on, and there is a token
	led                     // a term has begun
	leaving                 // the release is under way
	released
)

// A Lock is an election's lock, held on a session. It has no exported fields, and only Session.Try makes one.
type Lock struct {
	s        *Session
	key      int64
	token    int64
	timeline int64
	own      bool // the session is for this lock alone, and ends with the lock
	perhaps  bool // the server may not have granted the lock: see Tried
	state    atomic.Int32
	by       atomic.Pointer[Release]
}

// Key is the key of the election.
func (l *Lock) Key() int64 { return l.key }

// Session is the session that holds the lock.
func (l *Lock) Session() *Session { return l.s }

// IsOwn reports whether the session is for this lock alone.
func (l *Lock) IsOwn() bool { return l.own }

// IsWaiting reports whether the lock waits at its barrier: Confirm has to be called again.
func (l *Lock) IsWaiting() bool { return l.state.Load() == granted }

// begin reports whether a term may begin with the lock. That happens at most once.
func (l *Lock) begin(key int64) bool {
	return l != nil && l.key == key && l.state.CompareAndSwap(confirmed, led)
}

// Try tries locks. The session must not hold them already: the server would grant them once more. The result has a Lock for each
// want that was granted.
func (s *Session) Try(ctx context.Context, wants ...Want) (locks []*Lock, tried []Tried, err error) {
	for i, want := range wants {
		if !s.held.add(want.Key) {
			for _, before := range wants[:i] {
				s.held.remove(before.Key)
			}
			return nil, nil, errTwice
		}
	}
	tried, err = ask(ctx, s, func(ctx context.Context, c *pin.Conn) ([]Tried, Answer, error) {
		tried, from, err := s.statements.Try(ctx, c, s.from.Settings(), wants)
		if moved, ok := errors.AsType[*Moved](s.Judge(from)); ok && err == nil {
			for i, t := range tried[:min(len(tried), len(wants))] {
				if t.Granted {
					moved.Granted = append(moved.Granted, wants[i].Key)
				}
			}
			err = moved
		}
		return tried, from, err
	})
	if err == nil && len(tried) != len(wants) {
		err = errCount
	}
	if err != nil {
		return nil, nil, s.inDoubt(fmt.Errorf("elector: try the lock: %w", pgerr.Explain(err)))
	}
	s.from.primary.Store(true)
	locks = make([]*Lock, len(wants))
	for i, t := range tried {
		if !t.Granted && !t.Perhaps {
			s.held.remove(wants[i].Key)
		} else {
			locks[i] = &Lock{s: s, key: wants[i].Key, perhaps: t.Perhaps}
			locks[i].state.Store(granted)
			s.held.grant()
		}
	}
	return locks, tried, nil
}

// errTwice is returned when a session holds a lock that it is to try, or tries that lock on another goroutine.
var errTwice = errors.New("elector: the session holds this lock already, or is trying it") // a fault of the acquirer

// errCount is returned when an answerer does not answer for each lock.
var errCount = errors.New("elector: the statements did not answer for each lock") // a fault of the answerer

// inDoubt ends a session that may have other locks, because nobody knows what the server answered. It does not end a session
// that was only lent: the owner discards that session.
func (s *Session) inDoubt(err error) error {
	if s.started.Load() {
		return s.lose(err)
	}
	return err
}

// ErrAtBarrier is returned when a lock was granted, and the statement that confirms it was not answered in time or was
// cancelled. The statement may have waited at the barrier, for a fenced transaction of an earlier term.
var ErrAtBarrier = errors.New("elector: verify the lock, and wait for the fenced transactions of the last term")

// Confirm confirms locks that Try has returned. No term is visible before Confirm is done: an answer that is read too late
// confirms nothing. If the barrier of a lock is not passed, the lock stays granted (IsWaiting): call Confirm again later.
// refused has the errors of single locks; the session goes on with the other locks. A session that was only lent is kept alive
// from now on, for this one lock.
func (s *Session) Confirm(ctx context.Context, locks ...*Lock) (refused map[*Lock]error, err error) {
	rows, err := ask(ctx, s, func(ctx context.Context, c *pin.Conn) ([]Confirmed, Answer, error) {
		return s.statements.Confirm(ctx, c, keysOf(locks))
	})
	if err == nil {
		err = s.proof.CheckInTime()
	}
	if err == nil && len(rows) != len(locks) {
		err = errCount
	}
	refused = map[*Lock]error{}
	switch {
	case err == nil:
	case s.started.Load() && tellsNothing(err): // as of a statement that was cancelled: the session holds the locks still
		for _, l := range locks {
			refused[l] = fmt.Errorf("%w: %w", ErrAtBarrier, pgerr.Explain(err))
		}
		return refused, nil
	default:
		return nil, s.inDoubt(fmt.Errorf("%w: %w", ErrAtBarrier, pgerr.Explain(err)))
	}
	for i, l := range locks {
		if err := s.confirm(ctx, l, rows[i]); err != nil {
			refused[l] = err
		}
	}
	if !s.started.Load() && len(locks) == 1 && len(refused) == 0 && !locks[0].IsWaiting() {
		locks[0].own = true
		s.start()
	}
	return refused, nil
}

// confirm confirms one lock, by the server's answer.
func (s *Session) confirm(ctx context.Context, l *Lock, row Confirmed) error {
	switch {
	case l.s != s:
		return errors.New("elector: the lock is held on another session") // a fault of the acquirer
	case row.Err != nil:
		return row.Err
	case !row.Held && l.perhaps:
		l.hasLeft()
		return errNotGranted
	case !row.Held:
		return s.inDoubt(errReleased)
	case !row.Passed:
		return nil
	}
	timeline, token, err := TokenOf(row.Token, s.from.TokenEpoch, row.Epoch)
	if err == nil {
		err = each(s.from.Parts, func(p Part) error { return p.Granted(ctx, s, Grant{l.key, timeline}) })
	}
	if err == nil {
		l.token, l.timeline = token, timeline
		l.state.CompareAndSwap(granted, confirmed)
	}
	return err
}

// errNotGranted is returned when a lock that the server had perhaps granted turns out to be busy.
var errNotGranted = errors.New("elector: the lock is busy")

// errReleased is returned when the session does not hold a lock that the server has just granted.
var errReleased = errors.New("elector: the lock was granted, and is gone: does other code, or the driver, release all advisory locks " +
	"of its connections (pg_advisory_unlock_all, DISCARD ALL)?")

// Verify asks the server whether the session still holds the lock. If not, the session is lost. The call judges the answer: an
// answer that comes after ctx has ended may still end the session.
func (l *Lock) Verify(ctx context.Context) error {
	left, err := ask(ctx, l.s, func(ctx context.Context, c *pin.Conn) (left bool, a Answer, err error) {
		held, a, err := l.s.statements.Holds(ctx, c, l.key)
		if err == nil && !held && (a == Answer{} || a == l.s.answered()) {
			if l.state.Load() != led { // it was released before the question reached the server
				return true, a, nil
			}
			err = fmt.Errorf("%w: backend %d does not hold the lock", pgerr.ErrSessionLost, a.PID)
		}
		if tellsNothing(err) && pgerr.State(err) != "57014" { // unless somebody has cancelled the question
			err = pgerr.Wrap(pgerr.ErrSessionLost, err)
		}
		return false, a, err
	})
	if err == nil && left {
		err = pgerr.ErrNotLeader
	}
	return err
}
