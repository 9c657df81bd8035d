//go:build linux

package main

import (
	"context"

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

// run starts the servers, injects faults, and checks the history. Whatever it returns, it
// writes the history to path.
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
	if err := createTables(ctx, servers); err != nil {
		return err
	}
	n := &nemesis{cluster: servers, rnd: rand.New(rand.NewPCG(c.seed, 0)), all: chosen}
	n.Fleet = fleet.New(fleet.Config{
		DSN:   func(m *fleet.Member) string { return dsn(servers, m.Route) },
		Ended: n.ended,
	})
	defer func() {
		n.Abandon()
		err = errors.Join(err, history.Save(path, n.Log.Since(0)))
	}()
	if err := injectFaults(ctx, c, n); err != nil {
		return err
	}
	left, err := leftovers(ctx, servers)
	if err != nil {
		return err
	}
	return c.report(n.Log.Since(0), left)
}

// injectFaults injects faults in each mode. At the end it reads what the database holds.
func injectFaults(ctx context.Context, c config, n *nemesis) error {
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
			return fmt.Errorf("no mode %q: want some of %s", mode, allModes)
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
		line, err := n.recover(ctx, fmt.Sprintf("%d candidates, %s", len(seats), n.mode), history.Now())
		if err != nil {
			return err
		}
		report(line)
		var end time.Time
		if c.minutes > 0 {
			end = time.Now().Add(c.perMode(len(modes)))
		}
		if err := n.injectAll(ctx, report, end); err != nil {
			return err
		}
	}
	n.forgetQuit()
	if err := n.Dismiss(); err != nil {
		return err
	}
	return readLedger(ctx, n)
}

// connect connects to the primary as superuser.
func connect(ctx context.Context, c *cluster.Cluster) (*pgx.Conn, error) {
	primary, err := c.AwaitPrimary(ctx)
	if err != nil {
		return nil, err
	}
	return pgx.Connect(ctx, "postgres://postgres@"+primary.Addr()+"/postgres?sslmode=disable")
}

// createTables creates the role and tables that candidates and probes need.
func createTables(ctx context.Context, c *cluster.Cluster) error {
	conn, err := connect(ctx, c)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "CREATE ROLE "+fleet.Role+" LOGIN; "+probeSchema+";"+fleet.Schema)
	return err
}

// readLedger records which writes are in the database.
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

// leftovers checks, after every candidate has left, that no lock is left.
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

// report checks a history and prints the result.
func (c config) report(events []history.Event, more ...history.Proof) error {
	r := judge(events)
	r.proofs = append(r.proofs, more...)
	r.print(os.Stdout)
	var err error
	if c.results != "" {
		err = r.write(c.results, c.command())
	}
	return errors.Join(err, history.FailedProofs(r.proofs))
}

// recheck checks a history that an earlier run kept.
func recheck(c config) error {
	events, err := history.Load(c.judge)
	if err != nil {
		return err
	}
	return c.report(events)
}
