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

// A fault is one kind of harm. strike does it, and returns what ends it, nil if
// it ends by itself, and whom or what it hit.
type fault struct {
	name   string
	about  string
	alone  bool // of two at a time, one at most may be such: it has the servers to itself
	own    bool // it needs network and mount namespaces of our own
	pooler bool // it needs pgbouncer
	strike func(n *nemesis, ctx context.Context) (heal func(context.Context) error, whom string, err error)
}

// nemesis draws faults, and sees to it that they end.
type nemesis struct {
	*fleet.Fleet
	stage *stage
	rnd   *rand.Rand
	deck  []fault // to be drawn yet, of this round
	all   []fault

	leavers []*fleet.Member // who will leave when all faults have ended: a frozen one cannot
}

func newNemesis(f *fleet.Fleet, s *stage, seed uint64, all []fault) *nemesis {
	return &nemesis{Fleet: f, stage: s, rnd: rand.New(rand.NewPCG(seed, 0)), all: all}
}

// noticing is the longest from the end of a pgbouncer until we notice it.
const noticing = 100 * time.Millisecond

// attend records that pgbouncer has ended by itself, and with it the sessions
// through it, from now on.
func (n *nemesis) attend() {
	n.stage.bouncerEnded = func() {
		n.Log.Add(history.Event{At: history.Now().Add(-noticing), Kind: history.Severed, Took: noticing})
	}
	n.stage.watchBouncer()
}

// draw takes the next fault: each once, in random order, and then again.
func (n *nemesis) draw() fault {
	if len(n.deck) == 0 {
		n.deck = slices.Clone(n.all)
		n.rnd.Shuffle(len(n.deck), func(i, j int) { n.deck[i], n.deck[j] = n.deck[j], n.deck[i] })
	}
	drawn := n.deck[0]
	n.deck = n.deck[1:]
	return drawn
}

// shortest and longest are how long faults last: some shorter than the
// validity, some longer than the lease.
const (
	shortest = 200 * time.Millisecond
	longest  = 2 * fleet.Lease
	together = 4 // one in so many is joined by another
)

// round strikes once, or twice at a time, and waits until all is well again. It
// returns a line about it.
func (n *nemesis) round(ctx context.Context) (line string, err error) {
	drawn := []fault{n.draw()}
	if n.rnd.IntN(together) == 0 && len(n.deck) > 0 && !(drawn[0].alone && n.deck[0].alone) {
		drawn = append(drawn, n.draw())
	}
	hold := shortest + time.Duration(n.rnd.Int64N(int64(longest-shortest)))
	var heals []func(context.Context) error
	var told []string
	for _, f := range drawn {
		n.mark(history.Struck, f.name)
		heal, whom, err := f.strike(n, ctx)
		if err != nil {
			return "", fmt.Errorf("%s: %w", f.name, err)
		}
		heals = append(heals, func(ctx context.Context) error {
			defer n.mark(history.Healed, f.name)
			if heal == nil {
				return nil
			}
			if err := heal(ctx); err != nil {
				return fmt.Errorf("%s, to end it: %w", f.name, err)
			}
			return nil
		})
		told = append(told, strings.TrimSpace(f.name+" "+whom))
	}
	if err := pause(ctx, hold); err != nil {
		return "", err
	}
	for _, heal := range slices.Backward(heals) {
		if err := heal(ctx); err != nil {
			return "", err
		}
	}
	line = fmt.Sprintf("%-44s %4.1f s", strings.Join(told, " + "), hold.Seconds())
	return n.calm(ctx, line)
}

// calm fills the seats again, waits for a leader, and gives it a moment.
func (n *nemesis) calm(ctx context.Context, line string) (string, error) {
	if err := errors.Join(n.stage.primary.WaitReady(ctx), n.stage.mendBouncer(ctx), n.dismissLeavers(), n.Fill()); err != nil {
		return "", fmt.Errorf("after %s: %w", line, err)
	}
	at := n.mark(history.Calm, "")
	e, err := n.AwaitLeader(ctx, at)
	if err != nil {
		return "", fmt.Errorf("after %s: %w", line, err)
	}
	return fmt.Sprintf("%s, %s leads after %4.1f s", line, e.Process, e.At.Sub(at).Seconds()),
		pause(ctx, 300*time.Millisecond+time.Duration(n.rnd.Int64N(int64(fleet.Lease/2))))
}

// dismissLeavers lets those leave who were to, unless they were killed meanwhile.
func (n *nemesis) dismissLeavers() (err error) {
	for _, m := range n.leavers {
		if n.Members[m.ID] == m {
			err = errors.Join(err, n.Leave(m))
		}
	}
	n.leavers = nil
	return err
}

// mark records what is of no process.
func (n *nemesis) mark(kind history.Kind, text string) history.Time {
	at := history.Now()
	n.Log.Add(history.Event{At: at, Kind: kind, Text: text})
	return at
}

// severing does what makes the server end sessions.
func (n *nemesis) severing(do func() error) error {
	at := history.Now()
	err := do()
	n.Log.Add(history.Event{At: at, Kind: history.Severed, Took: history.Now().Sub(at)})
	return err
}

// victim is the leader, two times of three, or somebody else.
func (n *nemesis) victim(ctx context.Context) *fleet.Member {
	return n.victimOf(ctx, func(*fleet.Member) bool { return true })
}

// victimOf is the leader, two times of three, or somebody else, among some. If the
// leader is none of them it is asked to resign, a few times, until one of them leads.
func (n *nemesis) victimOf(ctx context.Context, among func(*fleet.Member) bool) *fleet.Member {
	if n.rnd.IntN(3) > 0 {
		for range 4 {
			leader, _ := n.Leader()
			if leader != nil && among(leader) {
				return leader
			}
			if leader == nil || leader.Send(fleet.Resign) != nil || pause(ctx, 2*fleet.Retry) != nil {
				break
			}
		}
	}
	var some []*fleet.Member
	for _, s := range seats { // in an order that is always the same
		if m := n.Members[s.ID]; m != nil && among(m) {
			some = append(some, m)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[n.rnd.IntN(len(some))]
}

// retire takes a server out of service, and gives the primary a standby for it.
func (n *nemesis) retire(ctx context.Context, old *pgcluster.Cluster) error {
	if err := n.severing(old.Kill); err != nil {
		return err
	}
	n.mark(history.Retired, "")
	return n.stage.replace(ctx, old)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// choose returns the faults that can be had here, and says why of the others.
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
		return nil, fmt.Errorf("there is no such fault as %q: see -list", only)
	}
	return chosen, nil
}

func listFaults(out io.Writer) {
	for _, f := range faults() {
		fmt.Fprintf(out, "%-10s %s\n", f.name, f.about)
	}
}
