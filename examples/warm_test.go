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
