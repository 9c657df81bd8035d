package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/bench/internal/member"
	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/servers"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

// evenLimit is for the shards of a group to be shared out evenly.
const evenLimit = time.Minute

// shardSize is one size of a group of shards.
type shardSize struct{ shards, members int }

func (z shardSize) seconds(p Plan) float64 {
	return 20 + p.window + float64(z.members)*(4+float64(z.shards)/1000) + float64(p.slow)*16
}

func (r *run) shardSeconds() (seconds float64) {
	for _, z := range r.plan.shards {
		seconds += z.seconds(r.plan)
	}
	return seconds
}

func (r *run) shards(ctx context.Context) error {
	for _, z := range r.plan.shards {
		out := results.Shards{Shards: z.shards, Members: z.members}
		err := r.shareOut(ctx, z, &out)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			r.progress.skipped(err)
			out.Error = err.Error()
		}
		r.add(func(all *results.Results) { all.Shards = append(all.Shards, out) })
		r.progress.done(z.seconds(r.plan), fmt.Sprintf("%d shards, %d members; a rolling restart moved each shard %.2f times a restart, at most %d times",
			z.shards, z.members, out.Moves, out.MostMoves))
	}
	return nil
}

// shardGroup is a group of shards whose members have processes of their own.
type shardGroup struct {
	*run
	shardSize
	name string
	all  []*member.Member // that live
	gone []*member.Member
}

func (r *run) shareOut(ctx context.Context, z shardSize, out *results.Shards) error {
	g := &shardGroup{run: r, shardSize: z, name: r.servers.Name("group")}
	defer func() {
		for _, m := range g.all {
			m.Kill()
		}
	}()
	start := func() error {
		for range z.members {
			if err := g.join(); err != nil {
				return err
			}
		}
		return nil
	}
	leave := func() error { g.end((*member.Member).Leave); return nil }
	kill := func() error { g.end((*member.Member).Kill); return nil }
	for i := range max(1, r.plan.slow) {
		var took []*float64
		for _, change := range []func() error{start, g.join, leave, kill} {
			began := systems.Now()
			if err := change(); err != nil {
				return err
			}
			at, err := g.even(ctx)
			if err != nil {
				return err
			}
			took = append(took, millis(max(0, at-began)))
			if err := sleep(ctx, 3*time.Second); err != nil { // until all is at rest
				return err
			}
		}
		if i == 0 {
			out.Start, start = took[0], g.join // from now on for the member that was killed
		}
		out.Join, out.Leave, out.Kill = append(out.Join, took[1]), append(out.Leave, took[2]), append(out.Kill, took[3])
	}
	if err := g.join(); err != nil {
		return err
	}
	if _, err := g.even(ctx); err != nil {
		return err
	}
	if err := g.costs(ctx, out); err != nil {
		return err
	}
	return g.rollingRestart(ctx, out)
}

func (g *shardGroup) join() error {
	id := g.servers.Name("member")
	m, err := member.Start(member.Settings{DSN: g.servers.DSN(g.servers.PG, servers.Follower, id), Group: g.name, ID: id, Shards: g.shardSize.shards})
	if m != nil {
		g.all = append(g.all, m)
	}
	return err
}

// end ends the oldest member.
func (g *shardGroup) end(how func(*member.Member)) {
	how(g.all[0])
	g.gone, g.all = append(g.gone, g.all[0]), g.all[1:]
}

// even waits until all members lead their share, and returns when that began.
func (g *shardGroup) even(ctx context.Context) (at int64, err error) {
	n, m := g.shardSize.shards, len(g.all)
	for deadline := time.Now().Add(evenLimit); time.Now().Before(deadline); {
		sum, even := 0, true
		at = 0
		for _, one := range g.all {
			k, last := one.Leads()
			sum, at = sum+k, max(at, last)
			even = even && (k == n/m || k == (n+m-1)/m)
		}
		if even && sum == n {
			return at, nil
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%d shards, %d members: not even after %v", n, m, evenLimit)
}

// costs measures what a member costs while nothing moves.
func (g *shardGroup) costs(ctx context.Context, out *results.Shards) error {
	read := func() (statements, server, client float64, err error) {
		err = g.servers.Admin.QueryRow(ctx, `SELECT COALESCE(sum(calls), 0)::float8 FROM pg_stat_statements WHERE userid = $1::text::regrole`, servers.Follower).Scan(&statements)
		if err != nil {
			return 0, 0, 0, err
		}
		rows, err := g.servers.Admin.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE usename = $1", servers.Follower)
		if err != nil {
			return 0, 0, 0, err
		}
		defer rows.Close()
		for rows.Next() {
			var pid int
			if err := rows.Scan(&pid); err != nil {
				return 0, 0, 0, err
			}
			server += cpu(pid)
		}
		for _, m := range g.all {
			client += cpu(m.PID)
		}
		return statements, server, client, rows.Err()
	}
	began := systems.Now()
	s0, b0, c0, err := read()
	if err != nil {
		return err
	}
	if err := sleep(ctx, time.Duration(g.plan.window*float64(time.Second))); err != nil {
		return err
	}
	s1, b1, c1, err := read()
	per := float64(systems.Now()-began) / 1e9 * float64(len(g.all))
	out.Statements, out.ServerCPU, out.ClientCPU = (s1-s0)/per, (b1-b0)/per, (c1-c0)/per
	return err
}

// rollingRestart restarts the members one by one, and counts how often each shard moves.
func (g *shardGroup) rollingRestart(ctx context.Context, out *results.Shards) error {
	begun := func() map[string]int {
		counts := map[string]int{}
		for _, m := range append(g.gone, g.all...) {
			m.Begun(counts)
		}
		return counts
	}
	out.Restarts = len(g.all)
	for range out.Restarts {
		before := begun()
		g.end((*member.Member).Leave)
		if _, err := g.even(ctx); err != nil {
			return err
		}
		if err := g.join(); err != nil {
			return err
		}
		if _, err := g.even(ctx); err != nil {
			return err
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		for name, n := range begun() {
			moves := n - before[name]
			out.Moves += float64(moves) / float64(g.shardSize.shards) / float64(out.Restarts)
			out.MostMoves = max(out.MostMoves, moves)
		}
	}
	return nil
}
