//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/ha/cluster"
	"github.com/pgelector/pgelector/e2e/history"
)

// run is one run, from the servers' start to the judgement. Whatever it returns, the
// history is in the file at path.
func run(ctx context.Context, c config, path string) (err error) {
	fmt.Println(c.command())
	chosen, err := choose(c.faults)
	if err != nil {
		return err
	}
	servers, err := cluster.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Stop()) }()
	if err := furnish(ctx, servers); err != nil {
		return err
	}
	n := &nemesis{cluster: servers, rnd: rand.New(rand.NewPCG(c.seed, 0)), all: chosen}
	n.Fleet = fleet.New(fleet.Config{
		DSN:   func(m *fleet.Member) string { return dsn(servers, m.Route) },
		Ended: n.ended,
	})
	defer func() {
		n.Abandon()
		err = errors.Join(err, save(path, n.Log.Since(0)))
	}()
	if err := play(ctx, c, n); err != nil {
		return err
	}
	left, err := leftovers(ctx, servers)
	if err != nil {
		return err
	}
	return c.conclude(n.Log.Since(0), left)
}

// play strikes in each mode, and reads at the end what the database holds.
func play(ctx context.Context, c config, n *nemesis) error {
	probes := startProbes(ctx, n.cluster, &n.Log)
	defer probes.stop()
	began := time.Now()
	report := func(line string) {
		since := time.Since(began)
		fmt.Printf("%3d:%02d  %s\n", int(since.Minutes()), int(since.Seconds())%60, line)
	}
	modes := strings.Split(c.modes, ",")
	for _, mode := range modes {
		if !slices.Contains(strings.Split(allModes, ","), mode) {
			return fmt.Errorf("there is no mode %q: want some of %s", mode, allModes)
		}
	}
	for _, n.mode = range modes {
		n.forgetQuit()
		if err := n.Dismiss(); err != nil {
			return err
		}
		n.Seats = seatsIn(n.mode)
		if err := n.cluster.SetSynchronous(ctx, !asynchronous(n.mode)); err != nil {
			return err
		}
		line, err := n.calm(ctx, fmt.Sprintf("%d candidates, %s", len(seats), n.mode), history.Now())
		if err != nil {
			return err
		}
		report(line)
		var end time.Time
		if c.minutes > 0 {
			end = time.Now().Add(c.forEach(len(modes)))
		}
		if err := n.turn(ctx, report, end); err != nil {
			return err
		}
	}
	n.forgetQuit()
	if err := n.Dismiss(); err != nil {
		return err
	}
	return readLedger(ctx, n)
}

// connect connects to the primary, as superuser.
func connect(ctx context.Context, c *cluster.Cluster) (*pgx.Conn, error) {
	primary, err := c.AwaitPrimary(ctx)
	if err != nil {
		return nil, err
	}
	return pgx.Connect(ctx, "postgres://postgres@"+primary.Addr()+"/postgres?sslmode=disable")
}

// furnish makes what candidates and probes need.
func furnish(ctx context.Context, c *cluster.Cluster) error {
	conn, err := connect(ctx, c)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "CREATE ROLE "+fleet.Role+" LOGIN; "+probeSchema+";"+fleet.Schema)
	return err
}

// readLedger records what became of the writes.
func readLedger(ctx context.Context, n *nemesis) error {
	conn, err := connect(ctx, n.cluster)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "SELECT value, register, token FROM ledger UNION ALL SELECT '', name, 0 FROM register")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		e := history.Event{Kind: history.Kept, At: history.Now()}
		if err := rows.Scan(&e.New, &e.Register, &e.Token); err != nil {
			return err
		}
		n.Log.Add(e)
	}
	return rows.Err()
}

// leftovers checks, when every candidate has left, that no lock is left.
func leftovers(ctx context.Context, c *cluster.Cluster) (history.Proof, error) {
	p := history.Proof{Claim: "nothing was left behind", Checked: "every process had ended, and the primary had no advisory lock"}
	conn, err := connect(ctx, c)
	if err != nil {
		return p, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for deadline := time.Now().Add(fleet.Patience); ; time.Sleep(20 * time.Millisecond) {
		var locks int
		err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&locks)
		if err != nil || locks == 0 {
			return p, err
		}
		if time.Now().After(deadline) {
			p.Violations = append(p.Violations, fmt.Sprintf("%d locks are left", locks))
			return p, nil
		}
	}
}

// conclude judges a history, and tells.
func (c config) conclude(events []history.Event, more ...history.Proof) error {
	r := judge(events)
	r.proofs = append(r.proofs, more...)
	r.print(os.Stdout)
	var err error
	if c.results != "" {
		err = r.write(c.results, c.command())
	}
	return errors.Join(err, history.FailedProofs(r.proofs))
}

// judgeAgain is the judgement of a history that was kept.
func judgeAgain(c config) error {
	file, err := os.Open(c.judge)
	if err != nil {
		return err
	}
	defer file.Close()
	var log history.Log
	if err := log.Collect(file); err != nil {
		return err
	}
	return c.conclude(log.Since(0))
}

// save writes a history as lines of JSON.
func save(path string, events []history.Event) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(file)
	for _, e := range events {
		if err := lines.Encode(e); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}
