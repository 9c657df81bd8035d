package shard_test

import (
	"context"
	"errors"
	"slices"
	"sync"
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
		reports := make(chan []string, 100)
		var mu sync.Mutex
		led := map[string]int{} // shards of each member
		count := func(id string, more int) int {
			mu.Lock()
			defer mu.Unlock()
			led[id] += more
			return led[id]
		}
		join := func(id string) (leave func()) {
			pool := server.Open()
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- shard.Run(ctx, pool, "workers", shard.Numbers(5), func(ctx context.Context, _ string, _ *elector.Term) error {
					if n := count(id, 1); n > 2 {
						t.Errorf("%s leads %d shards", id, n)
					}
					defer count(id, -1)
					<-ctx.Done()
					time.Sleep(time.Second) // the work winds down
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
		if n := count("first", 0); n != 2 {
			t.Errorf("the first member leads %d of 5 shards", n)
		}
		second := join("second")
		time.Sleep(10 * time.Second)
		third := join("third")
		time.Sleep(10 * time.Second)
		if n := count("first", 0) + count("second", 0) + count("third", 0); n != 5 {
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

// Nothing else keeps the new shards from it: they are free, and its share is all of them.
func TestAMemberAtItsMostLeadsNothingNewBesideWorkThatHangs(t *testing.T) {
	bubble(t, shard.Numbers(4).Names(), func(g *group) {
		g.windsDown(time.Minute)
		g.join("alone")
		time.Sleep(5 * time.Second)
		if err := g.set.Replace("new-1", "new-2", "new-3"); err != nil {
			g.Fatal(err)
		}
		for range 50 {
			if time.Sleep(time.Second); g.works() != 2 {
				g.Fatalf("it began %d works, and those of the old set hang", g.works())
			}
		}
		g.windsDown(0)
		time.Sleep(30 * time.Second)
		if led, unled := g.tally(); led["alone"] != 2 || unled != 1 || g.works() != 4 {
			g.Errorf("it leads %d of the new shards, nobody leads %d, and %d works began", led["alone"], unled, g.works())
		}
	}, shard.WithMost(2))
}

func TestMostHasBounds(t *testing.T) {
	for _, opt := range []shard.Option{shard.WithMost(0), shard.WithBeyond(nil)} {
		err := shard.Run(t.Context(), nil, "workers", shard.Numbers(1), nil, opt)
		if !errors.Is(err, elector.ErrConfig) {
			t.Error(err)
		}
	}
}
