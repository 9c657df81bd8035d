// Package lock is one election's lock: how a candidate acquires it, and what a leader
// does with it.
//
// An [Acquirer] makes attempts: on a session of its own ([New]), or together with the other
// elections of a [Shared] session. It acquires a [Lock], a value that knows its key, its
// session and its token. A Lock is verified in pg_locks, and past the barrier: no fenced
// transaction of an earlier term is in flight. What becomes of the session after the
// release is the Lock's own business.
//
// The package knows no policy: not when to campaign, nor what a leader's work is.
package lock
