package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// A Release is how a part releases the lock of a term that has ended, as by a transfer. If it returns false, the kernel
// releases the lock. An error leaves the lock in doubt, so it ends the session.
type Release = func(ctx context.Context, s *Session) (released bool, err error)

// ReleaseBy says how the end of the term releases the lock. The kernel says when.
func (l *Lock) ReleaseBy(r Release) { l.by.Store(&r) }

// GiveUp releases locks that nobody leads with, such as those of cancelled campaigns. It does nothing to the lock of a term: only
// the term's end releases that lock. It returns the first error.
func GiveUp(locks ...*Lock) (failed error) {
	locks = slices.DeleteFunc(slices.Clone(locks), func(l *Lock) bool {
		return l == nil || !l.state.CompareAndSwap(granted, leaving) && !l.state.CompareAndSwap(confirmed, leaving)
	})
	for _, l := range locks {
		l.s.departures.add(l)
	}
	for _, l := range locks {
		if l.state.Load() == leaving && l.s.ctx.Err() == nil { // else it has left with the others, or with the session
			failed = cmp.Or(failed, l.s.unlock(l))
		}
		if l.own {
			l.s.Close()
		}
	}
	return failed
}

// release releases the lock of a term that has ended. It returns nil only if the server says that the session held the lock.
func (l *Lock) release() error {
	l.state.Store(leaving)
	if by := l.by.Load(); by != nil {
		done, err := (*by)(l.s.ctx, l.s)
		if err != nil {
			return l.s.lose(fmt.Errorf("unlock: %w", err))
		}
		if done {
			l.hasLeft()
			return nil
		}
	}
	l.s.departures.add(l)
	return l.s.unlock(l)
}

// hasLeft records that the session does not hold the lock any more.
func (l *Lock) hasLeft() {
	l.s.held.remove(l.key)
	l.state.Store(released)
}

var errNotHeld = errors.New("the session did not hold the lock")

// departures are the locks that are to be released. One statement releases all that come while the session is busy.
type departures struct {
	mu    sync.Mutex
	locks []*Lock
}

func (d *departures) add(l *Lock) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.locks = append(d.locks, l)
}

func (d *departures) take() []*Lock {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.locks
	d.locks = nil
	return all
}

// unlock releases a lock together with all other departures. The first caller releases them all, and the other callers find
// that their locks are released. If the session did not hold a lock, the session is lost.
func (s *Session) unlock(l *Lock) error {
	all := sync.OnceValue(s.departures.take) // the call may be repeated
	_, err := s.call(context.Background(), func(ctx context.Context, c *pin.Conn) error {
		locks := all()
		if len(locks) == 0 {
			return nil
		}
		keys, err := s.statements.Unlock(ctx, c, keysOf(locks))
		left := map[int64]bool{}
		for _, key := range keys {
			left[key] = true
		}
		for _, l := range locks {
			if left[l.key] {
				l.hasLeft()
			} else if err == nil {
				err = s.notHeld(ctx, c, l.key)
			}
		}
		if err != nil && !pgerr.IsMissingStatement(err) { // before the next call, of a lock that was among these
			s.cancel(s.causeOf(notReleased(err)))
		}
		return err
	})
	switch {
	case l.state.Load() == released:
		return nil
	case err == nil && s.ctx.Err() != nil: // by the call that was to release this lock, too
		err = context.Cause(s.ctx)
	case err == nil:
		err = errNotHeld
	}
	err = notReleased(err)
	s.cancel(s.causeOf(err))
	return err
}

func notReleased(err error) error {
	return pgerr.Wrap(pgerr.ErrSessionLost, fmt.Errorf("unlock: %w", pgerr.Explain(err)))
}

// notHeld says why the session did not hold a lock.
func (s *Session) notHeld(ctx context.Context, c *pin.Conn, key int64) error {
	held, a, err := s.statements.Holds(ctx, c, key)
	if err == nil {
		err = s.Judge(a)
	}
	switch {
	case err != nil:
		return err
	case held: // the session was moved from the lock, and back
		return pgerr.ErrSessionPooled
	}
	return errNotHeld
}

func keysOf(locks []*Lock) []int64 {
	keys := make([]int64, len(locks))
	for i, l := range locks {
		keys[i] = l.key
	}
	return keys
}
