package elector

import (
	"math"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/pgelector/pgelector/internal/session"
)

func newLease(length, heartbeat, drain time.Duration) session.Lease {
	return session.Lease{Length: length, Heartbeat: heartbeat, Drain: drain}
}

func TestTheBoundsOfALeaseAreAsDocumented(t *testing.T) {
	if minLease != time.Second || maxLease != 24*time.Hour || minHeartbeat != 50*time.Millisecond || maxHeartbeat != 30*time.Second {
		t.Error("a documented bound was changed: change its documents too")
	}
	l := leaseOf(defaultLease)
	if l != newLease(10*time.Second, 2*time.Second, 2*time.Second) || l.Margin() != time.Second || l.Validity() != 7*time.Second || l.Safety() != 9*time.Second {
		t.Errorf("%+v: margin %v, validity %v, safety %v", l, l.Margin(), l.Validity(), l.Safety())
	}
}

func TestALeaseIsRefusedWithTheInequalityThatFails(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		l    session.Lease
		want string // "" is none
	}{
		{newLease(10*s, 2*s, 2*s), ""},
		{newLease(s, 350*time.Millisecond, 200*time.Millisecond), ""}, // 2*350 ms is all of the validity
		{newLease(s, 350*time.Millisecond+1, 200*time.Millisecond), "2*heartbeat <= lease - lease/10 - drain, but that is 700ms"},
		{newLease(10*s, 4500*time.Millisecond, 0), ""},
		{newLease(10*s, 4501*time.Millisecond, 0), "2*heartbeat <= lease - lease/10 - drain, but that is 9s"},
		{newLease(10*s, 50*time.Millisecond, 8900*time.Millisecond), ""},
		{newLease(10*s, 50*time.Millisecond, 8901*time.Millisecond), "2*heartbeat <="},
		{newLease(10*s, 50*time.Millisecond, 20*s), "2*heartbeat <="},
		{newLease(24*time.Hour, s, s), ""},
		{newLease(24*time.Hour+1, s, s), "1s <= lease <= 24h0m0s"},
		{newLease(s-1, s, s), "1s <= lease <= 24h0m0s"},
		{newLease(0, s, s), "WithLease(0s)"},
		{newLease(-s, s, s), "WithLease(-1s)"},
		{newLease(10*s, 2*s, -1), "WithDrain(-1ns): want drain >= 0"},
		{newLease(10*s, 50*time.Millisecond-1, s), "heartbeat interval >= 50ms"},
		{newLease(10*s, 0, s), "WithHeartbeatInterval(0s)"},
		{newLease(10*s, -s, s), "WithHeartbeatInterval(-1s)"},
		{newLease(10*s, math.MaxInt64, s), "2*heartbeat <="},
		{newLease(10*s, math.MaxInt64/2+2, s), "2*heartbeat <="},
		{newLease(10*s, s, math.MaxInt64), "2*heartbeat <="},
	} {
		err := (&config{lease: c.l}).checkLease()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", c.l, err, c.want)
		}
	}
}

// Whatever passes the check keeps the promise's order of events, and has time
// for a heartbeat that is answered late.
func TestALeaseThatPassesTheCheckHoldsTogether(t *testing.T) {
	holds := func(length, heartbeat, drain int64) bool {
		l := newLease(time.Duration(length), time.Duration(heartbeat), time.Duration(drain))
		if (&config{lease: l}).checkLease() != nil {
			return true
		}
		return 0 < l.Heartbeat && 2*l.Heartbeat <= l.Validity() && l.Validity()+l.Drain == l.Safety() &&
			l.Safety()+l.Margin() == l.Length && l.Margin() > 0 && l.Drain >= 0 && l.Length >= minLease
	}
	near := func(a, b, c int64) bool { // of the bounds, where most of it is decided
		return holds(a%int64(2*maxLease), b%int64(2*maxLease), c%int64(2*maxLease)) && holds(a%int64(20*time.Second), b%int64(5*time.Second), c%int64(10*time.Second))
	}
	for _, property := range []any{holds, near} {
		if err := quick.Check(property, &quick.Config{MaxCount: 20000}); err != nil {
			t.Error(err)
		}
	}
}

func TestEveryAllowedLengthHasALeaseThatPasses(t *testing.T) {
	for length := minLease; length <= maxLease; length += 7*time.Second + 13*time.Millisecond {
		if err := (&config{lease: leaseOf(length)}).checkLease(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheDefaultHeartbeatStaysBelowTheIdleTimeoutOfFirewalls(t *testing.T) {
	if got := leaseOf(24 * time.Hour).Heartbeat; got != 30*time.Second {
		t.Errorf("got %v", got)
	}
}
