package sqlmock_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestTheContextIsCancelledAtSentPlusLeaseMinusMarginMinusDrain(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []elector.Option
		beats int
		ends  time.Duration // after the last answered heartbeat was sent
	}{
		"defaults":        {nil, 1, 7 * time.Second},
		"lease":           {[]elector.Option{elector.WithLease(time.Minute)}, 1, 42 * time.Second},
		"least lease":     {[]elector.Option{elector.WithLease(time.Second)}, 3, 700 * time.Millisecond},
		"no drain":        {[]elector.Option{elector.WithDrain(0)}, 2, 9 * time.Second},
		"longer drain":    {[]elector.Option{elector.WithDrain(5 * time.Second)}, 2, 4 * time.Second},
		"fast heartbeats": {[]elector.Option{elector.WithHeartbeatInterval(100 * time.Millisecond)}, 50, 7 * time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			expectHeartbeats(mock, c.beats)
			heartbeat.expect(mock, noAnswer)
			e, rec := newElector(t, pool, c.opts...)
			term := campaign(t, e)
			<-term.Context().Done()
			if got := time.Since(term.RenewedAt()); got != c.ends {
				t.Errorf("cancelled %v after the last proof, want %v", got, c.ends)
			}
			wantError(t, context.Cause(term.Context()), elector.ErrLeaseExpired)
			if !time.Now().Equal(term.Deadline()) || len(rec.Heartbeats()) != c.beats {
				t.Errorf("deadline %v, %d heartbeats", term.Deadline(), len(rec.Heartbeats()))
			}
			wantDemoted(t, rec, hooks.LeaseExpired)
		})
	}
}

func TestATermIsValidFromWhenTheTokenWasAskedFor(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectAttemptUpTo(mock, len(attempt)-1, fault{after: time.Second})
		expectResign(mock)
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		if left := time.Until(term.Deadline()); left != 6*time.Second {
			t.Errorf("%v are left", left)
		}
		if asked := time.Since(term.RenewedAt()); asked != time.Second || !term.ElectedAt().Equal(time.Now()) {
			t.Errorf("asked %v ago, elected at %v", asked, term.ElectedAt())
		}
		settle()
		if got := rec.Elected()[0]; !got.Deadline.Equal(term.Deadline()) || !got.At.Equal(term.ElectedAt()) || got.Waited != time.Second {
			t.Errorf("reported %+v", got)
		}
		resign(t, term)
	})
}

func TestAHeartbeatIsSentEachIntervalAfterTheLastProof(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		for range 5 { // the interval counts from sending to sending
			heartbeat.expect(mock, fault{after: 500 * time.Millisecond})
		}
		expectResign(mock)
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		time.Sleep(11 * time.Second)
		resign(t, term)
		beats := rec.Heartbeats()
		if len(beats) != 5 {
			t.Fatalf("%d heartbeats", len(beats))
		}
		for i, b := range beats {
			sent := term.ElectedAt().Add(time.Duration(i+1) * 2 * time.Second)
			if !b.At.Equal(sent.Add(500*time.Millisecond)) || !b.Deadline.Equal(sent.Add(7*time.Second)) || b.Token != 1 {
				t.Errorf("heartbeat %d: %+v", i, b)
			}
		}
	})
}

func TestAVerifyPutsTheNextHeartbeatOff(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		holdsLock.expect(mock, fault{})
		heartbeat.expect(mock, noAnswer)
		e, _ := newElector(t, pool)
		term := campaign(t, e)
		time.Sleep(time.Second)
		wantError(t, term.Verify(t.Context()))
		verified := time.Now()
		<-term.Context().Done()
		if got := time.Since(verified); got != 7*time.Second {
			t.Errorf("the term ended %v after it was verified", got)
		}
	})
}

// The session lives while the work of a term that was resigned winds down, of which the
// hooks are not told.
func TestAHeartbeatAfterTheEndOfTheTermIsNotTold(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 3)
		expectResign(mock)
		e, rec := newElector(t, pool)
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		wantError(t, e.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
			<-ctx.Done()
			time.Sleep(4 * time.Second)
			return nil
		}), context.DeadlineExceeded)
		if n := len(rec.Heartbeats()); n != 1 {
			t.Errorf("told of %d heartbeats", n)
		}
	})
}
