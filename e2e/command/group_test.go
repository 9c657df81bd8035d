//go:build unix

package command_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/shard"
)

func TestStatusShowsAGroupInOneRow(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	invoke(t, at(dsn), "status", "--group", "billing", "--shards", "3").want(t, exit.Negative, "nobody leads")
	invoke(t, at(dsn), "status", "--shards", "3").want(t, exit.Usage, "--group")
	pool, err := sql.Open("pgx", dsn)
	check(t, err)
	defer pool.Close()
	ctx, stop := context.WithCancel(t.Context())
	led, done := make(chan string, 3), make(chan error, 1)
	go func() {
		done <- shard.Run(ctx, pool, "billing", shard.Numbers(3), func(ctx context.Context, name string, _ *elector.Term) error {
			led <- name
			<-ctx.Done()
			return nil
		}, shard.WithSession(elector.WithCandidateID("web-1")))
	}()
	for range 3 {
		select {
		case <-led:
		case <-time.After(30 * time.Second):
			t.Fatal("not all shards are led")
		}
	}
	invoke(t, at(dsn), "status", "--group", "billing", "--shards", "3").want(t, exit.OK, "billing", "web-1 3")
	invoke(t, at(dsn), "status", "--group", "billing", "--json", "1", "other").want(t, exit.Negative, `"candidate": "web-1"`, `"other"`)
	stop()
	<-done
}
