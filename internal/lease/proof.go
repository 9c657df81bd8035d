package lease

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/internal/pgerr"
)

// ClockCheckEvery is the longest time between two looks at the clocks. A timer does not see that the
// machine has slept; the wall clock does.
const ClockCheckEvery = 250 * time.Millisecond

// A Proof is when a session last proved that it lives: the time just before the last answered
// statement was sent. The validity counts from it. What is left is computed at each call, by the clocks
// as they are then. Any goroutine may call the methods.
type Proof struct {
	Lease    Lease
	clock    Clock
	answered atomic.Pointer[Instant] // just before the last answered statement was sent
	looked   atomic.Pointer[Instant] // when it was last looked at in time: each ClockCheckEvery, unless the process stands still
}

// NewProof is a proof of now.
func NewProof(l Lease, c Clock) *Proof {
	p := &Proof{Lease: l, clock: c}
	p.Renew(p.look())
	return p
}

// Now reads the clocks of the session's process.
func (p *Proof) Now() Instant { return p.clock.Now() }

// Renew records that a statement that was sent then is answered.
func (p *Proof) Renew(sent Instant) { p.answered.Store(&sent) }

// SinceAnswered is how much time may have passed since the last answered statement was sent.
func (p *Proof) SinceAnswered() time.Duration { return p.look().Since(*p.answered.Load()) }

func (p *Proof) age() time.Duration { return p.Now().Since(*p.answered.Load()) }

// Left is how much of the validity is left.
func (p *Proof) Left() time.Duration { return p.Lease.Validity() - p.age() }

// Overdue is for how long the validity has been over; 0 if it is not.
func (p *Proof) Overdue() time.Duration { return max(0, -p.Left()) }

// DrainLeft is for how long work may go on once the session has ended. Past it, a server that does not
// hear this process may give the lock to another. A server that has ended the session may have done so before.
func (p *Proof) DrainLeft() time.Duration {
	return max(0, min(p.Lease.Drain, p.Lease.Safety()-p.age()))
}

// RenewedAt is when the last proof was sent.
func (p *Proof) RenewedAt() time.Time { return p.answered.Load().At }

// Deadline is when the validity runs out unless a proof extends it.
func (p *Proof) Deadline() time.Time { return p.RenewedAt().Add(p.Lease.Validity()) }

// CheckInTime returns an error if an answer was read when the validity had run out, as by a
// process that was frozen when it came: another may lead by then, so it must elect nobody.
func (p *Proof) CheckInTime() error {
	if p.Left() > 0 {
		return nil
	}
	return fmt.Errorf("%w in time: it was read %v after the question", pgerr.ErrNoAnswer, p.age().Round(time.Millisecond))
}

// While returns a copy of ctx that ends with why when the validity runs out.
func (p *Proof) While(ctx context.Context, why error) (valid context.Context, stop func()) {
	valid, expire := context.WithCancelCause(ctx)
	var timer *time.Timer
	look := func() {
		if left := p.Left(); left <= 0 {
			expire(why)
		} else if valid.Err() == nil {
			p.look()
			timer.Reset(min(left, ClockCheckEvery))
		}
	}
	timer = time.AfterFunc(math.MaxInt64, look)
	look()
	return valid, func() {
		expire(nil)
		timer.Stop()
	}
}
