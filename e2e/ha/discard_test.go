//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/ha/cluster"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/fence"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open opens a pool that is closed at the end of the test.
func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	pool, err := sql.Open("pgx", dsn)
	check(t, err)
	t.Cleanup(func() { check(t, pool.Close()) })
	return pool
}

// The store is another server. It remembers the token of a leader on the timeline that Patroni
// has discarded.
func TestAFencedStoreRefusesLeadersOfADiscardedTimelineUntilTheEpochIsRaised(t *testing.T) {
	if err := cluster.Missing(t.Context()); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	servers, err := cluster.Start(ctx)
	check(t, err)
	defer func() { check(t, servers.Stop()) }()
	storeServer, err := pgcluster.Start(ctx)
	check(t, err)
	defer func() { check(t, storeServer.Stop()) }()
	check(t, storeServer.Exec(ctx, fence.CreateTable))
	admin, err := connect(ctx, servers)
	check(t, err)
	_, err = admin.Exec(ctx, "CREATE ROLE "+fleet.Role+" LOGIN")
	check(t, errors.Join(err, admin.Close(ctx)))

	pool, store := open(t, dsn(servers, multi)), open(t, storeServer.DSN())
	// lead leads once and writes to the store.
	lead := func() (token int64, written error) {
		t.Helper()
		e, err := elector.New(pool, "discarded", elector.WithLease(fleet.Lease), elector.WithHeartbeatInterval(fleet.Heartbeat))
		check(t, err)
		var term *elector.Term
		for term == nil { // a standby may still answer
			check(t, ctx.Err())
			term, err = e.Campaign(ctx)
			if err != nil && !errors.Is(err, elector.ErrServerReadOnly) {
				t.Logf("campaign: %v", err)
			}
		}
		tx, err := store.BeginTx(ctx, nil)
		check(t, err)
		written = fence.Advance(ctx, tx, "lamp", term.Token())
		check(t, errors.Join(tx.Commit(), term.Resign(ctx)))
		return term.Token(), written
	}

	first, written := lead()
	check(t, written)
	old, err := servers.Primary(ctx)
	check(t, err)
	var promoted int64
	check(t, discardTimeline(ctx, servers, old, func() error {
		promoted, written = lead()
		return written
	}))
	if promoted <= first {
		t.Errorf("the token after the promotion, %d, is not larger than the one before, %d", promoted, first)
	}
	if back, written := lead(); back >= promoted || !errors.Is(written, fence.ErrStale) {
		t.Fatalf("on the older timeline the token is %d, after %d, and the store says %v: nothing was discarded", back, promoted, written)
	}

	admin, err = connect(ctx, servers)
	check(t, err)
	_, err = admin.Exec(ctx, "ALTER DATABASE postgres SET pgelector.epoch = '1'")
	check(t, errors.Join(err, admin.Close(ctx)))
	if raised, written := lead(); raised <= promoted || written != nil {
		t.Errorf("with the epoch the token is %d, after %d, and the store says %v", raised, promoted, written)
	}
}
