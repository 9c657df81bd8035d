//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// A fault is one kind of fault. inject injects it. It returns a function that ends the fault,
// nil if the fault ends unaided, and whom or what it hit.
type fault struct {
	name   string
	about  string
	alone  bool // it affects the servers, so at most one of two concurrent faults may be such
	own    bool // it needs separate network and mount namespaces
	pooler bool // it needs pgbouncer
	inject func(n *nemesis, ctx context.Context) (heal func(context.Context) error, whom string, err error)
}

// nemesis chooses faults at random, injects them and ends them.
type nemesis struct {
	*fleet.Fleet
	stage *stage
	rnd   *rand.Rand
	deck  []fault // still to be injected in this round
	all   []fault

	leavers []*fleet.Member // they leave when all faults have ended: a frozen process cannot
}

func newNemesis(f *fleet.Fleet, s *stage, seed uint64, all []fault) *nemesis {
	return &nemesis{Fleet: f, stage: s, rnd: rand.New(rand.NewPCG(seed, 0)), all: all}
}

// noticing is the longest time until the end of a pgbouncer is noticed.
const noticing = 100 * time.Millisecond

// recordBouncerEnds records from now on when a pgbouncer ends unexpectedly, since that ends the
// sessions through it.
func (n *nemesis) recordBouncerEnds() {
	n.stage.bouncerEnded = func() {
		n.Log.Add(history.Event{At: history.Now().Add(-noticing), Kind: history.Severed, Took: noticing})
	}
	for _, b := range n.stage.bouncers {
		n.stage.watch(b)
	}
}

// draw returns the next fault: each fault once, in random order, then again.
func (n *nemesis) draw() fault {
	if len(n.deck) == 0 {
		n.deck = slices.Clone(n.all)
		n.rnd.Shuffle(len(n.deck), func(i, j int) { n.deck[i], n.deck[j] = n.deck[j], n.deck[i] })
	}
	drawn := n.deck[0]
	n.deck = n.deck[1:]
	return drawn
}

// shortest and longest bound how long faults last: some are shorter than the validity,
// some longer than the lease.
const (
	shortest = 200 * time.Millisecond
	longest  = 2 * fleet.Lease
	together = 4 // one fault in this many is joined by a second one
)

// round injects one fault, or two at a time, and waits until the election has recovered.
// It returns a line about the round.
func (n *nemesis) round(ctx context.Context) (line string, err error) {
	drawn := []fault{n.draw()}
	if n.rnd.IntN(together) == 0 && len(n.deck) > 0 && !(drawn[0].alone && n.deck[0].alone) {
		drawn = append(drawn, n.draw())
	}
	hold := shortest + time.Duration(n.rnd.Int64N(int64(longest-shortest)))
	var heals []func(context.Context) error
	var injected []string
	for _, f := range drawn {
		n.Mark(history.Struck, f.name)
		heal, whom, err := f.inject(n, ctx)
		if err != nil {
			return "", fmt.Errorf("%s: %w", f.name, err)
		}
		heals = append(heals, func(ctx context.Context) error {
			defer n.Mark(history.Healed, f.name)
			if heal == nil {
				return nil
			}
			if err := heal(ctx); err != nil {
				return fmt.Errorf("%s, to end it: %w", f.name, err)
			}
			return nil
		})
		injected = append(injected, strings.TrimSpace(f.name+" "+whom))
	}
	if err := fleet.Pause(ctx, hold); err != nil {
		return "", err
	}
	for _, heal := range slices.Backward(heals) {
		if err := heal(ctx); err != nil {
			return "", err
		}
	}
	line = fmt.Sprintf("%-44s %4.1f s", strings.Join(injected, " + "), hold.Seconds())
	return n.recover(ctx, line)
}

// recover fills the empty seats, waits for a leader, lets it lead for a moment, and ends its session.
func (n *nemesis) recover(ctx context.Context, line string) (string, error) {
	if err := errors.Join(n.stage.primary.WaitReady(ctx), n.stage.reviveBouncers(ctx), n.dismissLeavers(), n.Fill()); err != nil {
		return "", fmt.Errorf("after %s: %w", line, err)
	}
	at := n.Mark(history.Calm, "")
	e, err := n.AwaitLeader(ctx, at)
	if err != nil {
		return "", fmt.Errorf("after %s: %w", line, err)
	}
	line = fmt.Sprintf("%s, %s leads after %4.1f s", line, e.Process, e.At.Sub(at).Seconds())
	if err := fleet.Pause(ctx, 300*time.Millisecond+time.Duration(n.rnd.Int64N(int64(fleet.Lease/2)))); err != nil {
		return "", err
	}
	return line, n.endLeaderSession(ctx)
}

// endLeaderSession ends the sessions that hold locks while nothing else is wrong, so that nothing but
// the end itself tells a leader. It gives a leader that is not told the time to show that.
func (n *nemesis) endLeaderSession(ctx context.Context) error {
	at := history.Now()
	if err := n.severing(func() error { return n.ask(ctx, terminateHolders) }); err != nil {
		return err
	}
	if _, err := n.AwaitLeader(ctx, at); err != nil {
		return fmt.Errorf("after the sessions that held locks had ended: %w", err)
	}
	return fleet.Pause(ctx, fleet.Slowest/2)
}

// dismissLeavers lets the leavers leave, unless they were killed meanwhile.
func (n *nemesis) dismissLeavers() (err error) {
	for _, m := range n.leavers {
		if n.Members[m.ID] == m {
			err = errors.Join(err, n.Leave(m))
		}
	}
	n.leavers = nil
	return err
}

// severing records that do ends sessions on the server.
func (n *nemesis) severing(do func() error) error {
	at := history.Now()
	err := do()
	n.Log.Add(history.Event{At: at, Kind: history.Severed, Took: history.Now().Sub(at)})
	return err
}

// victim returns the leader in two of three cases, otherwise a random candidate, of those that
// match. If the leader does not match, it is asked to resign, a few times, until a matching candidate
// leads.
func (n *nemesis) victim(ctx context.Context, among func(*nemesis, *fleet.Member) bool) *fleet.Member {
	if n.rnd.IntN(3) > 0 {
		for range 4 {
			leader, _ := n.Leader()
			if leader != nil && among(n, leader) {
				return leader
			}
			if leader == nil || leader.Send(fleet.Resign) != nil || fleet.Pause(ctx, 2*fleet.Retry) != nil {
				break
			}
		}
	}
	var some []*fleet.Member
	for _, s := range seats { // always in the same order, so that a seed repeats its choices
		if m := n.Members[s.ID]; m != nil && among(n, m) {
			some = append(some, m)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[n.rnd.IntN(len(some))]
}

// retire kills a server and gives the primary a new standby.
func (n *nemesis) retire(ctx context.Context, old *pgcluster.Cluster) error {
	if err := n.severing(old.Kill); err != nil {
		return err
	}
	n.Mark(history.Retired, "")
	return n.stage.replace(ctx, old)
}

// choose returns the faults that can be injected here, and prints why the others cannot.
func choose(only string, without error, bouncer bool, out io.Writer) ([]fault, error) {
	var chosen []fault
	for _, f := range faults() {
		switch {
		case only != "" && !slices.Contains(strings.Split(only, ","), f.name):
		case f.own && without != nil:
			fmt.Fprintf(out, "LEFT OUT: %s: %v\n", f.name, without)
		case f.pooler && !bouncer:
			fmt.Fprintf(out, "LEFT OUT: %s: pgbouncer is not installed\n", f.name)
		default:
			chosen = append(chosen, f)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no such fault: %q; see -list", only)
	}
	return chosen, nil
}

func listFaults() {
	for _, f := range faults() {
		fmt.Printf("%-10s %s\n", f.name, f.about)
	}
}
