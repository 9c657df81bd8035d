package elector

import (
	"math"
	"strings"
	"testing"
	"testing/quick"
	"time"
)

func leaseOf(length, heartbeat, drain time.Duration) lease {
	return lease{length: length, heartbeat: heartbeat, drain: drain}
}

func TestTheDefaultsAreAsDocumented(t *testing.T) {
	c, err := configure("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := leaseOf(10*time.Second, 2*time.Second, 2*time.Second); c.lease != want {
		t.Errorf("got %+v, want %+v", c.lease, want)
	}
	if c.lease.margin() != time.Second || c.lease.validity() != 7*time.Second || c.lease.safety() != 9*time.Second {
		t.Errorf("margin %v, validity %v, safety %v", c.lease.margin(), c.lease.validity(), c.lease.safety())
	}
	if c.retry != time.Second || c.backoff != (backoff{min: time.Second, max: 5 * time.Second}) {
		t.Errorf("retry %v, backoff %v", c.retry, c.backoff)
	}
	if c.maxAttempts != 0 || !c.gracefulRelease || c.key != KeyFromName("orders") || len(c.hooks) != 0 {
		t.Errorf("got %+v", c)
	}
	if minLease != time.Second || maxLease != 24*time.Hour || minRetry != 10*time.Millisecond || maxRetry != 24*time.Hour ||
		minHeartbeat != 50*time.Millisecond || maxHeartbeat != 30*time.Second || maxCandidateID != 63 || maxElectionBytes != 1024 {
		t.Error("a documented bound was changed: change its documents too")
	}
}

func TestALeaseIsRefusedWithTheInequalityThatFails(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		l    lease
		want string // "" is none
	}{
		{leaseOf(10*s, 2*s, 2*s), ""},
		{leaseOf(s, 350*time.Millisecond, 200*time.Millisecond), ""}, // 2*350 ms is all of the validity
		{leaseOf(s, 350*time.Millisecond+1, 200*time.Millisecond), "2*heartbeat <= lease - lease/10 - drain, but that is 700ms"},
		{leaseOf(10*s, 4500*time.Millisecond, 0), ""},
		{leaseOf(10*s, 4501*time.Millisecond, 0), "2*heartbeat <= lease - lease/10 - drain, but that is 9s"},
		{leaseOf(10*s, 50*time.Millisecond, 8900*time.Millisecond), ""},
		{leaseOf(10*s, 50*time.Millisecond, 8901*time.Millisecond), "2*heartbeat <="},
		{leaseOf(10*s, 50*time.Millisecond, 20*s), "2*heartbeat <="},
		{leaseOf(24*time.Hour, s, s), ""},
		{leaseOf(24*time.Hour+1, s, s), "1s <= lease <= 24h0m0s"},
		{leaseOf(s-1, s, s), "1s <= lease <= 24h0m0s"},
		{leaseOf(0, s, s), "WithLease(0s)"},
		{leaseOf(-s, s, s), "WithLease(-1s)"},
		{leaseOf(10*s, 2*s, -1), "WithDrain(-1ns): want drain >= 0"},
		{leaseOf(10*s, 50*time.Millisecond-1, s), "heartbeat interval >= 50ms"},
		{leaseOf(10*s, 0, s), "WithHeartbeatInterval(0s)"},
		{leaseOf(10*s, -s, s), "WithHeartbeatInterval(-1s)"},
		{leaseOf(10*s, math.MaxInt64, s), "2*heartbeat <="},
		{leaseOf(10*s, math.MaxInt64/2+2, s), "2*heartbeat <="},
		{leaseOf(10*s, s, math.MaxInt64), "2*heartbeat <="},
	} {
		err := c.l.check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", c.l, err, c.want)
		}
	}
}

// Whatever passes the check keeps the promise's order of events, and has time
// for a heartbeat that is answered late.
func TestALeaseThatPassesTheCheckHoldsTogether(t *testing.T) {
	holds := func(length, heartbeat, drain int64) bool {
		l := leaseOf(time.Duration(length), time.Duration(heartbeat), time.Duration(drain))
		if l.check() != nil {
			return true
		}
		return 0 < l.heartbeat && 2*l.heartbeat <= l.validity() && l.validity()+l.drain == l.safety() &&
			l.safety()+l.margin() == l.length && l.margin() > 0 && l.drain >= 0 && l.length >= minLease
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

func TestEveryAllowedLeaseHasDefaultsThatPass(t *testing.T) {
	for length := minLease; length <= maxLease; length += 7*time.Second + 13*time.Millisecond {
		if _, err := configure("orders", []Option{WithLease(length)}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheDefaultHeartbeatStaysBelowTheIdleTimeoutOfFirewalls(t *testing.T) {
	c, err := configure("orders", []Option{WithLease(24 * time.Hour)})
	if err != nil || c.lease.heartbeat != 30*time.Second {
		t.Errorf("got %v, %v", c.lease.heartbeat, err)
	}
}

func TestALeaseIsCountedInWholeMilliseconds(t *testing.T) {
	c, err := configure("orders", []Option{WithLease(1500*time.Millisecond + 999*time.Microsecond)})
	if err != nil || c.lease.length != 1500*time.Millisecond {
		t.Errorf("got %v, %v", c.lease.length, err)
	}
}
