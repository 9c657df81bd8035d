// Package shard spreads many elections evenly over the processes that run them. Each shard
// of a group, such as a partition, a tenant or a queue, is an election, and each live member
// of the group leads its share.
//
//	shards, err := shard.NewSet("eu", "us", "asia") // or shard.Numbers(64)
//	err = shard.Run(ctx, pool, "billing", shards, func(ctx context.Context, name string, term *elector.Term) error {
//		… // until ctx is done
//	})
//
// # What is not promised
//
//   - As in any election, no lock stops a process that runs on after its term. Fence writes
//     with the term's token or InTx.
//   - The spread counts shards, not their load.
//   - While members come and go, the spread may be uneven and a shard may have no leader.
//
// # The spread
//
// Once things are quiet, each of m members leads n/m of n shards, rounded down or up. A
// member that joins or leaves moves only the difference: no two members exchange shards.
// A member with too many shards gives up those that it was elected for last, a few at a time
// ([WithMoves]). The work on a shard returns before its lock is released.
//
// # How members are counted
//
// Each member holds a seat: one more election, named after the group and a number, such as
// "billing#17", on the session that leads its shards. So a member that is killed, cut off or
// frozen loses its seat together with its shards, at the latest when its lease ends. There is no
// table. About ten times a second ([WithInterval]) each member asks which seats are taken. That
// statement tries the locks of the seats, and reads no list of locks: its cost does not depend
// on the number of shards. Only a member with room for more shards looks which are free.
//
// A member has its place in the order of the taken seats. The first n%m members lead one
// shard more than the others. So every member knows its share from the count alone.
//
// The election of a shard is named after the group and the shard: "billing/eu" ([Election]).
// The commands and the dashboard show it like any other. Hooks given to [WithSession] hear of
// all shards and of the seat: also, by OnClosed, when a shard that this member has tried to
// lead is gone from the set, or the seat was left.
package shard

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// A Lead does the work on one shard while its term lasts. It is called on a goroutine for
// each shard, and must return soon after ctx is done.
type Lead func(ctx context.Context, shard string, term *elector.Term) error

// Run makes this process a member of the group, on one session of the pool, which the caller
// keeps and closes. It leads its share of the shards, and calls lead for each one.
//
//   - A term ends because the session is lost, or the shard moves to another member: lead's
//     context is done, and the lock is released after lead has returned.
//   - lead returns while the term goes on: the shard is given up. It is led again a second later,
//     here or by another member with room. An error of lead goes to OnDemoted.
//   - ctx ends: Run gives up its seat and all shards, waits for the work, and returns an error that
//     wraps ctx.Err() and the cause of ctx: a clean stop if errors.Is(err, context.Canceled).
//   - No look at the seats and shards succeeds for 30 s, or for two intervals ([WithInterval]) if
//     those are longer, as when the pool has no connection to spare: the member gives up its seat,
//     and OnDemoted receives the reason. It keeps its shards, and joins again once a look has
//     succeeded; its health is not checked meanwhile.
//   - The server is refused, or attempts are used up, as in elector.Elector.Run: the same, with
//     that error.
//   - lead panics: so does the process.
//
// A group has at most 128 members; more wait for a seat. [CheckGroup] says which names a group may have. An argument or option that cannot be used is an error that wraps
// elector.ErrConfig. The first member of a group waits half a second for others before it
// leads.
//
// The shards of all members must find room in the server's lock table, of which
// max_locks_per_transaction and max_connections set the size. If it is full, OnError receives
// elector.ErrLockTableFull, and the member tries again.
func Run(ctx context.Context, pool *sql.DB, group string, shards *Set, lead Lead, opts ...Option) error {
	c := config{moves: defaultMoves, interval: defaultInterval}
	for i, opt := range opts {
		if opt == nil {
			return fmt.Errorf("%w: option %d is nil", elector.ErrConfig, i+1)
		}
		if err := opt(&c); err != nil {
			return err
		}
	}
	if err := CheckGroup(group); err != nil {
		return err
	}
	if shards == nil || lead == nil {
		return fmt.Errorf("%w: the set of shards or lead is nil", elector.ErrConfig)
	}
	session, err := elector.NewSession(pool, c.session...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := newMember(group, pool, session, shards, lead, c)
	err = m.run(ctx, cancel)
	_ = session.Close(context.WithoutCancel(ctx)) // all terms are over
	return err
}

// An Option changes a default of Run. The error of one that cannot be used wraps
// elector.ErrConfig.
type Option func(*config) error

type config struct {
	session  []elector.SessionOption
	moves    int
	most     int // shards at a time; 0: no bound
	beyond   func(context.Context, int, []string)
	sticky   time.Duration
	interval time.Duration
}

const (
	defaultMoves    = 16
	defaultInterval = 100 * time.Millisecond
	minInterval     = 10 * time.Millisecond
	maxInterval     = time.Minute
	maxSticky       = 24 * time.Hour
)

// WithSession adds options of the session that carries all shards: the candidate id, the
// lease, hooks, health and others. Health (elector.WithHealth) is checked once for each member, and
// not for each shard: while it is bad, the member does not count, and gives up its shards.
func WithSession(opts ...elector.SessionOption) Option {
	return func(c *config) error {
		c.session = append(c.session, opts...)
		return nil
	}
}

// WithMoves sets how many shards a member gives up at the same time when others have fewer.
// The next one follows when the work on one has returned. Default 16, at least 1. A shutdown and
// a shard that is gone from the set do not count.
func WithMoves(n int) Option {
	return func(c *config) error {
		c.moves = n
		if n < 1 {
			return fmt.Errorf("%w: WithMoves(%d): want n >= 1", elector.ErrConfig, n)
		}
		return nil
	}
}

// WithMost bounds how many shards this member leads at any time, also while shards move or their
// work hangs. With n shards and WithMost(1), n members work at a time, and the others stand by. If k
// times the number of members is less than the number of shards, nobody leads the rest: see WithBeyond.
// All members should have the same. Default: no bound; at least 1.
func WithMost(k int) Option {
	return func(c *config) error {
		c.most = k
		if k < 1 {
			return fmt.Errorf("%w: WithMost(%d): want k >= 1", elector.ErrConfig, k)
		}
		return nil
	}
}

// WithBeyond calls report when the number of shards that no member may lead (WithMost) has changed:
// with that number and the names of the shards that nobody led at the last look, and with 0 once there
// is room for all. An alarm belongs there. report is called on the member's one goroutine, so it must
// return soon.
func WithBeyond(report func(ctx context.Context, shards int, unled []string)) Option {
	return func(c *config) error {
		c.beyond = report
		if report == nil {
			return fmt.Errorf("%w: WithBeyond(nil)", elector.ErrConfig)
		}
		return nil
	}
}

// WithSticky makes shards stick to a member that is away: for d after it was last seen, those that saw
// it do not take its shards. A member that restarts within d with the same candidate id (elector.WithCandidateID)
// gets them back, and no other shard moves. Meanwhile they have no leader. A member that joins
// meanwhile does not know of the absence, and may take them; if the absent one comes back, all have
// even shares again. Shards that are new to the set meanwhile may wait, too. If several members are
// away at once, they may come back to each other's shards, and some shards may wait until d is over.
// Default 0: the others take the shards at once; at most 24 h. All members should have the same.
func WithSticky(d time.Duration) Option {
	return func(c *config) error {
		c.sticky = d
		if d < 0 || d > maxSticky {
			return fmt.Errorf("%w: WithSticky(%v): want 0 to %v", elector.ErrConfig, d, maxSticky)
		}
		return nil
	}
}

// WithInterval sets how often a member counts the seats that are taken: it is the time between two
// counts, and so about how soon it takes the shards of a member that was killed. Each wait is shortened
// by a random part, up to a quarter. In a group of more than ten members each one waits longer, so that
// all of them together make no more counts than ten would (members that wait for a seat come on top of the
// 128, at the same pace). Default 100 ms; at least 10 ms, at most one minute.
func WithInterval(d time.Duration) Option {
	return func(c *config) error {
		c.interval = d
		if d < minInterval || d > maxInterval {
			return fmt.Errorf("%w: WithInterval(%v): want %v <= interval <= %v", elector.ErrConfig, d, minInterval, maxInterval)
		}
		return nil
	}
}
