package session

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
)

// A watched session holds one more advisory lock, of two random integers, and another
// connection of ours is parked in the server for that lock. No list of elections shows
// it, since elections' locks are in the other key space, that of one bigint. It is granted the
// moment the session's backend ends, so the loss is known without waiting for
// the next heartbeat, on any driver. The session itself stays idle: its backend
// goes on reading from its client, and frees the locks at once when that dies.
//
// (Sleeping on the session's own connection would tell as fast, but a backend
// that sleeps does not notice the death of its client, a resignation has to
// cancel the sleep, and the lease begins only after it.)

// watch waits for the end of the session's backend, until the session ends. If
// the watching connection breaks, both may have gone: a heartbeat tells. A term
// that cannot be watched goes on, and that is reported.
func (v *Server) watch(s *Session) {
	ctx, stop := lingering(s.ctx, closeGrace)
	defer stop()
	key, held, failures := int64(rand.Uint64()), false, 0
	again := backoff.Backoff{Min: s.lease.Heartbeat / 10, Max: s.lease.Heartbeat}
	for {
		var err error
		if !held {
			err = s.holdPair(key)
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
			v.config.Report(s.ctx, hooks.Failure{Op: hooks.OpWatch,
				Err: fmt.Errorf("elector: nobody watches the leader's backend, whose end the next heartbeat would tell: %w", explain(err))})
		}
		backoff.Sleep(s.ctx, backoff.Jitter(again.After(failures)))
	}
}

// awaitEnd parks a connection until the session has ended, or fails. It calls
// waited after each wait.
func (v *Server) awaitEnd(ctx context.Context, s *Session, key int64, waited func()) error {
	w, err := v.openOutside(ctx, key)
	if err != nil {
		return err
	}
	defer w.discard()
	for {
		began := time.Now()
		if err := w.waitPair(ctx); err != nil {
			return err
		}
		if time.Since(began) < s.lease.Heartbeat.Truncate(time.Millisecond) {
			s.raiseSuspicion() // on a dead connection a heartbeat fails sooner than pg_locks answers
		}
		ended, err := w.holdsPair(ctx, key)
		switch {
		case err != nil:
			return err
		case ended:
			s.cancel(fmt.Errorf("%w: its backend (%d) has ended", ErrSessionLost, s.pid))
			return nil
		}
		waited()
	}
}

// lingering is done a while after ctx. When the session is closed the watcher is
// granted its lock, and need not be cancelled, of which the server's log would tell.
func lingering(ctx context.Context, while time.Duration) (lingering context.Context, stop func()) {
	lingering, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		backoff.Sleep(lingering, while)
		cancel(context.Cause(ctx))
	})
	return lingering, func() {
		unhook()
		cancel(nil)
	}
}
