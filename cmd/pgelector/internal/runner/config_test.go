//go:build unix

package runner

import (
	"testing"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
)

func TestTheGraceFitsIntoTheDrainOrIsRefused(t *testing.T) {
	for _, tt := range []struct {
		lease, drain, grace  time.Duration
		wantDrain, wantGrace time.Duration
		refused              bool
	}{
		{lease: 10 * time.Second, grace: NoGrace, wantDrain: 2 * time.Second, wantGrace: 1800 * time.Millisecond},
		{lease: time.Second, grace: NoGrace, wantDrain: 200 * time.Millisecond, wantGrace: 100 * time.Millisecond},
		{lease: 60 * time.Second, grace: 20 * time.Second, wantDrain: 20200 * time.Millisecond, wantGrace: 20 * time.Second},
		{lease: 10 * time.Second, drain: 3 * time.Second, grace: NoGrace, wantDrain: 3 * time.Second, wantGrace: 2800 * time.Millisecond},
		{lease: 10 * time.Second, grace: 0, wantDrain: 2 * time.Second, wantGrace: 0},
		{lease: 10 * time.Second, drain: 2 * time.Second, grace: 1900 * time.Millisecond, refused: true},
		{lease: 10 * time.Second, grace: -time.Second, refused: true},
	} {
		c := Config{Lease: tt.lease, Drain: tt.drain, Grace: tt.grace, BackoffMin: 1, BackoffMax: 1}
		err := c.Fit()
		if tt.refused {
			if exit.CodeOf(err) != exit.Usage {
				t.Errorf("%+v: error %v, want one of usage", tt, err)
			}
			continue
		}
		if err != nil || c.Drain != tt.wantDrain || c.Grace != tt.wantGrace {
			t.Errorf("%+v: drain %v, grace %v, error %v", tt, c.Drain, c.Grace, err)
		}
		if c.Grace > c.Drain {
			t.Errorf("%+v: a grace of %v outlasts the drain of %v", tt, c.Grace, c.Drain)
		}
	}
}
