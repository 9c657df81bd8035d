package elector

import (
	"testing"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/session"
)

func TestTheDefaultsAreAsDocumented(t *testing.T) {
	c, err := configure[Option]("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := (session.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second}); c.lease != want {
		t.Errorf("got %+v, want %+v", c.lease, want)
	}
	if c.retry != 3*time.Second || c.deputyInterval != 100*time.Millisecond || c.backoff != (backoff.Backoff{Min: time.Second, Max: 5 * time.Second}) {
		t.Errorf("retry %v, deputy %v, backoff %v", c.retry, c.deputyInterval, c.backoff)
	}
	if c, err := configure("orders", []Option{WithStandby(Poll)}); err != nil || c.retry != time.Second {
		t.Errorf("retry %v, %v with Poll", c.retry, err)
	}
	if c.maxAttempts != 0 || !c.gracefulRelease || c.key != KeyFromName("orders") || len(c.hooks) != 0 {
		t.Errorf("got %+v", c)
	}
	if minRetry != 10*time.Millisecond || maxRetry != 24*time.Hour || maxCandidateID != 63 || maxElectionBytes != 1024 {
		t.Error("a documented bound was changed: change its documents too")
	}
}

func TestWhatIsChosenOfALeaseIsKept(t *testing.T) {
	c, err := configure("orders", []Option{WithDrain(0), WithHeartbeatInterval(time.Second), WithLease(20 * time.Second)})
	if want := (session.Lease{Length: 20 * time.Second, Heartbeat: time.Second}); err != nil || c.lease != want {
		t.Errorf("got %+v, %v, want %+v", c.lease, err, want)
	}
	c, err = configure("orders", []Option{WithLease(20 * time.Second)})
	if want := (session.Lease{Length: 20 * time.Second, Heartbeat: 4 * time.Second, Drain: 4 * time.Second}); err != nil || c.lease != want {
		t.Errorf("got %+v, %v, want %+v", c.lease, err, want)
	}
}

func TestALeaseIsCountedInWholeMilliseconds(t *testing.T) {
	c, err := configure("orders", []Option{WithLease(1500*time.Millisecond + 999*time.Microsecond)})
	if err != nil || c.lease.Length != 1500*time.Millisecond {
		t.Errorf("got %v, %v", c.lease.Length, err)
	}
}
