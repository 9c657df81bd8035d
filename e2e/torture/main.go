//go:build linux

// Command torture runs one election under random faults and checks that it kept its
// guarantees: make torture MINUTES=2.
//
// It starts candidates of every kind, each in its own process, over both drivers. They
// reach the server by different routes: directly, through a proxy, through pgbouncer
// in session and in transaction mode, and from a separate network namespace. A nemesis injects faults, chosen at random from
// a seed that it prints: each kind once, in random order, then again, sometimes two at a
// time. After each fault it waits until a candidate leads. Leaders write to a register
// in fenced transactions. With an odd seed every candidate has WithLockDelay.
//
// Each process records what it did and believed (package history), in the machine's
// monotonic time. At the end the program checks the record: see prove. Three kinds of
// overlap are not excluded by the library: after the server has ended a session, until the
// leader is told (history.Told), which fails the run if it is late; after the server's host has died,
// for the leader's validity and drain, but not with WithLockDelay; and while there are two
// primaries, which is only counted. And what each candidate behind a proxy did is replayed on the proved
// protocol (package replay). A failed run keeps its history and prints the path.
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
	"fmt"
	"os"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/replay"
)

func main() {
	fleet.RunIfCandidate()
	var c config
	c.Parse(2, "how long to run", listFaults, func(events []history.Event) error { return c.report(events) })
	os.Exit(inNamespaces(func(without error) int {
		again := fmt.Sprintf("go run ./e2e/torture -minutes=%g -seed=%d -faults=%s", c.Minutes, c.Seed, c.Faults)
		return c.Try("torture", again, func(ctx context.Context, path string) error { return run(ctx, c, path, without) })
	}))
}

// config holds the flags.
type config struct{ fleet.Program }

func (c config) duration() time.Duration { return time.Duration(c.Minutes * float64(time.Minute)) }

// run starts the servers, injects faults, and checks the history. Whatever it returns, it
// writes the history to path. without is the reason why there are no namespaces, or nil.
func run(ctx context.Context, c config, path string, without error) (err error) {
	s, err := newStage(ctx, without == nil)
	if err != nil {
		return err
	}
	s.lockDelay = c.Seed%2 == 1
	fmt.Printf("torture: %v, seed %d, lock delay %v\n", c.duration(), c.Seed, s.lockDelay)
	defer func() { err = errors.Join(err, s.stopAll()) }()
	chosen, err := choose(c.Faults, without, len(s.bouncers) > 0, os.Stdout)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	f := newFleet(s, c.Seed, fail)
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
	return c.report(f.Log.Since(0), left, replayed(s.tape.Events(f.Log.Since(0)), path+".tape"))
}

// replayed replays what each candidate behind a proxy did by itself: there are servers that others reach on other routes.
// The tape is kept if one is rejected.
func replayed(events []replay.Event, path string) history.Proof {
	p := history.Proof{Claim: "each candidate behind a proxy did what the proof permits"}
	names := map[string]bool{}
	for _, e := range events {
		names[e.Who] = names[e.Who] || e.Kind == replay.Opened
	}
	all, terms := 0, 0
	for name, taped := range names {
		if !taped {
			continue
		}
		v := replay.Check(replay.Of(name, events), fleet.Lease)
		all, terms = all+v.Events, terms+v.Terms
		if v.Rejected != "" {
			p.Violations = append(p.Violations, name+": "+v.Rejected)
		}
	}
	p.Checked = fmt.Sprintf("%d events, %d terms", all, terms)
	if !p.Holds() {
		p.Violations = append(p.Violations, fmt.Sprintf("the tape is in %s (%v)", path, replay.Save(path, events)))
	}
	return p
}

// injectFaults injects faults until the time is up.
func injectFaults(ctx context.Context, c config, s *stage, f *fleet.Fleet, chosen []fault) error {
	began := time.Now()
	n := newNemesis(f, s, c.Seed, chosen)
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
	fmt.Printf("\nseed %d: %d faults of %d kinds\n", c.Seed, struck, len(kinds))
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
	for _, b := range s.bouncers { // they keep connections
		if err := b.Stop(); err != nil {
			return history.Proof{}, err
		}
	}
	conn, err := s.primary.Conn(ctx)
	if err != nil {
		return history.Proof{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return fleet.NothingLeft(ctx, conn, "every process had ended; the server had no advisory lock, and no session of a candidate",
		"SELECT (SELECT count(*) FROM pg_stat_activity WHERE usename = '"+fleet.Role+"') + (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')")
}
