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
