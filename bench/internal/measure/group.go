package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/bench/internal/child"
	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
	"github.com/pgelector/pgelector/bench/internal/world"
)

// group is one process that leads and some that follow, in one election or many.
type group struct {
	run       *run
	system    systems.System
	elections int

	leader    *child.Child
	followers []*child.Child
}

// start starts the leader, waits until it leads all, and starts the followers: so many processes, each
// playing so many candidates.
func (g *group) start(ctx context.Context, processes, candidates int) (err error) {
	w := g.run.world
	election := w.Name("election")
	if g.system.Prepare != nil {
		if err := g.system.Prepare(ctx, w.DSN(world.Leader, "prepare"), election); err != nil {
			return err
		}
	}
	env := systems.Env{System: g.system.Name, Etcd: w.Etcd.Endpoint, Election: election, Elections: g.elections, ID: w.Name("leader")}
	env.DSN = w.DSN(world.Leader, env.ID)
	if g.leader, err = child.Start(env); err != nil {
		return err
	}
	if _, err := g.leader.Wait(ctx, systems.Leading, starting); err != nil {
		return err
	}
	if g.elections > 1 {
		if _, ok := awaitLed(ctx, g.elections, 2*starting, g.leader); !ok {
			return fmt.Errorf("%s: %d of %d elections are led after %v", g.system.Name, len(g.leader.Led()), g.elections, 2*starting)
		}
	}
	env.Candidates = candidates
	for range processes {
		env.ID = w.Name("follower")
		env.DSN = w.DSN(world.Follower, env.ID)
		c, err := child.Start(env)
		if err != nil {
			return err
		}
		g.followers = append(g.followers, c)
		if _, err := c.Wait(ctx, systems.Ready, starting); err != nil {
			return err
		}
	}
	return rest(ctx, 2*time.Second+time.Duration(g.elections*len(g.followers))*200*time.Microsecond)
}

// awaitLed waits until so many elections are led, and says when the last of them came to be.
func awaitLed(ctx context.Context, n int, limit time.Duration, processes ...*child.Child) (led []int64, ok bool) {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		led = nil
		for _, c := range processes {
			led = append(led, c.Led()...)
		}
		if len(led) >= n {
			return led, true
		}
	}
	return led, false
}

// measure is the cost at rest of the leader and of one follower. Statements of a system are counted anew.
func (g *group) measure(ctx context.Context, seconds float64) (leader, follower results.Rest, server float64, err error) {
	w := g.run.world
	if _, err := w.Admin.Exec(ctx, "SELECT pg_stat_statements_reset()"); err != nil {
		return leader, follower, 0, err
	}
	if err := rest(ctx, 200*time.Millisecond); err != nil { // what that has written, too, is not at rest
		return leader, follower, 0, err
	}
	var before, after [2]account
	for i, a := range []*[2]account{&before, &after} {
		if i > 0 {
			if err := rest(ctx, time.Duration(seconds*float64(time.Second))); err != nil {
				return leader, follower, 0, err
			}
		}
		for role := range a {
			if a[role], err = accounts(ctx, w, g.role(role), g.pids(role), g.system.Etcd); err != nil {
				return leader, follower, 0, err
			}
		}
	}
	leader, follower = g.bill(0, before[0], after[0]), g.bill(1, before[1], after[1])
	if !g.system.Etcd {
		wal, err := after[0].written(ctx, w, before[0])
		if err != nil {
			return leader, follower, 0, err
		}
		leader.WAL, follower.WAL = wal/leader.Seconds*3600, wal/follower.Seconds*3600
	}
	return leader, follower, after[0].memory + after[1].memory, nil
}

func (g *group) role(i int) string { return []string{world.Leader, world.Follower}[i] }

func (g *group) pids(role int) []int {
	if role == 0 {
		return []int{g.leader.PID}
	}
	var pids []int
	for _, c := range g.followers {
		pids = append(pids, c.PID)
	}
	return pids
}

// bill is the cost of one process of a role.
func (g *group) bill(role int, before, after account) results.Rest {
	pids := g.pids(role)
	seconds := float64(after.at-before.at) / 1e9
	n := float64(max(len(pids), 1))
	r := results.Rest{
		System: g.system.Name, Role: []string{"leading", "following"}[role], Elections: g.elections, Seconds: seconds,
		Statements:  (after.statements - before.statements) / seconds / n,
		ServerCPU:   after.since(before) / seconds / n,
		ClientCPU:   (after.clientCPU - before.clientCPU) / seconds / n,
		Connections: float64(len(after.serverCPU)) / n,
	}
	for _, pid := range pids {
		r.RSS += status(pid, "VmRSS") / n
	}
	if g.system.Etcd { // one server process, one connection, for both roles together
		r.Statements, r.Connections = -1, 1
		r.ServerCPU = max(0, after.since(before)/seconds-g.run.etcdIdle) / float64(1+len(g.followers))
	}
	return r
}

func (g *group) end() {
	if g.leader != nil {
		g.leader.Stop()
	}
	for _, c := range g.followers {
		c.Stop()
	}
}
