package shard_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/shard"
)

// One member alone leads all shards.
func ExampleRun() {
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open() // sql.Open("pgx", dsn)
	defer pool.Close()

	regions, err := shard.NewSet("eu", "us", "asia")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var led sync.WaitGroup
	led.Add(3)
	go func() {
		led.Wait()
		stop()
	}()
	err = shard.Run(ctx, pool, "billing", regions, func(ctx context.Context, region string, term *elector.Term) error {
		led.Done()
		<-ctx.Done() // bill the customers of the region until then, and fence writes with the term
		return nil
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output: true
}

// An operator asks who leads which shard.
func ExampleSpread() {
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open()
	defer pool.Close()

	regions, err := shard.NewSet("eu", "us")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var led sync.WaitGroup
	led.Add(2)
	done := make(chan error)
	go func() {
		done <- shard.Run(ctx, pool, "billing", regions, func(ctx context.Context, _ string, _ *elector.Term) error {
			led.Done()
			<-ctx.Done()
			return nil
		}, shard.WithSession(elector.WithCandidateID("web-1")))
	}()
	led.Wait()
	members, free, err := shard.Spread(ctx, pool, "billing", []string{"eu", "us", "asia"})
	for _, m := range members {
		fmt.Println(m.CandidateID, "leads", m.Shards)
	}
	fmt.Println("nobody leads", free, err)
	stop()
	<-done
	// Output:
	// web-1 leads [eu us]
	// nobody leads [asia] <nil>
}
