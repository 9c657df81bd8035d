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
	"github.com/pgelector/pgelector/hooks/metrics"
	"github.com/pgelector/pgelector/shard"
)

// measured lists the elections that a hook measures: those of shards, and the seats.
func measured(h *metrics.Hook) (shards, seats []string) {
	for _, s := range h.Standings() {
		if slices.Contains(shard.Seats("group"), s.Election) {
			seats = append(seats, s.Election)
		} else {
			shards = append(shards, s.Election)
		}
	}
	return shards, seats
}

// The members, which all share the hook, have each led and lost some of the shards.
func TestAShardThatIsGoneAndASeatThatIsLeftAreMeasuredNoMore(t *testing.T) {
	hook := metrics.New(nil)
	bubble(t, []string{"eu", "us", "asia", "africa"}, func(g *group) {
		g.join("a")
		g.even()
		g.join("b", "c")
		g.even()
		expect := func(shards []string, seats int) {
			g.Helper()
			time.Sleep(time.Second)
			if of, at := measured(hook); !slices.Equal(of, shards) || len(at) != seats {
				g.Errorf("the shards %q and the seats %q are measured, want %q and %d", of, at, shards, seats)
			}
		}
		expect([]string{"group/africa", "group/asia", "group/eu", "group/us"}, 3)
		if err := g.set.Replace("eu", "us", "pacific"); err != nil {
			g.Fatal(err)
		}
		g.even()
		expect([]string{"group/eu", "group/pacific", "group/us"}, 3)
		if err := g.set.Replace("eu", "us", "asia"); err != nil { // which comes back
			g.Fatal(err)
		}
		g.even()
		expect([]string{"group/asia", "group/eu", "group/us"}, 3)
		g.leave("c")
		g.even()
		expect([]string{"group/asia", "group/eu", "group/us"}, 2)
		g.leave("a")
		g.leave("b")
		expect(nil, 0)
	}, shard.WithSession(elector.WithHooks(hook)))
}

// Otherwise no alert would say that nobody leads it.
func TestAShardWhoseWorkFailsIsMeasuredAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		pool := server.Open()
		defer pool.Close()
		hook := metrics.New(nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		began := make(chan struct{}, 1000)
		go func() {
			done <- shard.Run(ctx, pool, "group", shard.Numbers(1), func(context.Context, string, *elector.Term) error {
				began <- struct{}{}
				return errors.New("it fails")
			}, shard.WithSession(elector.WithHooks(hook)))
		}()
		<-began
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if shards, _ := measured(hook); !slices.Equal(shards, []string{"group/0"}) {
				t.Fatalf("measured are %q", shards)
			}
		}
		if len(began) < 5 {
			t.Errorf("the work began %d times again", len(began))
		}
		stop()
		<-done
	})
}
