package lease

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/internal/pgerr"
)

// look reads the clocks, and notes that the process does not stand still. Once the validity has run
// out it notes nothing: Expiry is to see how long the process stood still before.
func (p *Proof) look() Instant {
	now := p.Now()
	if p.answered.Load() == nil || p.Left() > 0 {
		p.looked.Store(&now)
	}
	return now
}

// Expiry says that the validity has run out, and why. The error wraps pgerr.ErrLeaseExpired.
func (p *Proof) Expiry() error {
	return expiry{fmt.Errorf("elector: %s (a term lasts %s without one; the lease is %s)", p.silent(), seconds(p.Lease.Validity()), seconds(p.Lease.Length))}
}

// silent blames this process if nothing looked at the clocks for half of the validity: then the process
// could read no answer.
func (p *Proof) silent() string {
	now, looked, late := p.Now(), *p.looked.Load(), p.Lease.Validity()/2
	switch still := now.Mono - looked.Mono; {
	case still > late:
		return "this process stood still for " + seconds(still)
	case now.Since(looked) > late:
		return "this machine slept, or its clock was set forward, by " + seconds(now.Since(looked))
	}
	return "no heartbeat was answered for " + seconds(now.Since(*p.answered.Load()))
}

// seconds writes a duration for people: "7 s", "12.5 s", "750 ms".
func seconds(d time.Duration) string {
	if d < time.Second {
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	}
	return strconv.FormatFloat(d.Round(time.Second/10).Seconds(), 'f', -1, 64) + " s"
}

// An expiry wraps pgerr.ErrLeaseExpired, whose text it leaves out.
type expiry struct{ error }

func (e expiry) Is(target error) bool { return target == pgerr.ErrLeaseExpired }
func (e expiry) Unwrap() error        { return e.error }
