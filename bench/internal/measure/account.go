package measure

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
	"github.com/pgelector/pgelector/bench/internal/world"
)

// account is what the machine and the server have counted so far for one role's candidates.
type account struct {
	at         int64
	statements float64
	serverCPU  map[int]float64 // milliseconds of each backend
	clientCPU  float64
	wal        string  // the position in the log
	memory     float64 // MiB, private to the backends
}

// accounts reads the counters of a role. The server counts statements by role (pg_stat_statements), and the
// kernel counts the time of each backend in nanoseconds (/proc/<pid>/schedstat).
func accounts(ctx context.Context, w *world.World, role string, clients []int, etcd bool) (account, error) {
	a := account{at: systems.Now(), serverCPU: map[int]float64{}}
	for _, pid := range clients {
		a.clientCPU += cpu(pid)
	}
	if etcd {
		a.serverCPU[w.Etcd.PID] = cpu(w.Etcd.PID)
		return a, nil
	}
	err := w.Admin.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text, COALESCE((SELECT sum(calls)
		FROM pg_stat_statements WHERE userid = $1::text::regrole), 0)::float8`, role).Scan(&a.wal, &a.statements)
	if err != nil {
		return a, err
	}
	rows, err := w.Admin.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE usename = $1", role)
	if err != nil {
		return a, err
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			return a, err
		}
		a.serverCPU[pid] = cpu(pid)
		a.memory += status(pid, "RssAnon")
	}
	return a, rows.Err()
}

// since is the server's time between two accounts, of the backends that live at the end.
func (a account) since(earlier account) (ms float64) {
	for pid, now := range a.serverCPU {
		ms += now - earlier.serverCPU[pid]
	}
	return ms
}

// cpu is the time in milliseconds that a process has run: all its threads.
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

// status is a line of /proc/<pid>/status that counts kB, in MiB.
func status(pid int, key string) float64 {
	var kB float64
	value := fromFile(fmt.Sprintf("/proc/%d/status", pid), key)
	if _, err := fmt.Sscan(strings.TrimSuffix(value, " kB"), &kB); err != nil {
		return 0
	}
	return kB / 1024
}

// written is the WAL between two accounts in bytes, without what the server writes by itself (about every 15
// seconds, if anything was written before: a record of the running transactions).
func (a account) written(ctx context.Context, w *world.World, earlier account) (bytes float64, err error) {
	if a.wal == earlier.wal {
		return 0, nil
	}
	err = w.Admin.QueryRow(ctx, `SELECT COALESCE(sum(record_length), 0)::float8 FROM pg_get_wal_records_info($1::text::pg_lsn, $2::text::pg_lsn)
		WHERE record_type <> 'RUNNING_XACTS'`, earlier.wal, a.wal).Scan(&bytes)
	if err != nil { // no pg_walinspect: older than PostgreSQL 15
		err = w.Admin.QueryRow(ctx, "SELECT ($2::text::pg_lsn - $1::text::pg_lsn)::float8", earlier.wal, a.wal).Scan(&bytes)
	}
	return bytes, err
}

func (r *run) restSeconds() float64 {
	return float64(len(r.plan.systems()))*(r.plan.rest+4) + 3
}

// restAll measures the systems one after the other, each with a leader and a follower, so that what the
// server counts is theirs.
func (r *run) restAll(ctx context.Context) error {
	if err := r.idleEtcd(ctx); err != nil {
		return err
	}
	for _, s := range r.plan.systems() {
		g := &group{run: r, system: s, elections: 1}
		err := g.start(ctx, 1, 1)
		var leader, follower results.Rest
		if err == nil {
			leader, follower, _, err = g.measure(ctx, r.plan.rest)
		}
		g.end()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			r.progress.say(fmt.Sprintf("left out: %v", err))
		default:
			r.add(func(all *results.Results) { all.Rest = append(all.Rest, leader, follower) })
		}
		r.progress.done(r.plan.rest+4, s.Name+", at rest")
	}
	return nil
}

// idleEtcd measures what etcd's server takes by itself, which is not the candidates' cost.
func (r *run) idleEtcd(ctx context.Context) error {
	before, at := cpu(r.world.Etcd.PID), systems.Now()
	if err := rest(ctx, 3*time.Second); err != nil {
		return err
	}
	r.etcdIdle = (cpu(r.world.Etcd.PID) - before) / (float64(systems.Now()-at) / 1e9)
	r.progress.done(3, fmt.Sprintf("etcd without candidates: %.1f ms of processor time a second", r.etcdIdle))
	return nil
}
