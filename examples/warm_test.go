//go:build unix

package examples_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/examples"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// A deputy may have failed to load hours before it leads.
func TestALoadThatFailedIsTriedAgainByTheDeputyAndAnewInTheTerm(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		logs := logged(t)
		other := lead(t, pool, "other")
		var calls, failing atomic.Int32
		failing.Store(1)
		warm := &examples.Warm[string]{Load: func(context.Context) (string, error) {
			calls.Add(1)
			if other.IsLeader() || failing.Add(1) < 5 { // also some times in the term
				return "", errors.New("the source is away")
			}
			return "cache", nil
		}}
		e, err := elector.New(pool, "example", elector.WithCandidateID("deputy"), elector.WithHooks(warm), elector.WithHeartbeatInterval(100*time.Millisecond))
		check(t, err)
		worked := make(chan string, 1)
		stop := inBackground(t, func(ctx context.Context) error {
			return warm.Run(ctx, e, func(ctx context.Context, _ *elector.Term, cache string) error {
				worked <- cache
				<-ctx.Done()
				return nil
			})
		})
		eventually(t, "the deputy tries again", func() bool { return calls.Load() >= 3 })
		check(t, other.Stop(soon(t)))
		if cache := receive(t, "the deputy works", worked); cache != "cache" {
			t.Errorf("it works with %q", cache)
		}
		if err := stop(); !errors.Is(err, errStop) {
			t.Errorf("Run returned %v", err)
		}
		if !strings.Contains(logs(), `msg="cache not loaded" stopped=false error="the source is away"`) {
			t.Errorf("logged was %s", logs())
		}
	})
}

// What was loaded is as old as the last term.
func TestEachTermOfAProcessLoadsTheCacheAnew(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		logged(t)
		var calls atomic.Int32
		warm := &examples.Warm[int32]{Load: func(context.Context) (int32, error) { return calls.Add(1), nil }}
		e, err := elector.New(pool, "example", elector.WithHooks(warm), elector.WithRetryInterval(50*time.Millisecond))
		check(t, err)
		worked := make(chan int32, 10)
		inBackground(t, func(ctx context.Context) error {
			return warm.Run(ctx, e, func(ctx context.Context, _ *elector.Term, cache int32) error {
				worked <- cache
				<-ctx.Done()
				return nil
			})
		})
		first := receive(t, "the first term works", worked)
		leader, err := e.Leader(soon(t))
		check(t, err)
		execute(t, pool, "SELECT pg_terminate_backend($1)", leader.PID)
		if second := receive(t, "the second term works", worked); second <= first {
			t.Errorf("the second term works with the load %d, the first with %d", second, first)
		}
	})
}

// A failover of the database ends the deputy's session, too, and its source may be away then.
func TestADeputyKeepsItsCacheWhileTheDatabaseIsAway(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		logged(t)
		other := lead(t, pool, "other")
		var calls atomic.Int32
		warm := &examples.Warm[string]{Load: func(context.Context) (string, error) {
			if calls.Add(1) > 1 {
				return "", errors.New("the source is away")
			}
			return "cache", nil
		}}
		rec := hookstest.NewRecorder()
		e, err := elector.New(pool, "example", elector.WithCandidateID("deputy"), elector.WithHooks(warm, rec), elector.WithHeartbeatInterval(100*time.Millisecond))
		check(t, err)
		worked := make(chan string, 1)
		inBackground(t, func(ctx context.Context) error {
			return warm.Run(ctx, e, func(ctx context.Context, _ *elector.Term, cache string) error {
				worked <- cache
				<-ctx.Done()
				return nil
			})
		})
		eventually(t, "the deputy loads", func() bool { return calls.Load() == 1 })
		var name string
		check(t, pool.QueryRow("SELECT current_database()").Scan(&name))
		admin := open(t, "pgx", shared.Get(t).DSN()) // of another database
		execute(t, admin, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false")
		execute(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
		wait(t, candidate{e, rec}, func(e hooks.Campaign) bool { return e.Outcome == hooks.Failed })
		check(t, other.Stop(soon(t)))
		execute(t, admin, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS true")
		if cache := receive(t, "the deputy works", worked); cache != "cache" || calls.Load() != 1 {
			t.Errorf("it works with %q, after %d loads", cache, calls.Load())
		}
	})
}
