//go:build linux

package main

import (
	"context"
	"errors"
	"time"

	"github.com/pgelector/pgelector/e2e/ha/cluster"
)

// A fault is one kind of harm. strike does it and ends it: when it returns, the
// cluster heals by itself. It calls meanwhile once, while the harm is done.
type fault struct {
	name, about string
	strike      func(n *nemesis, ctx context.Context, primary *cluster.Member) error
}

// faults are all that there are, in the order in which they are listed.
func faults() []fault {
	return []fault{
		{"switchover", "Patroni hands over to a standby, as an operator asks it to", (*nemesis).switchOver},
		{"crash", "the primary's postmaster is ended by SIGKILL; Patroni starts it again", (*nemesis).crash},
		{"lose", "the primary's Patroni and PostgreSQL are ended by SIGKILL", (*nemesis).lose},
		{"freeze-patroni", "the primary's Patroni is frozen by SIGSTOP until another is promoted, and thawed: two primaries", (*nemesis).freezePatroni},
		{"freeze-postgres", "the primary's PostgreSQL is frozen by SIGSTOP until another is promoted, and thawed", (*nemesis).freezePostgres},
		{"freeze-both", "both are", (*nemesis).freezeBoth},
		{"freeze-postmaster", "the primary's postmaster is frozen by SIGSTOP, so that new connections hang and sessions go on, and thawed", (*nemesis).freezePostmaster},
		{"etcd", "etcd is frozen by SIGSTOP for longer than the ttl: the primary is demoted, and one is promoted when etcd is back", (*nemesis).freezeEtcd},
		{"cut", "the primary's standbys are cut off from it", (*nemesis).cut},
		{"cut-lose", "the primary's standbys are cut off from it, and then it is lost", (*nemesis).cutAndLose},
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

// awaitAnother waits until another member is the primary, and a moment more.
func (n *nemesis) awaitAnother(ctx context.Context, than *cluster.Member) error {
	_, err := n.cluster.AwaitPrimary(ctx, than)
	return errors.Join(err, n.hold(ctx))
}
