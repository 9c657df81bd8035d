package elector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/pgelector/pgelector/db"
)

// A watched session holds one more advisory lock, of a random key, and another
// connection of ours is parked in the server for that lock. It is granted the
// moment the session's backend ends, so the loss is known without waiting for
// the next heartbeat, on any driver. The session itself stays idle: its backend
// goes on reading from its client, and frees the locks at once when that dies.
//
// (Sleeping on the session's own connection would tell as fast, but a backend
// that sleeps does not notice the death of its client, a resignation has to
// cancel the sleep, and the lease begins only after it.)

// watch waits for the end of the session's backend, until the session ends. If
// the watching connection breaks, both may have gone: a heartbeat tells.
func (v *server) watch(s *session) {
	key := int64(rand.Uint64())
	if err := s.holdAlso(key); err != nil {
		s.raiseSuspicion()
		return
	}
	for s.ctx.Err() == nil {
		w, err := v.open(s.ctx, key)
		if err != nil {
			sleep(s.ctx, s.lease.heartbeat)
			continue
		}
		ended := false
		for err == nil && !ended {
			_, ended, err = v.await(s.ctx, w, key)
		}
		w.discard()
		if ended {
			s.cancel(fmt.Errorf("%w: its backend (%d) has ended", ErrSessionLost, s.pid))
		}
		s.raiseSuspicion()
	}
}

// holdAlso takes another lock on the session.
func (s *session) holdAlso(key int64) error {
	rows, err := do(s.ctx, s, func(ctx context.Context, q *db.Queries) ([]db.TryLocksRow, error) {
		return q.TryLocks(ctx, encode([]string{strconv.FormatInt(key, 10)}))
	})
	if err == nil && (len(rows) != 1 || !rows[0].Granted) {
		err = ErrNoAdvisoryLocks
	}
	return err
}

// raiseSuspicion asks for a heartbeat at once.
func (s *session) raiseSuspicion() {
	select {
	case s.suspect <- struct{}{}:
	default:
	}
}
