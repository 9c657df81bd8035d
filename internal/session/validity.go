package session

import (
	"context"
	"fmt"
	"time"
)

// glance is the longest time between two looks at the clocks. A timer does not see that the
// machine has slept; the wall clock does.
const glance = 250 * time.Millisecond

// renew records a proof that the session lived.
func (s *Session) renew(sent instant) { s.proof.Store(&sent) }

// proven is when the session was last known to live and, if its commits must be
// acknowledged, to live on a primary that nobody has replaced: the earlier of the two.
func (s *Session) proven() instant {
	proof, acked := s.proof.Load(), s.acked.Load()
	if acked != nil && acked.mono < proof.mono {
		return *acked
	}
	return *proof
}

// left is how much of the validity is left, by the clocks as they are now.
func (s *Session) left() time.Duration {
	return s.lease.Validity() - s.now().since(s.proven())
}

// Overdue is for how long the validity has been over; 0 if it is not.
func (s *Session) Overdue() time.Duration { return max(0, -s.left()) }

// CheckInTime returns an error if an answer was read when the validity had run out, as by a
// process that was frozen when it came: another may lead by then, so it must elect nobody.
func (s *Session) CheckInTime() error {
	if s.left() > 0 {
		return nil
	}
	return fmt.Errorf("%w in time: it was read %v after the question", ErrNoAnswer, s.now().since(s.proven()).Round(time.Millisecond))
}

// Valid reports whether the lock can still be relied on, by the clocks at the
// time of the call.
func (s *Session) Valid() bool {
	return s.left() > 0 && s.ctx.Err() == nil
}

// Ended returns why the session has ended, nil if it has not. A session whose validity has
// run out ends by this call, as after a pause of the process that no timer has noticed yet.
func (s *Session) Ended() error {
	if s.left() <= 0 {
		s.cancel(s.Expiry())
	}
	return context.Cause(s.ctx)
}

// RenewedAt is when the last proof that the session lived was sent.
func (s *Session) RenewedAt() time.Time { return s.proven().at }

// Deadline is when the validity runs out unless a heartbeat extends it.
func (s *Session) Deadline() time.Time { return s.proven().at.Add(s.lease.Validity()) }

// DrainLeft is for how long work may go on once the session has ended: past it,
// the server may give the lock to another.
func (s *Session) DrainLeft() time.Duration {
	return max(0, min(s.lease.Drain, s.lease.Safety()-s.now().since(s.proven())))
}

// Expiry says that the validity has run out.
func (s *Session) Expiry() error {
	what := "last proof of the session"
	if acked := s.acked.Load(); acked != nil && acked.mono < s.proof.Load().mono {
		what = "last commit that the synchronous standbys acknowledged"
	}
	err := fmt.Errorf("%w: %s %v ago, valid for %v of the lease of %v", ErrLeaseExpired, what,
		s.now().since(s.proven()).Round(time.Millisecond), s.lease.Validity(), s.lease.Length)
	if why := s.unacknowledged.Load(); why != nil {
		err = fmt.Errorf("%w: %w", err, *why)
	}
	return err
}

// instant is one reading of both clocks. The monotonic clock may stand still while a machine
// sleeps, and the wall clock may be set: each shows what the other hides.
type instant struct {
	at   time.Time     // for people
	mono time.Duration // since the process began
	wall time.Duration // since the Unix epoch
}

var processBegan = time.Now()

func now() instant {
	t := time.Now()
	return instant{at: t, mono: t.Sub(processBegan), wall: time.Duration(t.UnixNano())}
}

// processClock is implemented by test drivers that simulate a separate process.
// ClockShift is by how much its wall clock was set. It does not return while the process
// is frozen.
type processClock interface{ ClockShift() time.Duration }

// now is the time of the session's process.
func (s *Session) now() instant {
	if s.process == nil {
		return now()
	}
	shift := s.process.ClockShift() // before the clocks are read: it may take a while
	i := now()
	i.wall += shift
	return i
}

// since is how much time may have passed since an earlier reading: the larger
// of what the two clocks say, so that a jump counts as time.
func (i instant) since(earlier instant) time.Duration {
	return max(i.mono-earlier.mono, i.wall-earlier.wall)
}
