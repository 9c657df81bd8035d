//go:build unix

package shard_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgelector/pgelector/elector"
	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
	"github.com/pgelector/pgelector/shard"
)

// Each shard has its own tokens, its own fenced transactions and its own metrics.
func TestEachShardIsATermOfItsOwn(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	_, err := g.admin.Exec("CREATE TABLE done (shard text, token bigint, at timestamptz DEFAULT clock_timestamp())")
	check(t, err)
	registry := prometheus.NewRegistry()
	join := func(id, driver string) (leave func()) {
		pool, err := sql.Open(driver, g.DSN())
		check(t, err)
		counts := prometheushooks.New()
		check(t, prometheus.WrapRegistererWith(prometheus.Labels{"candidate": id}, registry).Register(counts))
		ctx, stop := context.WithCancel(context.Background())
		var run sync.WaitGroup
		run.Go(func() {
			_ = shard.Run(ctx, pool, g.name, shard.Numbers(shards), func(ctx context.Context, name string, term *elector.Term) error {
				err := term.InTx(ctx, pool, nil, func(tx *sql.Tx) error {
					_, err := tx.Exec("INSERT INTO done (shard, token) VALUES ($1, $2)", name, term.Token())
					return err
				})
				if err != nil && ctx.Err() == nil {
					t.Errorf("shard %s: %v", name, err)
				}
				<-ctx.Done()
				return nil
			}, shard.WithSession(elector.WithCandidateID(id), elector.WithLease(lease), elector.WithHeartbeatInterval(lease/10), elector.WithHooks(counts)))
		})
		return sync.OnceFunc(func() { stop(); run.Wait(); _ = pool.Close() })
	}
	// led lists the shards that each member leads, as its metrics say.
	led := func() map[string][]string {
		families, err := registry.Gather()
		check(t, err)
		led := map[string][]string{}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if family.GetName() == "pgelector_leader" && m.GetGauge().GetValue() == 1 {
					labels := map[string]string{}
					for _, l := range m.GetLabel() {
						labels[l.GetName()] = l.GetValue()
					}
					for i := range shards {
						if labels["election"] == shard.Election(g.name, fmt.Sprint(i)) {
							led[labels["candidate"]] = append(led[labels["candidate"]], fmt.Sprint(i))
						}
					}
				}
			}
		}
		return led
	}
	await := func(what string, is func(map[string][]string) bool) {
		t.Helper()
		for began := time.Now(); !is(led()); time.Sleep(20 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("%s: the metrics say %v", what, led())
			}
		}
	}

	// worked reports whether each shard has been worked on so many times.
	worked := func(times int) bool {
		var n int
		check(t, g.admin.QueryRow("SELECT count(*) FROM (SELECT FROM done GROUP BY shard HAVING count(*) >= $1) AS d", times).Scan(&n))
		return n == shards
	}

	leaveFirst := join("first", "pgx")
	defer leaveFirst()
	await("alone", func(led map[string][]string) bool { return len(led["first"]) == shards && worked(1) })
	leaveSecond := join("second", "postgres")
	defer leaveSecond()
	await("two", func(led map[string][]string) bool {
		return len(led["first"]) == shards/2 && len(led["second"]) == shards/2 && !slices.ContainsFunc(led["first"], func(s string) bool { return slices.Contains(led["second"], s) })
	})
	leaveFirst()
	await("one again", func(led map[string][]string) bool { return len(led["second"]) == shards && worked(2) })
	leaveSecond()

	rows, err := g.admin.Query("SELECT shard, array_agg(token ORDER BY at)::text, count(*), bool_and(rises) FROM " +
		"(SELECT shard, token, at, token > lag(token, 1, 0::bigint) OVER (PARTITION BY shard ORDER BY at) AS rises FROM done) AS d GROUP BY shard")
	check(t, err)
	defer rows.Close()
	seen := 0
	for rows.Next() {
		var name, tokens string
		var n int
		var rises bool
		check(t, rows.Scan(&name, &tokens, &n, &rises))
		if seen++; !rises || n < 2 || n > 3 {
			t.Errorf("shard %s was worked on with the tokens %s", name, tokens)
		}
	}
	check(t, rows.Err())
	if seen != shards {
		t.Errorf("%d shards were worked on, want %d", seen, shards)
	}
}
