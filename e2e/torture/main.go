//go:build linux

// Command torture runs one election under random faults and checks that it kept its
// guarantees: make torture MINUTES=2.
//
// It starts candidates of every kind, each in its own process, over both drivers. They
// reach the server by different routes: directly, through a proxy, through pgbouncer
// in session and in transaction mode, and from a separate network namespace. A nemesis injects faults, chosen at random from
// a seed that it prints: each kind once, in random order, then again, sometimes two at a
// time. After each fault it waits until a candidate leads. Leaders write to a register
// in fenced transactions.
//
// Each process records what it did and believed (package history), in the machine's
// monotonic time. At the end the program checks the record: see prove. Two kinds of
// overlap are not excluded by the library, and are only counted: after the server has
// ended a session, until the leader's next heartbeat; and while there are two primaries.
// A failed run keeps its history and prints the path.
//
// The program needs Linux. As root, it first moves into new network and mount
// namespaces, where it can cut links and fill a disk without leaving anything behind.
// Without root it skips those faults and says so.
//
// # Reading order
//
// main.go (one run from start to end), stage.go (the servers, the candidates and the
// routes between them), nemesis.go, faults.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
)

func main() {
	fleet.RunIfCandidate()
	var c config
	flag.Float64Var(&c.minutes, "minutes", 2, "how long to run")
	flag.Uint64Var(&c.seed, "seed", 0, "seed of the random choices; 0 chooses one")
	flag.StringVar(&c.faults, "faults", "", "inject only these faults, separated by commas (see -list)")
	flag.StringVar(&c.keep, "keep", "", "keep the history in this file, also if the run passes")
	flag.StringVar(&c.judge, "judge", "", "inject no faults; check the history in this file")
	list := flag.Bool("list", false, "list the faults")
	flag.Parse()
	switch {
	case flag.NArg() > 0 || c.minutes <= 0:
		flag.Usage()
		os.Exit(2)
	case *list:
		listFaults(os.Stdout)
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
	os.Exit(inNamespaces(func(without error) int { return torture(c, without) }))
}

// config holds the flags.
type config struct {
	minutes     float64
	seed        uint64
	faults      string
	keep, judge string
}

func (c config) duration() time.Duration { return time.Duration(c.minutes * float64(time.Minute)) }

// torture returns the exit status. without is the reason why there are no namespaces, or nil.
func torture(c config, without error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	path := c.keep
	if path == "" {
		path = filepath.Join(os.TempDir(), fmt.Sprintf("pgelector-torture-%d.jsonl", c.seed))
	}
	err := run(ctx, c, path, without)
	if err == nil && c.keep == "" {
		err = os.Remove(path)
	}
	if err != nil {
		fmt.Printf("\nFAILED: %v\n\nThe history is in %s\nTo repeat it: go run ./e2e/torture -minutes=%g -seed=%d -faults=%s\n", err, path, c.minutes, c.seed, c.faults)
		return 1
	}
	return 0
}

// run starts the servers, injects faults, and checks the history. Whatever it returns, it
// writes the history to path.
func run(ctx context.Context, c config, path string, without error) (err error) {
	fmt.Printf("torture: %v, seed %d\n", c.duration(), c.seed)
	s, err := newStage(ctx, without == nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stopAll()) }()
	chosen, err := choose(c.faults, without, len(s.bouncers) > 0, os.Stdout)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	f := newFleet(s, c.seed, fail)
	defer func() {
		f.Abandon()
		err = errors.Join(err, history.Save(path, f.Log.Since(0)))
	}()
	if err := injectFaults(ctx, c, s, f, chosen); err != nil {
		return err
	}
	if err := f.Dismiss(); err != nil {
		return err
	}
	left, err := leftovers(ctx, s)
	if err != nil {
		return err
	}
	return c.report(f.Log.Since(0), left)
}

// injectFaults injects faults until the time is up.
func injectFaults(ctx context.Context, c config, s *stage, f *fleet.Fleet, chosen []fault) error {
	began := time.Now()
	n := newNemesis(f, s, c.seed, chosen)
	n.recordBouncerEnds()
	line, err := n.recover(ctx, fmt.Sprintf("%d candidates", len(seats)))
	for round := 0; err == nil; round++ {
		since := time.Since(began).Round(time.Second)
		fmt.Printf("%3d:%02d  %s\n", int(since.Minutes()), int(since.Seconds())%60, line)
		if since >= c.duration() {
			return nil
		}
		line, err = n.round(ctx)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause // the reason for err
	}
	return err
}

// recheck checks a history that an earlier run kept.
func recheck(c config) error {
	events, err := history.Load(c.judge)
	if err != nil {
		return err
	}
	return c.report(events)
}

// report prints how many faults there were, and what the history proves.
func (c config) report(events []history.Event, more ...history.Proof) error {
	struck, kinds := 0, map[string]bool{}
	for _, e := range events {
		if e.Kind == history.Struck {
			struck++
			kinds[e.Text] = true
		}
	}
	proofs := append(prove(events), more...)
	fmt.Printf("\nseed %d: %d faults of %d kinds\n", c.seed, struck, len(kinds))
	history.Print(os.Stdout, proofs)
	return history.FailedProofs(proofs)
}

// prove checks each election (no two led at once, tokens rose, hooks alternated), the first
// election (somebody led again after each fault) and each register (its writes are
// linearizable).
func prove(events []history.Event) []history.Proof {
	first := fleet.Of("", events)
	proofs := []history.Proof{history.Complete(events)}
	for _, election := range []string{"", fleet.SecondElection} {
		its := fleet.Of(election, events)
		for _, p := range []history.Proof{history.OneLeader(its, fleet.Grace), history.TokensRise(its), history.HooksAlternate(its)} {
			if election != "" {
				p.Claim += " (the second election)"
			}
			proofs = append(proofs, p)
		}
	}
	return append(proofs, history.ThawedKnow(first), history.Recovers(first, fleet.Bound), fleet.Linearizable(first))
}

// leftovers checks, after every candidate has left, that the server has no session and no lock
// of a candidate.
func leftovers(ctx context.Context, s *stage) (history.Proof, error) {
	p := history.Proof{Claim: "nothing was left behind", Checked: "every process had ended; the server had no advisory lock, and no session of a candidate"}
	for _, b := range s.bouncers { // they keep connections
		if err := b.Stop(); err != nil {
			return p, err
		}
	}
	conn, err := s.primary.Conn(ctx)
	if err != nil {
		return p, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var sessions, locks int
	for deadline := time.Now().Add(fleet.Patience); ; time.Sleep(20 * time.Millisecond) {
		err := conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_stat_activity WHERE usename = $1),
			(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')`, fleet.Role).Scan(&sessions, &locks)
		if err != nil {
			return p, err
		}
		if sessions == 0 && locks == 0 {
			return p, nil
		}
		if time.Now().After(deadline) {
			p.Violations = append(p.Violations, fmt.Sprintf("%d sessions and %d locks are left", sessions, locks))
			return p, nil
		}
	}
}
