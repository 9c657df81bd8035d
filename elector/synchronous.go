package elector

import "time"

// WithSynchronousStandby makes the promise hold between two primaries: if a standby is
// promoted while the old primary still runs, cut off from it, no leader there believes
// any more when one is elected on the new primary. It needs synchronous replication
// (PostgreSQL manual, 27.2.8), and every candidate of the election must have it.
//
// A term begins only after a commit that the synchronous standbys have acknowledged,
// and only such commits, one per heartbeat interval, prolong it. A candidate that has
// known the primary for less than longestLease does not campaign there yet; so after each
// failover or restart of the primary, and after a start of all candidates, nobody leads
// for that long.
// longestLease is the longest lease (WithLease) of all candidates of the election, at
// least this one's and at most 24 h. To lengthen a lease, lengthen longestLease
// everywhere first.
//
// synchronous_standby_names must list every standby that may be promoted, each by a name
// of its own, and have commits wait for all that it lists: 'FIRST 2 (s1, s2)' will do;
// 'FIRST 1 (s1, s2)', 'ANY 1 (s1, s2)' and '*' will not. While it does not, or a standby
// that it lists is away, the campaign waits and OnError is told an error that wraps
// ErrNotSynchronous; if the setting changes during a term, the term ends in order. So
// nobody leads while a standby that is listed is down: have your failover manager take it
// off the list, as Patroni does. A standby that is not listed must not be promoted.
//
// The commits pin one more connection while the candidate leads, for which the pool needs
// room, and write a small record each. A wait that is cancelled (pg_cancel_backend) is
// answered like one that was acknowledged; an answer that takes more than half of the
// validity is therefore not counted. With pg_read_all_stats the role can see, and the
// elector checks, how far each standby has got.
//
// It goes with every option of New; an elector of a shared session cannot have it.
func WithSynchronousStandby(longestLease time.Duration) Option {
	return func(c *config) error {
		c.synchronous, c.longestLease = true, longestLease
		return nil
	}
}
