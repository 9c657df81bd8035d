package elector

import (
	"testing"
	"time"

	"github.com/pgelector/pgelector/internal/holder"
)

func TestALeaderLivesUntilItsLeaseHasRunOut(t *testing.T) {
	renewed := time.Unix(1_000_000, 0)
	for name, c := range map[string]struct {
		holder holder.Holder
		want   Liveness
		text   string
	}{
		"renewed":         {holder.Holder{Lease: time.Minute, RenewedAt: renewed, AskedAt: renewed.Add(time.Minute - 1)}, Alive, "alive"},
		"run out":         {holder.Holder{Lease: time.Minute, RenewedAt: renewed, AskedAt: renewed.Add(time.Minute)}, Expired, "expired"},
		"without a lease": {holder.Holder{RenewedAt: renewed, AskedAt: renewed}, CannotTell, "cannot tell"},
		"hidden":          {holder.Holder{Lease: time.Minute, AskedAt: renewed}, CannotTell, "cannot tell"},
	} {
		l := leaderOf(c.holder)
		if got := l.Alive(); got != c.want || got.String() != c.text {
			t.Errorf("%s: %v, want %v", name, got, c.text)
		}
		if known := c.want != CannotTell; known != l.ExpiresAt.Equal(renewed.Add(time.Minute)) || known == l.ExpiresAt.IsZero() {
			t.Errorf("%s: it expires at %v", name, l.ExpiresAt)
		}
	}
}
