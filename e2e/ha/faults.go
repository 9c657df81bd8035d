//go:build linux

package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pgelector/pgelector/e2e/ha/cluster"
)

// A fault is one kind of harm. strike does it and ends it: when it returns, the
// cluster heals by itself. It calls meanwhile once, while the harm is done.
type fault struct {
	name, about string
	strike      func(n *nemesis, ctx context.Context, primary *cluster.Member) error
	mode        string // the only one in which it can be done, or ""
}

// faults are all that there are, in the order in which they are listed.
func faults() []fault {
	return []fault{
		{"switchover", "Patroni hands over to a standby, as an operator asks it to", (*nemesis).switchOver, ""},
		{"crash", "the primary's postmaster is ended by SIGKILL; Patroni starts it again", (*nemesis).crash, ""},
		{"lose", "the primary's Patroni and PostgreSQL are ended by SIGKILL", (*nemesis).lose, ""},
		{"freeze-patroni", "the primary's Patroni is frozen by SIGSTOP until another is promoted, and thawed: two primaries", (*nemesis).freezePatroni, ""},
		{"freeze-postgres", "the primary's PostgreSQL is frozen by SIGSTOP until another is promoted, and thawed", (*nemesis).freezePostgres, ""},
		{"freeze-both", "both are", (*nemesis).freezeBoth, ""},
		{"freeze-postmaster", "the primary's postmaster is frozen by SIGSTOP, so that new connections hang and sessions go on, and thawed", (*nemesis).freezePostmaster, ""},
		{"etcd", "etcd is frozen by SIGSTOP for longer than the ttl: the primary is demoted, and one is promoted when etcd is back", (*nemesis).freezeEtcd, ""},
		{"cut", "the primary's standbys are cut off from it", (*nemesis).cut, ""},
		{"cut-lose", "the primary's standbys are cut off from it, and then it is lost", (*nemesis).cutAndLose, ""},
		{"discard", "a standby that was promoted is lost before another has followed it: Patroni returns to the older timeline", (*nemesis).discard, async},
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
	err := errors.Join(pause(ctx, cluster.TTL), n.hold(ctx), n.cluster.ThawEtcd())
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
	if err := pause(ctx, time.Duration(n.rnd.Int64N(int64(2*time.Second)))); err != nil {
		return err
	}
	return n.lose(ctx, primary)
}

func (n *nemesis) discard(ctx context.Context, primary *cluster.Member) error {
	return discardTimeline(ctx, n.cluster, primary, func() error { return errors.Join(n.meanwhile(ctx), n.hold(ctx)) })
}

// discardTimeline has a standby promoted while its primary is frozen and the other
// standby is down, calls meanwhile, and has what was promoted go down, too, before the
// old primary is back.
func discardTimeline(ctx context.Context, c *cluster.Cluster, old *cluster.Member, meanwhile func() error) error {
	other := c.Members[slices.IndexFunc(c.Members, func(m *cluster.Member) bool { return m != old })]
	if err := errors.Join(other.KillPatroni(), other.KillPostgres(), old.FreezePatroni(), old.FreezePostgres()); err != nil {
		return err
	}
	promoted, err := c.AwaitPrimary(ctx, old)
	if err != nil {
		return err
	}
	if err := errors.Join(meanwhile(), promoted.KillPatroni(), promoted.KillPostgres(), c.AwaitNoLeader(ctx)); err != nil {
		return err
	}
	if err := errors.Join(old.ThawPostgres(), old.ThawPatroni()); err != nil {
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
