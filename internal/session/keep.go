package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// Beat is one answered heartbeat.
type Beat struct {
	Took     time.Duration
	Deadline time.Time // until when it prolongs the validity
	Rung     bool      // others may have requests to the session
}

// keep is the session's life: heartbeats until one fails, the validity has run out, or the
// session is closed. Any answered statement counts as a heartbeat, and delays the next one by
// at most one interval: only heartbeats find requests. The teardown is here and nowhere
// else: the cause is set first, so that every term ends and its work can return before the
// connection is closed.
func (s *Session) keep(beatParts func(Beat) error, onBeat func(Beat)) {
	defer func() {
		if !s.pin.IsBroken() {
			s.life.awaitHolds(s.Proof.Lease.Drain)
		}
		s.Discard()
		close(s.life.closed)
	}()
	var asked time.Time    // when a suspicion last had a heartbeat sent
	heard := s.Proof.Now() // when the last heartbeat was sent
	due := func() time.Duration {
		return min(s.Proof.Lease.Heartbeat-s.Proof.SinceAnswered(), 2*s.Proof.Lease.Heartbeat-s.Proof.Now().Since(heard))
	}
	for {
		if !s.Valid() {
			s.life.cancel(s.Proof.Expiry())
			return
		}
		left := due()
		pause := min(left, s.Proof.Left(), lease.ClockCheckEvery)
		if left > 0 && s.life.pause(pause, &asked) {
			if pause+due() > lease.ClockCheckEvery && !s.pin.IsBusy() && s.Valid() { // no heartbeat follows soon, and nobody uses, or waits on, the connection
				s.lookForLoss()
			}
			continue // to see what has come meanwhile: a freeze, another proof, the end
		}
		heard = s.Proof.Now()
		rung, err := s.heartbeat()
		beat := Beat{Took: time.Since(heard.At), Deadline: s.Proof.Deadline(), Rung: rung}
		if err == nil {
			err = beatParts(beat)
		}
		if err != nil {
			s.life.cancel(err)
			return
		}
		onBeat(beat)
	}
}

// pause waits for d. It returns false as soon as the session is suspected to be lost, but
// not within suspectEvery of the last time.
func (l *life) pause(d time.Duration, asked *time.Time) bool {
	end, suspect, soon := time.After(d), l.suspect, (<-chan time.Time)(nil)
	for {
		select {
		case <-end:
			return true
		case <-l.ctx.Done():
			return true
		case <-suspect:
			suspect, soon = nil, time.After(time.Until(asked.Add(suspectEvery)))
		case <-soon:
			*asked = time.Now()
			return false
		}
	}
}

// heartbeat proves that the session lives. An error of the statement says nothing about the session: the
// heartbeat is tried again, at once and then each ClockCheckEvery, while the validity lasts, which no
// error renews. Inside a transaction such an error has released the locks.
func (s *Session) heartbeat() (rung bool, err error) {
	rung, err = ping(s)
	for pause := time.Duration(0); !s.InTransaction() && pgerr.OfStatement(err) && backoff.Sleep(s.life.ctx, pause) && s.Valid(); pause = lease.ClockCheckEvery {
		before := err
		if rung, err = ping(s); err != nil && !pgerr.OfStatement(err) { // with the error before, the server has ended the session
			return false, s.causeOf(fmt.Errorf("%w: %w", before, err))
		}
	}
	return rung, s.causeOf(err)
}

// ping is one try of a heartbeat. It looks at the answer within the call, so that a wrong one proves nothing.
func ping(s *Session) (rung bool, err error) {
	return Do(s.life.ctx, s.Simple(), func(q *db.Queries, ctx context.Context) (rung bool, err error) {
		ping, err := s.owner.Ping(ctx, q)
		return ping.Rung, cmp.Or(err, wrong(s, ping))
	})
}

// wrong is what is wrong with an answer.
func wrong(s *Session, ping db.PingRow) error {
	switch {
	case ping.Pid != s.Backend.pid:
		return fmt.Errorf("%w: another backend answers (%d, not %d): %w", pgerr.ErrSessionLost, ping.Pid, s.Backend.pid, pgerr.ErrSessionPooled)
	case ping.InRecovery:
		return fmt.Errorf("%w: the server was demoted: %w", pgerr.ErrSessionLost, pgerr.ErrServerReadOnly)
	}
	return nil
}

// causeOf is the cause of a session's end for an error of its connection; nil for none. If the
// validity had run out before, as of a process that stood still, that is the cause.
func (s *Session) causeOf(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgerr.ErrLeaseExpired):
		return s.Proof.Expiry()
	case s.Proof.Left() <= 0:
		return fmt.Errorf("%w: %w", s.Proof.Expiry(), pgerr.Explain(err))
	}
	return pgerr.Wrap(pgerr.ErrSessionLost, pgerr.Explain(err))
}

// Valid reports whether the lock can still be relied on, by the clocks at the time of the call.
func (s *Session) Valid() bool { return s.Proof.Left() > 0 && s.life.ctx.Err() == nil }

// EndIfExpired returns why the session has ended, nil if it has not. A session whose validity has
// run out ends by this call, as after a pause of the process that no timer has noticed yet.
func (s *Session) EndIfExpired() error {
	if s.Proof.Left() <= 0 {
		s.life.cancel(s.Proof.Expiry())
	}
	return context.Cause(s.life.ctx)
}

// Context is done when the session has ended; its cause says why.
func (s *Session) Context() context.Context { return s.life.ctx }

// TermContext is done when no term may go on: the session has ended, or will, because
// commits no longer wait for the standbys. Its cause says why.
func (s *Session) TermContext() context.Context { return s.life.termCtx }

// PID is the process id of the session's backend.
func (s *Session) PID() int32 { return s.Backend.pid }

// CheckPID returns an error if another backend than the session's has answered. A transaction
// checks that by its mark.
func (s *Session) CheckPID(answered int32) error {
	if answered != s.Backend.pid && !s.InTransaction() {
		return fmt.Errorf("%w: backend %d was asked for the lock, then %d answered", pgerr.ErrSessionPooled, s.Backend.pid, answered)
	}
	return nil
}

// Lose ends the session because of err, which leaves in doubt what it holds, and returns
// the cause.
func (s *Session) Lose(err error) error {
	err = pgerr.Wrap(pgerr.ErrSessionLost, pgerr.Explain(err))
	s.life.cancel(err)
	return err
}

// Fail discards a session that was not started, because of err.
func (s *Session) Fail(err error) {
	s.life.cancel(err)
	s.Discard()
}

// Close ends the session, unless it has ended, and waits until its connection is closed or
// abandoned.
func (s *Session) Close() {
	s.life.cancel(errClosed)
	<-s.life.closed
}

// Hold keeps the connection open after the session's end until release is called, but no longer than
// the drain. The server may know nothing of the end (it hears us, and we do not hear it), and closing
// the connection would give the locks to others. release may be called more than once.
func (s *Session) Hold() (release func()) {
	if !s.life.holds.Begin(gate.Always) { // too late: the connection is being closed
		return func() {}
	}
	return sync.OnceFunc(s.life.holds.Finish)
}

// awaitHolds waits until the connection may be closed. Skip it if this connection is broken. Wait for the
// whole drain, even if DrainLeft says less: if only our clock jumped, the server still honors the locks,
// and closing would free them early. If the lease has run out, the server has ended the session, or does
// so by itself.
func (l *life) awaitHolds(drain time.Duration) {
	l.holds.Close()
	select {
	case <-l.holds.Idle():
	case <-time.After(drain):
	}
}
