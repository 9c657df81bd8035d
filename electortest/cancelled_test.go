package electortest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// A campaign on a shared session is cancelled at every moment of its attempt, also when the
// lock was just granted.
func TestALockThatComesTooLateForItsCampaignIsGivenBack(t *testing.T) {
	bubble(t, func(b *bench) {
		process := b.NewProcess()
		process.SetLatency(func() time.Duration { return 50 * time.Millisecond })
		pool := process.Open()
		defer pool.Close()
		session, err := elector.NewSession(pool)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { b.wraps(session.Close(context.Background())) }()
		orders, err := session.Elector("orders")
		if err != nil {
			b.Fatal(err)
		}
		other, err := session.Elector("other") // keeps the session busy, and open
		if err != nil {
			b.Fatal(err)
		}
		if _, err := other.Campaign(context.Background()); err != nil {
			b.Fatal(err)
		}
		elected := 0
		for patience := time.Duration(0); patience < 500*time.Millisecond; patience += 10 * time.Millisecond {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			term, err := orders.Campaign(ctx)
			cancel()
			if err == nil {
				elected++
				if err := term.Resign(context.Background()); err != nil {
					b.Error(err)
				}
			}
			time.Sleep(3 * time.Second)
			if slices.ContainsFunc(b.Locks(), func(l electortest.Lock) bool { return l.Key == orders.Key() }) {
				b.Fatalf("cancelled after %v, the campaign leaves its lock behind", patience)
			}
		}
		if elected == 0 || elected == 50 {
			b.Errorf("elected %d times of 50", elected)
		}
	})
}
