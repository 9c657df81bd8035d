//go:build linux

// Command ha runs elections on a high-availability cluster, checks that they keep their
// guarantees, and measures what each fault costs: make ha MINUTES=20.
//
// The cluster (package cluster) is etcd, three PostgreSQL members under Patroni, HAProxy
// and PgBouncer. Candidates of every kind, each in its own process (package fleet), take
// part in one election over both drivers. They reach the primary by multi-host DSNs, by
// HAProxy, and by PgBouncer on either side of HAProxy. The program injects each fault in
// random order, with asynchronous replication, with synchronous replication, and with
// WithSynchronousStandby. In a last mode the candidates have leases of up to a minute, and
// some leaders write only once. Leaders write in fenced transactions, and probes write to each
// member directly.
//
// Each process records what it did and believed (package history). At the end the
// program checks the record: see judge.go. A failed run keeps its history and prints the
// path.
//
// # Reading order
//
// main.go (one run from start to end, the candidates and their routes), nemesis.go (the faults),
// probe.go, judge.go, report.go, beliefs.go (how long two believe that they lead).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/ha/cluster"
	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/elector"
)

func main() {
	fleet.RunIfCandidate()
	var c config
	flag.StringVar(&c.modes, "modes", allModes, "run in these modes, separated by commas")
	flag.StringVar(&c.results, "results", "", "write the table to this file")
	c.Parse(0, "how long to run; 0 injects each fault once in each mode", listFaults, func(events []history.Event) error { return c.report(events) })
	os.Exit(tryAll(c))
}

// config holds the flags.
type config struct {
	fleet.Program
	modes, results string
}

// perMode returns the time for one mode.
func (c config) perMode(modes int) time.Duration {
	return time.Duration(c.Minutes * float64(time.Minute) / float64(modes))
}

// tryAll returns the exit status.
func tryAll(c config) int {
	if err := cluster.Missing(context.Background()); err != nil {
		if os.Getenv("CI") != "" {
			fmt.Println("FAILED:", err)
			return 1
		}
		fmt.Println("SKIPPED:", err)
		return 0
	}
	return c.Try("ha", c.command(), func(ctx context.Context, path string) error { return run(ctx, c, path) })
}

// command returns the command line that repeats the run.
func (c config) command() string {
	words := []string{"make ha", fmt.Sprintf("MINUTES=%g", c.Minutes), fmt.Sprintf("SEED=%d", c.Seed)}
	if c.Faults != "" {
		words = append(words, "FAULTS="+c.Faults)
	}
	if c.modes != allModes {
		words = append(words, "MODES="+c.modes)
	}
	return strings.Join(words, " ")
}

// The candidates' routes.
const (
	multi   fleet.Route = "multi-host DSN"
	cutting fleet.Route = "HAProxy, which cuts"
	plain   fleet.Route = "HAProxy, which does not"
	front   fleet.Route = "PgBouncer, HAProxy"
	behind  fleet.Route = "HAProxy, PgBouncer"
)

var seats = []fleet.Seat{
	{ID: "a", By: "pgx", Route: multi, Takeover: elector.Poll},
	{ID: "b", By: "postgres", Route: multi},
	{ID: "c", By: "pgx", Route: cutting, Takeover: elector.Wait},
	{ID: "d", By: "postgres", Route: plain},
	{ID: "e", By: "pgx", Route: front, Session: true},
	{ID: "f", By: "postgres", Route: behind, Takeover: elector.Wait},
	{ID: "g", By: "pgx", Route: multi},
	{ID: "h", By: "postgres", Route: cutting, Session: true},
}

// retry is long enough that quick attempts after a failover stand out.
const retry = time.Second

// connectTimeout is the connect_timeout of the DSNs.
const connectTimeout = 2 * time.Second

// The modes. The same faults are injected in each, but for leases.
const (
	async   = "async"   // asynchronous replication
	proxied = "proxied" // asynchronous; all candidates use the HAProxy that cuts
	synced  = "sync"    // synchronous replication
	guarded = "guarded" // synchronous; every candidate has WithSynchronousStandby
	leases  = "leases"  // asynchronous; each fault meets another kind of candidates: see beliefs.go

	allModes = async + "," + proxied + "," + synced + "," + guarded + "," + leases
)

// asynchronous reports whether commits do not wait for a standby.
func asynchronous(mode string) bool { return mode == async || mode == proxied || mode == leases }

// seatsIn returns the candidates of a mode: in leases, before its first fault. In guarded mode none has a
// shared session.
func seatsIn(mode string) []fleet.Seat {
	all := slices.Clone(seats)
	for i := range all {
		all[i].Retry = retry
		switch mode {
		case proxied:
			all[i].Route = cutting
		case guarded:
			all[i].Session, all[i].Synchronous = false, true
		}
	}
	return all
}

// dsn returns the address of the primary over a route. Both drivers understand this form, also
// with several hosts.
func dsn(c *cluster.Cluster, route fleet.Route) string {
	var addresses, more string
	switch route {
	case multi:
		addresses, more = c.Hosts(), " target_session_attrs=read-write"
	case cutting:
		addresses = c.Addr(cluster.Cutting)
	case plain:
		addresses = c.Addr(cluster.Plain)
	case behind:
		addresses = c.Addr(cluster.Behind)
	case front:
		addresses = c.Front.Addr()
	}
	var hosts, ports []string
	for address := range strings.SplitSeq(addresses, ",") {
		host, port, _ := net.SplitHostPort(address)
		hosts, ports = append(hosts, host), append(ports, port)
	}
	return fmt.Sprintf("host=%s port=%s user=%s dbname=postgres sslmode=disable connect_timeout=%d%s",
		strings.Join(hosts, ","), strings.Join(ports, ","), fleet.Role, int(connectTimeout.Seconds()), more)
}

// run starts the servers, injects faults, and checks the history. Whatever it returns, it
// writes the history to path.
func run(ctx context.Context, c config, path string) (err error) {
	fmt.Println(c.command())
	chosen, err := choose(c.Faults)
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
	n := &nemesis{cluster: servers, rnd: rand.New(rand.NewPCG(c.Seed, 0)), all: chosen}
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
		line, err := n.recover(ctx, fmt.Sprintf("%d candidates, %s", len(n.Seats), n.mode), history.Now())
		if err != nil {
			return err
		}
		report(line)
		var end time.Time
		if c.Minutes > 0 {
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
	conn, err := connect(ctx, c)
	if err != nil {
		return history.Proof{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return fleet.NothingLeft(ctx, conn, "every process had ended, and the primary had no advisory lock",
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
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
