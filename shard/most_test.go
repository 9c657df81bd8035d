package shard_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/shard"
)

func TestNoMemberLeadsMoreThanItsMostAndTheRestIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		led, reports := map[string]map[string]bool{}, make(chan []string, 100)
		mu := make(chan struct{}, 1)
		join := func(id string) (leave func()) {
			pool := server.Open()
			led[id] = map[string]bool{}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- shard.Run(ctx, pool, "workers", shard.Numbers(5), func(ctx context.Context, name string, _ *elector.Term) error {
					mu <- struct{}{}
					led[id][name] = true
					if len(led[id]) > 2 {
						t.Errorf("%s leads %v", id, led[id])
					}
					<-mu
					<-ctx.Done()
					time.Sleep(time.Second) // the work winds down
					mu <- struct{}{}
					delete(led[id], name)
					<-mu
					return nil
				}, shard.WithSession(elector.WithCandidateID(id)), shard.WithMost(2), shard.WithBeyond(func(_ context.Context, n int, unled []string) {
					if n > len(unled) {
						t.Errorf("%d shards may not be led, and %v are not", n, unled)
					}
					reports <- unled
				}))
			}()
			return func() {
				stop()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				_ = pool.Close()
			}
		}
		first := join("first")
		time.Sleep(5 * time.Second)
		if n := len(led["first"]); n != 2 {
			t.Errorf("the first member leads %d of 5 shards", n)
		}
		second := join("second")
		time.Sleep(10 * time.Second)
		third := join("third")
		time.Sleep(10 * time.Second)
		if n := len(led["first"]) + len(led["second"]) + len(led["third"]); n != 5 {
			t.Errorf("three members lead %d of 5 shards", n)
		}
		var last []string
		seen := false
		for len(reports) > 0 {
			last = <-reports
			seen = seen || len(last) == 3
		}
		if !seen || len(last) > 0 {
			t.Errorf("three shards without a leader were reported: %v; the last report was %q", seen, last)
		}
		for _, leave := range slices.Backward([]func(){first, second, third}) {
			leave()
		}
	})
}

func TestMostHasBounds(t *testing.T) {
	for _, opt := range []shard.Option{shard.WithMost(0), shard.WithBeyond(nil)} {
		err := shard.Run(t.Context(), nil, "workers", shard.Numbers(1), nil, opt)
		if !errors.Is(err, elector.ErrConfig) {
			t.Error(err)
		}
	}
}
