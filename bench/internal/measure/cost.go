package measure

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pgelector/pgelector/bench/internal/child"
	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/servers"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

// usage is what the kernel and the server have counted for one role's candidates.
type usage struct {
	at         int64
	statements float64
	serverCPU  map[int]float64 // milliseconds of each backend
	clientCPU  float64
	wal        string  // the server's position in the WAL
	memory     float64 // MiB, private to the backends
}

// usage reads the counters of a role. The server counts statements by role (pg_stat_statements). The kernel
// counts the time of each backend in nanoseconds (/proc/<pid>/schedstat).
func (g *group) usage(ctx context.Context, role string, processes []*child.Child) (usage, error) {
	u := usage{at: systems.Now(), serverCPU: map[int]float64{}}
	for _, c := range processes {
		u.clientCPU += cpu(c.PID)
	}
	if g.system.Server != "" {
		for _, pid := range g.servers.PIDs(g.system.Server) {
			u.serverCPU[pid] = cpu(pid)
		}
		return u, nil
	}
	err := g.servers.Admin.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text, COALESCE((SELECT sum(calls)
		FROM pg_stat_statements WHERE userid = $1::text::regrole), 0)::float8`, role).Scan(&u.wal, &u.statements)
	if err != nil {
		return u, err
	}
	rows, err := g.servers.Admin.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE usename = $1", role)
	if err != nil {
		return u, err
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			return u, err
		}
		u.serverCPU[pid] = cpu(pid)
		u.memory += status(pid, "RssAnon")
	}
	return u, rows.Err()
}

// serverSince returns the milliseconds that the backends of u have run since an earlier usage.
func (u usage) serverSince(earlier usage) (ms float64) {
	for pid, now := range u.serverCPU {
		ms += now - earlier.serverCPU[pid]
	}
	return ms
}

// cpu returns the milliseconds that all threads of a process have run.
func cpu(pid int) (ms float64) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, file := range files {
		text, err := os.ReadFile(file)
		var ns float64
		if err == nil {
			if _, err := fmt.Sscan(string(text), &ns); err == nil {
				ms += ns / 1e6
			}
		}
	}
	return ms
}

// status returns a size in /proc/<pid>/status, in MiB.
func status(pid int, key string) float64 {
	var kB float64
	value := fromFile(fmt.Sprintf("/proc/%d/status", pid), key)
	if _, err := fmt.Sscan(strings.TrimSuffix(value, " kB"), &kB); err != nil {
		return 0
	}
	return kB / 1024
}

// walSince returns the bytes of WAL since an earlier usage, without the record of running transactions that an
// otherwise idle server writes every 15 seconds.
func (g *group) walSince(ctx context.Context, earlier, later usage) (bytes float64, err error) {
	if later.wal == earlier.wal {
		return 0, nil
	}
	admin := g.servers.Admin
	err = admin.QueryRow(ctx, `SELECT COALESCE(sum(record_length), 0)::float8 FROM pg_get_wal_records_info($1::text::pg_lsn, $2::text::pg_lsn)
		WHERE record_type <> 'RUNNING_XACTS'`, earlier.wal, later.wal).Scan(&bytes)
	if err != nil { // no pg_walinspect: older than PostgreSQL 15
		err = admin.QueryRow(ctx, "SELECT ($2::text::pg_lsn - $1::text::pg_lsn)::float8", earlier.wal, later.wal).Scan(&bytes)
	}
	return bytes, err
}

// costs are the average costs of the processes of a group, and the memory of all backends in MiB.
type costs struct {
	leader, follower results.Rest
	backends         float64
}

// cost measures a group while no leader changes.
func (r *run) cost(ctx context.Context, g *group, seconds float64) (c costs, err error) {
	if err := g.settle(ctx); err != nil {
		return c, err
	}
	if _, err := g.servers.Admin.Exec(ctx, "SELECT pg_stat_statements_reset()"); err != nil {
		return c, err
	}
	if err := sleep(ctx, 200*time.Millisecond); err != nil { // the reset writes WAL
		return c, err
	}
	leaders := []*child.Child{g.leader}
	before, err := g.usages(ctx, leaders)
	if err != nil {
		return c, err
	}
	var leading, following int
	const counts = 5
	for range counts {
		if err := sleep(ctx, time.Duration(seconds/counts*float64(time.Second))); err != nil {
			return c, err
		}
		if leading, err = pinned(ctx, leaders); err != nil {
			return c, err
		}
		if following, err = pinned(ctx, g.followers); err != nil {
			return c, err
		}
	}
	after, err := g.usages(ctx, leaders)
	if err != nil {
		return c, err
	}
	c.leader = r.rest(g, "leading", leaders, before[0], after[0], leading)
	c.follower = r.rest(g, "following", g.followers, before[1], after[1], following)
	c.backends = after[0].memory + after[1].memory
	if g.system.Server == "" {
		wal, err := g.walSince(ctx, before[0], after[0])
		if err != nil {
			return c, err
		}
		c.leader.WAL, c.follower.WAL = wal/c.leader.Seconds*3600, wal/c.follower.Seconds*3600
	}
	return c, nil
}

// settle waits until the followers follow.
func (g *group) settle(ctx context.Context) error {
	return sleep(ctx, 2*time.Second+time.Duration(g.elections*len(g.followers))*200*time.Microsecond+time.Duration(g.candidates)*20*time.Millisecond)
}

// usages returns the usage of the leader and of the followers.
func (g *group) usages(ctx context.Context, leaders []*child.Child) (both [2]usage, err error) {
	if both[0], err = g.usage(ctx, servers.Leader, leaders); err == nil {
		both[1], err = g.usage(ctx, servers.Follower, g.followers)
	}
	return both, err
}

// pinned returns how many connections of the processes were in use at each call so far.
func pinned(ctx context.Context, processes []*child.Child) (sum int, err error) {
	for _, c := range processes {
		n, err := c.Pinned(ctx)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// rest returns the average cost of a process between two usages.
func (r *run) rest(g *group, role string, processes []*child.Child, before, after usage, pinned int) results.Rest {
	seconds := float64(after.at-before.at) / 1e9
	n := float64(len(processes))
	cost := results.Rest{
		System: g.system.Name, Role: role, Elections: g.elections, Seconds: seconds,
		Statements:  (after.statements - before.statements) / seconds / n,
		ServerCPU:   after.serverSince(before) / seconds / n,
		ClientCPU:   (after.clientCPU - before.clientCPU) / seconds / n,
		Connections: float64(len(after.serverCPU)) / n,
		Pinned:      float64(pinned) / n,
	}
	for _, c := range processes {
		cost.RSS += status(c.PID, "VmRSS") / n
	}
	if g.system.Server != "" { // one server and one connection for both roles together
		cost.Statements, cost.Connections, cost.Pinned = -1, 1, -1
		cost.ServerCPU = max(0, after.serverSince(before)/seconds-r.idle[g.system.Server]) / float64(1+len(g.followers))
	}
	return cost
}

func (r *run) costSeconds() float64 {
	return float64(len(r.plan.systems()))*(r.plan.rest+4) + 3
}

// costsAtRest measures one system after the other, so that the server counts the statements of one only.
func (r *run) costsAtRest(ctx context.Context) error {
	for _, server := range r.plan.servers() {
		if err := r.measureIdle(ctx, server); err != nil {
			return err
		}
	}
	for _, s := range r.plan.systems() {
		g := &group{servers: r.servers, system: s, elections: 1}
		err := g.start(ctx, 1, 1)
		var c costs
		if err == nil {
			c, err = r.cost(ctx, g, r.plan.rest)
		}
		g.stop()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			r.progress.skipped(err)
		default:
			r.add(func(all *results.Results) { all.Rest = append(all.Rest, c.leader, c.follower) })
		}
		r.progress.done(r.plan.rest+4, s.Name+", at rest")
	}
	return nil
}

// measureIdle measures the CPU time that a server other than PostgreSQL uses without candidates, once.
func (r *run) measureIdle(ctx context.Context, server string) error {
	if server == "" || r.idle[server] > 0 {
		return nil
	}
	used := func() (ms float64) {
		for _, pid := range r.servers.PIDs(server) {
			ms += cpu(pid)
		}
		return ms
	}
	before, at := used(), systems.Now()
	if err := sleep(ctx, 3*time.Second); err != nil {
		return err
	}
	r.idle[server] = (used() - before) / (float64(systems.Now()-at) / 1e9)
	r.progress.done(3, fmt.Sprintf("%s without candidates: %.1f ms of CPU time a second", server, r.idle[server]))
	return nil
}
