package election

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/pgelector/pgelector/internal/pin"
)

// A Release is how a part releases the lock of a term that has ended, as by a transfer. If it returns false, the kernel
// releases the lock. An error leaves the lock in doubt, so it ends the session.
type Release = func(ctx context.Context, s *Session) (released bool, err error)

// ReleaseBy says how the end of the term releases the lock. The kernel says when.
func (l *Lock) ReleaseBy(r Release) { l.by.Store(&r) }

// GiveUp releases a lock that nobody leads with, as of a campaign that was cancelled. If a term has begun, GiveUp does
// nothing: only the term's end releases its lock.
func (l *Lock) GiveUp() {
	if l == nil || !l.state.CompareAndSwap(granted, leaving) && !l.state.CompareAndSwap(confirmed, leaving) {
		return
	}
	if err := l.s.unlock(l); err != nil {
		l.s.from.Report("release", err)
	}
	if l.own {
		l.s.Close()
	}
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
	return l.s.unlock(l)
}

// hasLeft records that the session does not hold the lock any more.
func (l *Lock) hasLeft() {
	l.s.held.remove(l.key)
	l.state.Store(released)
}

var errNotHeld = errors.New("the session did not hold the lock")

// departures are the locks that are to leave a session. All that come while the session is busy leave in one statement.
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

// unlock releases a lock, with the others that are to leave. Whoever comes first releases all, and the others find that their
// locks are released. If the session did not hold a lock, the session is lost.
func (s *Session) unlock(l *Lock) error {
	s.departures.add(l)
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
			}
		}
		return err
	})
	if l.state.Load() == released {
		return nil
	}
	if err == nil {
		err = errNotHeld
	}
	return s.lose(fmt.Errorf("unlock: %w", err))
}

func keysOf(locks []*Lock) []int64 {
	keys := make([]int64, len(locks))
	for i, l := range locks {
		keys[i] = l.key
	}
	return keys
}
