//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/ha/cluster"
	"github.com/pgelector/pgelector/e2e/history"
)

// nemesis chooses faults at random, injects them one after the other, and ends them.
type nemesis struct {
	*fleet.Fleet
	cluster *cluster.Cluster
	rnd     *rand.Rand
	all     []fault
	mode    string
	leader  *fleet.Member // the leader when the last fault began; it is not killed
	kinds   []kind        // of candidates, in the mode leases: those that are yet to come

	mu   sync.Mutex
	quit []*fleet.Member // processes that ended unexpectedly, until their seats are filled again
}

// ended records that a process has ended unexpectedly.
func (n *nemesis) ended(m *fleet.Member) {
	n.Log.Add(history.Event{Process: m.Name, At: history.Now(), Kind: history.Quit, Text: m.Err().Error()})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.quit = append(n.quit, m)
}

// injectAll injects each fault once, in random order, and repeats that until the end
// time. If end is zero, it does not repeat.
func (n *nemesis) injectAll(ctx context.Context, report func(string), end time.Time) error {
	deck := slices.DeleteFunc(slices.Clone(n.all), func(f fault) bool { return !f.possible(n.mode) })
	if len(deck) == 0 {
		return nil
	}
	for {
		n.rnd.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		for _, f := range deck {
			if !end.IsZero() && time.Now().After(end) {
				return nil
			}
			line, err := n.round(ctx, f)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", f.name, n.mode, err)
			}
			report(line)
		}
		if end.IsZero() {
			return nil
		}
	}
}

// round injects one fault and waits until the cluster and the election have recovered. It
// returns a line about the round.
func (n *nemesis) round(ctx context.Context, f fault) (string, error) {
	if n.mode == leases {
		if err := n.reseat(ctx); err != nil {
			return "", err
		}
	}
	primary, err := n.cluster.AwaitPrimary(ctx)
	if err != nil {
		return "", err
	}
	text := f.name + ", " + n.mode
	if n.leader, _ = n.Leader(); n.leader != nil {
		defer watchRoute(ctx, &n.Log, n.leader.Route, dsn(n.cluster, n.leader.Route))()
	}
	struck := n.Mark(history.Struck, text)
	if err := f.inject(n, ctx, primary); err != nil {
		return "", err
	}
	n.Mark(history.Healed, text)
	line := fmt.Sprintf("%-26s at %s", text, primary.Name)
	return n.recover(ctx, line, struck)
}

// recover waits for the cluster, fills the empty seats, waits for a leader, and lets it
// lead for a moment.
func (n *nemesis) recover(ctx context.Context, line string, struck history.Time) (string, error) {
	before := len(n.cluster.Reinitialized)
	if err := n.cluster.AwaitHealthy(ctx); err != nil {
		return "", err
	}
	for _, name := range n.cluster.Reinitialized[before:] {
		n.Mark(history.Remade, name)
		line += ", " + name + " was reinitialized,"
	}
	gone := n.forgetQuit()
	if err := n.Fill(); err != nil {
		return "", err
	}
	at := n.Mark(history.Calm, "")
	e, err := n.AwaitLeader(ctx, at)
	if err != nil {
		return "", err
	}
	line = fmt.Sprintf("%s %5.1f s, then %s leads", line, at.Sub(struck).Seconds(), e.Process)
	if len(gone) > 0 {
		line += ". ENDED UNASKED: " + strings.Join(gone, ", ")
	}
	return line, n.letLead(ctx)
}

// letLead waits for a random time in which no fault is injected. A leader that does not know
// that it was replaced has time to show it.
func (n *nemesis) letLead(ctx context.Context) error {
	return fleet.Pause(ctx, time.Second+time.Duration(n.rnd.Int64N(int64(fleet.Lease))))
}

// forgetQuit empties the seats of processes that have ended, and returns their names.
func (n *nemesis) forgetQuit() (names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.quit {
		if n.Members[m.ID] == m {
			delete(n.Members, m.ID)
		}
		names = append(names, m.Name)
	}
	n.quit = nil
	return names
}

// meanwhile replaces a follower after a short random time, so that new processes also start
// during a fault.
func (n *nemesis) meanwhile(ctx context.Context) error {
	if err := fleet.Pause(ctx, time.Duration(n.rnd.Int64N(int64(3*time.Second)))); err != nil {
		return err
	}
	leader, _ := n.Leader()
	var followers []*fleet.Member
	for _, s := range n.Seats { // always in the same order, so that a seed repeats its choices
		if m := n.Members[s.ID]; m != nil && m != leader && m != n.leader {
			followers = append(followers, m)
		}
	}
	if len(followers) == 0 {
		return errors.New("no follower is left")
	}
	n.Kill(followers[n.rnd.IntN(len(followers))])
	return n.Fill()
}

// hold waits for a random time during which the fault goes on.
func (n *nemesis) hold(ctx context.Context) error {
	return fleet.Pause(ctx, time.Second+time.Duration(n.rnd.Int64N(int64(2*fleet.Lease))))
}

// choose returns the named faults, or all if only is empty.
func choose(only string) ([]fault, error) {
	if only == "" {
		return faults(), nil
	}
	var chosen []fault
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(faults(), func(f fault) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no such fault: %q; see -list", name)
		}
		chosen = append(chosen, faults()[i])
	}
	return chosen, nil
}

func listFaults() {
	for _, f := range faults() {
		fmt.Printf("%-18s %s\n", f.name, f.about)
	}
}

// A fault is one kind of fault. inject injects it and ends it; when it returns, the cluster
// recovers unaided. While the fault lasts, inject calls meanwhile once.
type fault struct {
	name, about string
	inject      func(n *nemesis, ctx context.Context, primary *cluster.Member) error
	mode        string // the only mode in which it is possible, or ""
}

// silent names the faults that freeze PostgreSQL: then a leader's session ends late, or not at all, and
// its validity ends its term.
var silent = []string{"freeze-postgres", "freeze-both", "freeze-postmaster", "discard"}

// possible reports whether the fault is injected in a mode.
func (f fault) possible(mode string) bool {
	if mode == leases {
		return slices.Contains(endsPrimary, f.name)
	}
	return f.mode == "" || f.mode == mode
}

// faults returns all faults, in list order.
func faults() []fault {
	return []fault{
		{"switchover", "Patroni switches over to a standby, as an operator requested", (*nemesis).switchOver, ""},
		{"crash", "SIGKILL ends the primary's postmaster; Patroni starts it again", (*nemesis).crash, ""},
		{"lose", "SIGKILL ends the primary's Patroni and PostgreSQL", (*nemesis).lose, ""},
		{"freeze-patroni", "SIGSTOP freezes the primary's Patroni until another member is promoted: two primaries", (*nemesis).freezePatroni, ""},
		{"freeze-postgres", "SIGSTOP freezes the primary's PostgreSQL until another member is promoted", (*nemesis).freezePostgres, ""},
		{"freeze-both", "SIGSTOP freezes the primary's Patroni and PostgreSQL until another member is promoted", (*nemesis).freezeBoth, ""},
		{"freeze-postmaster", "SIGSTOP freezes the primary's postmaster for a while: new connections hang, and sessions go on", (*nemesis).freezePostmaster, ""},
		{"etcd", "SIGSTOP freezes etcd for longer than the ttl: Patroni demotes the primary, and promotes a member when etcd is back", (*nemesis).freezeEtcd, ""},
		{"cut", "the primary's standbys are cut off from it", (*nemesis).cut, ""},
		{"cut-lose", "the primary's standbys are cut off from it, and then it is lost", (*nemesis).cutAndLose, ""},
		{"discard", "a promoted standby is lost before another member follows it: Patroni returns to the older timeline", (*nemesis).discard, async},
	}
}

func (n *nemesis) switchOver(ctx context.Context, primary *cluster.Member) error {
	done := make(chan error, 1)
	go func() { done <- n.cluster.Switchover(ctx) }()
	return errors.Join(n.meanwhile(ctx), <-done)
}

func (n *nemesis) crash(ctx context.Context, primary *cluster.Member) error {
	if err := errors.Join(primary.KillPostmaster(), n.meanwhile(ctx)); err != nil {
		return err
	}
	_, err := n.cluster.AwaitPrimary(ctx)
	return err
}

func (n *nemesis) lose(ctx context.Context, primary *cluster.Member) error {
	if err := errors.Join(primary.KillPatroni(), primary.KillPostgres(), n.meanwhile(ctx)); err != nil {
		return err
	}
	return errors.Join(n.awaitAnother(ctx, primary), primary.StartPatroni())
}

func (n *nemesis) freezePatroni(ctx context.Context, primary *cluster.Member) error {
	if err := errors.Join(primary.FreezePatroni(), n.meanwhile(ctx)); err != nil {
		return err
	}
	return errors.Join(n.awaitAnother(ctx, primary), primary.ThawPatroni())
}

func (n *nemesis) freezePostgres(ctx context.Context, primary *cluster.Member) error {
	if err := errors.Join(primary.FreezePostgres(), n.meanwhile(ctx)); err != nil {
		return err
	}
	return errors.Join(n.awaitAnother(ctx, primary), primary.ThawPostgres())
}

func (n *nemesis) freezeBoth(ctx context.Context, primary *cluster.Member) error {
	if err := errors.Join(primary.FreezePatroni(), primary.FreezePostgres(), n.meanwhile(ctx)); err != nil {
		return err
	}
	return errors.Join(n.awaitAnother(ctx, primary), primary.ThawPostgres(), primary.ThawPatroni())
}

func (n *nemesis) freezePostmaster(ctx context.Context, primary *cluster.Member) error {
	if err := errors.Join(primary.FreezePostmaster(), n.meanwhile(ctx)); err != nil {
		return err
	}
	return errors.Join(n.hold(ctx), primary.ThawPostgres())
}

func (n *nemesis) freezeEtcd(ctx context.Context, primary *cluster.Member) error {
	if err := errors.Join(n.cluster.FreezeEtcd(), n.meanwhile(ctx)); err != nil {
		return err
	}
	err := errors.Join(fleet.Pause(ctx, cluster.TTL), n.hold(ctx), n.cluster.ThawEtcd())
	if err != nil {
		return err
	}
	_, err = n.cluster.AwaitPrimary(ctx)
	return err
}

func (n *nemesis) cut(ctx context.Context, primary *cluster.Member) error {
	primary.Link.BlackHole()
	defer primary.Link.Heal()
	return errors.Join(n.meanwhile(ctx), n.hold(ctx))
}

func (n *nemesis) cutAndLose(ctx context.Context, primary *cluster.Member) error {
	primary.Link.BlackHole()
	defer primary.Link.Heal()
	if err := fleet.Pause(ctx, time.Duration(n.rnd.Int64N(int64(2*time.Second)))); err != nil {
		return err
	}
	return n.lose(ctx, primary)
}

func (n *nemesis) discard(ctx context.Context, primary *cluster.Member) error {
	return discardTimeline(ctx, n.cluster, primary, func() error { return errors.Join(n.meanwhile(ctx), n.hold(ctx)) })
}

// discardTimeline freezes the primary while the other standby is down, so that a standby is
// promoted. It calls meanwhile, and then stops the promoted member before the old primary is
// back. The old primary's Patroni is started anew: one that is thawed may find that it lost its
// key, stop the server and promote it, to the same number of a timeline as the promoted member.
func discardTimeline(ctx context.Context, c *cluster.Cluster, old *cluster.Member, meanwhile func() error) error {
	other := c.Members[slices.IndexFunc(c.Members, func(m *cluster.Member) bool { return m != old })]
	if err := errors.Join(other.KillPatroni(), other.KillPostgres(), old.KillPatroni(), old.FreezePostgres()); err != nil {
		return err
	}
	promoted, err := c.AwaitPrimary(ctx, old)
	if err != nil {
		return err
	}
	if err := errors.Join(meanwhile(), promoted.KillPatroni(), promoted.KillPostgres(), c.AwaitNoLeader(ctx)); err != nil {
		return err
	}
	if err := errors.Join(old.ThawPostgres(), old.StartPatroni()); err != nil {
		return err
	}
	_, err = c.AwaitPrimary(ctx)
	return errors.Join(err, promoted.StartPatroni(), other.StartPatroni())
}

// awaitAnother waits until another member is the primary, and a moment more.
func (n *nemesis) awaitAnother(ctx context.Context, than *cluster.Member) error {
	_, err := n.cluster.AwaitPrimary(ctx, than)
	return errors.Join(err, n.hold(ctx))
}
