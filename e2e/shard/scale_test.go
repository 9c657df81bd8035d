//go:build unix

package shard_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

var (
	scaleShards  = flag.Int("shards", 1000, "of TestManyShardsOverManyMembers")
	scaleMembers = flag.Int("members", 10, "of TestManyShardsOverManyMembers")
)

// It prints the times until the shares are even, and what the group costs at rest:
//
//	go -C e2e test ./shard -run ManyShards -v -shards=10000 -members=3
func TestManyShardsOverManyMembers(t *testing.T) {
	g := groupOf(t, *scaleShards, pgcluster.WithSetting("max_locks_per_transaction", "256"))
	var ids []string
	for i := range *scaleMembers {
		ids = append(ids, fmt.Sprint("m", i))
	}
	g.join(ids...)
	g.even("start of all", len(ids))
	const rest = 5 * time.Second
	before := g.transactions()
	time.Sleep(rest) // measured, not waited for
	perMember := float64(g.transactions()-before) / rest.Seconds() / float64(len(ids))
	g.Logf("at rest: %.1f transactions a second for each member", perMember)
	if perMember > 15 {
		g.Errorf("%.1f transactions a second for each member", perMember)
	}
	first := g.even("before", len(ids))
	g.join("new")
	second := g.even("one joins", len(ids)+1)
	g.moved("join", first, second, len(second["new"]))
	g.leave("m0")
	third := g.even("one leaves", len(ids))
	g.moved("leave", second, third, len(second["m0"]))
	g.kill("m1")
	fourth := g.even("one is killed", len(ids)-1)
	g.moved("kill", third, fourth, len(third["m1"]))
}

// transactions is how many the server has committed or rolled back.
func (g *group) transactions() (n int64) {
	g.Helper()
	check(g.T, g.admin.QueryRow("SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database").Scan(&n))
	return n
}
