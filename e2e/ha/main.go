//go:build linux

// Command ha runs elections on a high-availability cluster, checks that they keep their
// guarantees, and measures what each fault costs: make ha MINUTES=20.
//
// The cluster (package cluster) is etcd, three PostgreSQL members under Patroni, HAProxy
// and PgBouncer. Candidates of every kind, each in its own process (package fleet), take
// part in one election over both drivers. They reach the primary by multi-host DSNs, by
// HAProxy, and by PgBouncer on either side of HAProxy. The program injects each fault in
// random order, with asynchronous replication, with synchronous replication, and with
// WithSynchronousStandby. Leaders write in fenced transactions, and probes write to each
// member directly.
//
// Each process records what it did and believed (package history). At the end the
// program checks the record: see judge.go. A failed run keeps its history and prints the
// path.
//
// # Reading order
//
// main.go, run.go (one run from start to end), seats.go (the candidates and their
// routes), nemesis.go (the faults), probe.go, judge.go, measure.go, report.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/ha/cluster"
	"github.com/pgelector/pgelector/elector"
)

func main() {
	fleet.RunIfCandidate()
	var c config
	flag.Float64Var(&c.minutes, "minutes", 0, "how long to run; 0 injects each fault once in each mode")
	flag.Uint64Var(&c.seed, "seed", 0, "seed of the random choices; 0 chooses one")
	flag.StringVar(&c.faults, "faults", "", "inject only these faults, separated by commas (see -list)")
	flag.StringVar(&c.modes, "modes", allModes, "run in these modes, separated by commas")
	flag.StringVar(&c.keep, "keep", "", "keep the history in this file, also if the run passes")
	flag.StringVar(&c.results, "results", "", "write the table to this file")
	flag.StringVar(&c.judge, "judge", "", "start nothing; check the history in this file")
	list := flag.Bool("list", false, "list the faults")
	flag.Parse()
	switch {
	case flag.NArg() > 0 || c.minutes < 0:
		flag.Usage()
		os.Exit(2)
	case *list:
		for _, f := range faults() {
			fmt.Printf("%-18s %s\n", f.name, f.about)
		}
		return
	case c.judge != "":
		if err := recheck(c); err != nil {
			fmt.Println("FAILED:", err)
			os.Exit(1)
		}
		return
	}
	if c.seed == 0 {
		c.seed = rand.Uint64N(1e9) + 1
	}
	os.Exit(tryAll(c))
}

// config holds the flags.
type config struct {
	minutes       float64
	seed          uint64
	faults, modes string
	keep, results string
	judge         string
}

// perMode returns the time for one mode.
func (c config) perMode(modes int) time.Duration {
	return time.Duration(c.minutes * float64(time.Minute) / float64(modes))
}

// tryAll returns the exit status.
func tryAll(c config) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := cluster.Missing(ctx); err != nil {
		if os.Getenv("CI") != "" {
			fmt.Println("FAILED:", err)
			return 1
		}
		fmt.Println("SKIPPED:", err)
		return 0
	}
	path := c.keep
	if path == "" {
		path = filepath.Join(os.TempDir(), fmt.Sprintf("pgelector-ha-%d.jsonl", c.seed))
	}
	err := run(ctx, c, path)
	if err == nil && c.keep == "" {
		err = os.Remove(path)
	}
	if err != nil {
		fmt.Printf("\nFAILED: %v\n\nThe history is in %s\nTo repeat it: %s\n", err, path, c.command())
		return 1
	}
	return 0
}

// command returns the command line that repeats the run.
func (c config) command() string {
	words := []string{"make ha", fmt.Sprintf("MINUTES=%g", c.minutes), fmt.Sprintf("SEED=%d", c.seed)}
	if c.faults != "" {
		words = append(words, "FAULTS="+c.faults)
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
	{ID: "a", By: "pgx", Route: multi, Standby: elector.Poll},
	{ID: "b", By: "postgres", Route: multi},
	{ID: "c", By: "pgx", Route: cutting, Standby: elector.Wait, Watch: true},
	{ID: "d", By: "postgres", Route: plain, Watch: true},
	{ID: "e", By: "pgx", Route: front, Session: true},
	{ID: "f", By: "postgres", Route: behind, Standby: elector.Wait},
	{ID: "g", By: "pgx", Route: multi},
	{ID: "h", By: "postgres", Route: cutting, Session: true, Watch: true},
}

// retry is long enough that quick attempts after a failover stand out.
const retry = time.Second

// connectTimeout is the connect_timeout of the DSNs.
const connectTimeout = 2 * time.Second

// The modes. The same faults are injected in each.
const (
	async   = "async"   // asynchronous replication
	proxied = "proxied" // asynchronous; all candidates use the HAProxy that cuts
	synced  = "sync"    // synchronous replication
	guarded = "guarded" // synchronous; every candidate has WithSynchronousStandby

	allModes = async + "," + proxied + "," + synced + "," + guarded
)

// asynchronous reports whether commits do not wait for a standby.
func asynchronous(mode string) bool { return mode == async || mode == proxied }

// seatsIn returns the candidates of a mode. In guarded mode none has a shared session.
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
