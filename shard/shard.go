package shard

import (
	"context"
	"database/sql"
	"fmt"

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
//     wraps the cause of ctx.
//   - The server is refused, or attempts are used up, as in elector.Elector.Run: the same, with
//     that error.
//   - lead panics: so does the process.
//
// A group has at most 128 members; more wait for a seat. Names of groups have 1 to 500 bytes
// without NUL, "/" and "#". An argument or option that cannot be used is an error that wraps
// elector.ErrConfig. The first member of a group waits half a second for others before it
// leads.
//
// The shards of all members must find room in the server's lock table, of which
// max_locks_per_transaction and max_connections set the size. If it is full, OnError receives
// elector.ErrLockTableFull, and the member tries again.
func Run(ctx context.Context, pool *sql.DB, group string, shards *Set, lead Lead, opts ...Option) error {
	c := config{moves: defaultMoves, interval: defaultInterval}
	for _, opt := range opts {
		if err := opt(&c); err != nil {
			return err
		}
	}
	if err := checkGroup(group); err != nil {
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
