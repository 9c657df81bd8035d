package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// start keeps the session alive from now on.
func (s *Session) start() {
	s.started.Store(true)
	for _, part := range s.from.Parts {
		part.Started(s)
	}
	go backoff.Apart(s.keep)()
}

// keep is the session's life: heartbeats until one fails, the validity has run out, or the session is closed. Any answered
// question of the kernel counts as a heartbeat, and delays the next heartbeat by at most one interval: only heartbeats find
// requests. The teardown is here and nowhere else. The cause is set first, so that every term ends and its work can return
// before the connection is closed.
func (s *Session) keep() {
	defer func() {
		if !s.conn.IsBroken() {
			s.awaitHolds()
		}
		s.end(false)
	}()
	var suspected time.Time // when a suspicion last caused a heartbeat
	sent := s.proof.Now()   // when the last heartbeat was sent
	due := func() time.Duration {
		interval := s.proof.Lease.Heartbeat
		return min(interval-s.proof.SinceAnswered(), 2*interval-s.proof.Now().Since(sent))
	}
	for s.EndIfExpired() == nil {
		left := due()
		pause := min(left, s.proof.Left(), lease.ClockCheckEvery)
		if left > 0 && s.pause(pause, &suspected) {
			if pause+due() > lease.ClockCheckEvery && !s.conn.IsBusy() { // no heartbeat follows soon, and nobody uses the connection
				s.lookForLoss()
			}
			continue // to see what has come meanwhile: a freeze, another proof, the end
		}
		sent = s.proof.Now()
		b, err := s.heartbeat()
		if err != nil {
			s.cancel(err)
		} else if err := each(s.from.Parts, func(p Part) error { return p.Beat(s, b) }); err != nil {
			s.endTerms(err)
		}
	}
}

// awaitHolds waits until the connection may be closed: for the terms, or the whole drain.
func (s *Session) awaitHolds() {
	s.holds.Close()
	select {
	case <-s.holds.Idle():
	case <-time.After(s.proof.Lease.Drain):
	}
}

// suspectEvery is the shortest time between two heartbeats that suspicions cause.
const suspectEvery = 250 * time.Millisecond

// pause waits for d. It returns false as soon as a heartbeat is asked for, but not within suspectEvery of the last time.
func (s *Session) pause(d time.Duration, suspected *time.Time) bool {
	end, suspect, soon := time.After(d), s.suspect, (<-chan time.Time)(nil)
	for {
		select {
		case <-end:
			return true
		case <-s.ctx.Done():
			return true
		case <-suspect:
			suspect, soon = nil, time.After(time.Until(suspected.Add(suspectEvery)))
		case <-soon:
			*suspected = time.Now()
			return false
		}
	}
}

// heartbeat proves that the session lives. An error of the statement says nothing about the session: heartbeat asks again, at
// once and then each ClockCheckEvery, while the validity lasts. No error renews the validity.
func (s *Session) heartbeat() (b Beat, err error) {
	var refused error
	began, beat := time.Now(), func(ctx context.Context, c *pin.Conn) (rung bool, a Answer, err error) {
		if rung, a, err = s.beat(ctx, c); err != nil && refused != nil && !tellsNothing(err) { // the refusal may say why
			err = fmt.Errorf("%w: %w", pgerr.Wrap(pgerr.ErrSessionLost, err), refused)
		}
		return rung, a, err
	}
	b.Rung, err = ask(s.ctx, s, beat)
	for pause := time.Duration(0); err != nil && tellsNothing(err) && backoff.Sleep(s.ctx, pause) && s.proof.Left() > 0; pause = lease.ClockCheckEvery {
		refused = err
		b.Rung, err = ask(s.ctx, s, beat)
	}
	b.Took, b.Deadline = time.Since(began), s.Deadline()
	return b, s.causeOf(err)
}

// Heartbeat is for a part that must know now whether the session lives. It makes no Beat.
func (s *Session) Heartbeat(ctx context.Context) error {
	_, err := ask(ctx, s, s.beat)
	return err
}

// beat asks for a heartbeat within a call. An answer that names nobody ends the session: it would prove nothing for ever.
func (s *Session) beat(ctx context.Context, c *pin.Conn) (rung bool, a Answer, err error) {
	if rung, a, err = s.statements.Beat(ctx, c); err == nil && a == (Answer{}) {
		err = fmt.Errorf("%w: the answer to a heartbeat names nobody", pgerr.ErrSessionLost)
	}
	return rung, a, err
}

// lookForLoss sends an empty statement, so that a session that the server has ended ends before the next heartbeat.
func (s *Session) lookForLoss() {
	_, err := s.call(s.ctx, func(ctx context.Context, c *pin.Conn) error { return c.Ping(ctx) })
	if err != nil && !pgerr.OfStatement(err) {
		s.cancel(s.causeOf(err))
	}
}

// Listen waits on the connection between two calls, until ctx or the session ends. If the driver reports a loss, the session
// ends at once, and Listen returns true. If the connection cannot be waited on, Listen returns false. wait sends nothing.
func (s *Session) Listen(ctx context.Context, wait pin.Wait) (lost bool) {
	either, stop := backoff.Either(s.ctx, ctx)
	defer stop()
	s.conn.Listen(either, wait, func(err error) {
		s.cancel(s.causeOf(err))
		lost = true
	})
	return lost
}

// causeOf returns the cause of the session's end for an error of its connection; nil for no error. If the validity ran out
// before the error, as in a process that stood still, the expiry is the cause.
func (s *Session) causeOf(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgerr.ErrLeaseExpired):
		return s.proof.Expiry()
	case s.proof.Left() <= 0:
		return fmt.Errorf("%w: %w", s.proof.Expiry(), pgerr.Explain(err))
	}
	return pgerr.Wrap(pgerr.ErrSessionLost, pgerr.Explain(err))
}
